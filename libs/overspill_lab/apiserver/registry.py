"""Creating and changing objects: the steps every write takes, in the order of a real server.

Shape → defaults → admission → validation → conflict → store. Nothing here awaits, so each call is atomic. It must not
know HTTP; it raises `ApiError` for everything a client can get wrong.
"""

import ipaddress
import itertools
import uuid
from collections.abc import Callable
from datetime import datetime

from overspill_lab.apiserver import admission, deletion, errors, moments, plugins
from overspill_lab.apiserver.defaults import apply_defaults, identify_job, reset_status
from overspill_lab.apiserver.documents import JsonObject, decode, normalise, timestamp, without_nulls
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.names import generated
from overspill_lab.apiserver.quotas import QuotaBook
from overspill_lab.apiserver.resources import DEPLOYMENTS, JOBS, NAMESPACES, PODS, PRIORITY_CLASSES, SERVICES, Resource
from overspill_lab.apiserver.shapes import check_shape
from overspill_lab.apiserver.store import Entry, Store, key_of
from overspill_lab.apiserver.validation import validate_create, validate_update

Change = Callable[[JsonObject], JsonObject]

# Which metadata a write to `status` may not touch either (custom resources: none of it may change).
_STATUS_KEEPS = {PODS: "ownerReferences", DEPLOYMENTS: "labels"}
_SERVER_OWNED = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName")
_FIRST_SERVICE_ADDRESS = ipaddress.IPv4Address("10.96.0.0")
_NEVER_KEPT = ("managedFields", "selfLink")


class Registry:
    """All writes to a store, apart from deletions."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self.store = store
        self.now = now
        self._quotas = QuotaBook(store)
        self._service_numbers = itertools.count(1)

    def read(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return an object; raises 404."""
        entry = self.store.collection(resource).entries.get(key_of(namespace, name))
        if entry is None:
            raise errors.not_found(resource, name)
        return entry

    def create(self, resource: Resource, namespace: str, obj: JsonObject, *, dry_run: bool = False) -> Entry:
        """Create an object. Raises UndecodableError, 400, 403, 404 (namespace), 409 (exists) and 422 (rules)."""
        obj = _normal(resource, obj)
        metadata = self._identify(resource, namespace, obj)
        obj = _read(resource, obj)
        plugins.admit_create(resource, namespace, obj, self.store)
        self._admit(resource, obj)
        if resource is JOBS:
            identify_job(obj)
        elif resource is SERVICES and "clusterIP" not in obj["spec"]:
            obj["spec"]["clusterIP"] = str(_FIRST_SERVICE_ADDRESS + next(self._service_numbers))
            apply_defaults(resource, obj)
        reset_status(resource, obj)
        if resource.has_generation:
            metadata["generation"] = 1
        if problems := validate_create(resource, obj):
            raise errors.invalid(resource, metadata["name"], problems)
        if resource is PODS:
            self._quotas.admit(obj)
        key = key_of(namespace, metadata["name"])
        if metadata.pop("resourceVersion", ""):
            raise errors.server_error("resourceVersion should not be set on objects to be created")
        if (taken := self.store.collection(resource).entries.get(key)) is not None:
            is_leaving = "deletionTimestamp" in taken.obj["metadata"]
            raise errors.already_exists(resource, metadata["name"], is_leaving=is_leaving)
        return Entry(key, obj, 0) if dry_run else self.store.put(resource, key, obj)

    def _identify(self, resource: Resource, namespace: str, obj: JsonObject) -> JsonObject:
        metadata: JsonObject = obj.setdefault("metadata", {})
        if metadata.get("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if namespace:
            metadata["namespace"] = namespace
        for field in (*_NEVER_KEPT, "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(field, None)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                problem = FieldError.required("metadata.name", "name or generateName is required")
                raise errors.invalid(resource, "", [problem])
            metadata["name"] = self._free_name(resource, namespace, str(metadata["generateName"]))
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp(self.now())
        return metadata

    def _free_name(self, resource: Resource, namespace: str, prefix: str) -> str:
        entries = self.store.collection(resource).entries
        while key_of(namespace, name := generated(prefix)) in entries:
            pass
        return name

    def _admit(self, resource: Resource, obj: JsonObject) -> None:
        if resource is PODS:
            admission.admit_pod(obj, self._class_of)
        elif resource is JOBS:
            admission.admit_job(obj, self._class_of)

    def _class_of(self, name: str) -> JsonObject | None:
        entry = self.store.collection(PRIORITY_CLASSES).entries.get(name)
        return None if entry is None else entry.obj

    def update(
        self, resource: Resource, namespace: str, name: str, change: Change, *, part: str = "", dry_run: bool = False
    ) -> Entry:
        """Change an object, or its `status` part alone. Raises UndecodableError, 404, 409 (stale) and 422 (rules).

        A change that changes nothing is not a write: the version stays. An object that was only waiting for its
        finalizers goes when the last one does.
        """
        entry = self.read(resource, namespace, name)
        obj = _read(resource, _normal(resource, change(decode(entry.body))))
        self._carry_over(resource, entry, obj)
        _isolate(resource, obj, entry.obj, part)
        plugins.admit_update(resource, obj, self.store)
        if resource.has_generation and _is_new_generation(resource, obj, entry.obj):
            obj["metadata"]["generation"] = entry.obj["metadata"].get("generation", 0) + 1
        if problems := validate_update(resource, obj, entry.obj):
            raise errors.invalid(resource, name, problems)
        if obj == entry.obj:
            return entry
        if dry_run:
            return Entry(entry.key, obj, entry.revision)
        if deletion.is_finished(resource, obj["metadata"]):
            deletion.remove(self.store, resource, entry.key)
            return Entry(entry.key, obj, self.store.revision)
        written = self.store.put(resource, entry.key, obj)
        if resource is NAMESPACES:
            deletion.finish_namespace(self.store, name)
        return written

    def rewrite(self, resource: Resource, entry: Entry, change: Change, *, dry_run: bool = False) -> Entry:
        """Change an object as the server itself does (binding, eviction): past the rules for clients."""
        obj = _normal(resource, change(decode(entry.body)))
        apply_defaults(resource, obj)
        if obj == entry.obj:
            return entry
        return Entry(entry.key, obj, entry.revision) if dry_run else self.store.put(resource, entry.key, obj)

    def _carry_over(self, resource: Resource, entry: Entry, obj: JsonObject) -> None:
        """Check the version the client has seen, and restore what only the server may set."""
        metadata, old = obj.setdefault("metadata", {}), entry.obj["metadata"]
        version = metadata.get("resourceVersion", "")
        if not version and not resource.unconditional_update:
            raise errors.version_required(resource, entry.name)
        if version and version != old["resourceVersion"]:
            raise errors.conflict(resource, entry.name, errors.STALE)
        metadata["resourceVersion"] = old["resourceVersion"]
        for field in ("uid", "name", "namespace"):
            if field in old:
                metadata.setdefault(field, old[field])
        for field in _NEVER_KEPT:
            metadata.pop(field, None)
        for field in _SERVER_OWNED:
            metadata.pop(field, None)
            if field in old:
                metadata[field] = old[field]


def _normal(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return a document as decoding and encoding would leave it; custom resources keep what is empty."""
    normal: JsonObject = without_nulls(obj) if resource.custom else normalise(obj)
    return normal


def _read(resource: Resource, obj: JsonObject) -> JsonObject:
    """Check a document's shape, times and quantities and complete it; raises UndecodableError."""
    check_shape(resource, resource.versions[0], obj)
    try:
        if not resource.custom:
            moments.normalise_times(obj)
        apply_defaults(resource, obj)
    except ValueError as problem:
        kind, version = resource.kind, resource.versions[0]
        message = f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
        raise errors.UndecodableError(message) from problem
    return obj


def _isolate(resource: Resource, obj: JsonObject, old: JsonObject, part: str) -> None:
    """Keep a write to the object away from its status, and a write to the status away from everything else."""
    if part != "status":
        if "status" in resource.subresources:
            _restore(obj, old, "status")
        return
    metadata = obj["metadata"]
    if resource is PODS:
        obj.setdefault("status", {}).setdefault("qosClass", old["status"]["qosClass"])
    if resource.custom:
        obj["metadata"] = dict(old["metadata"])
    elif field := _STATUS_KEEPS.get(resource):
        _restore(metadata, old["metadata"], field)
    for field in {*obj, *old} - {"metadata", "status"}:
        _restore(obj, old, field)


def _restore(target: JsonObject, source: JsonObject, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _is_new_generation(resource: Resource, obj: JsonObject, old: JsonObject) -> bool:
    if resource.custom:
        return any(obj.get(field) != old.get(field) for field in {*obj, *old} - {"metadata", "status"})
    if resource is DEPLOYMENTS and obj["metadata"].get("annotations") != old["metadata"].get("annotations"):
        return True
    return bool(obj.get("spec") != old.get("spec"))
