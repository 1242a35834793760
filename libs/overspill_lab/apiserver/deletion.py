"""Ending objects: grace, preconditions, finalizers and the contents of namespaces.

Follows `rest.BeforeDelete` and `registry.Store.Delete`. Dependents are not collected here: that is the garbage
collector's work, a client, which `orphan` and `foregroundDeletion` finalizers address.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import JsonObject, decode, parse_timestamp, timestamp
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.resources import JOBS, NAMESPACES, PODS, RESOURCES, Resource
from overspill_lab.apiserver.store import Entry, Store

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_POLICIES = ("Foreground", "Background", "Orphan")
_DEFAULT_GRACE = 30
_TERMINAL = ("Succeeded", "Failed")


class Preconditions(Struct, frozen=True, rename="camel"):
    """What must hold for a deletion to happen."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct, frozen=True, rename="camel"):
    """The body of a DELETE, or the `deleteOptions` of an Eviction."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: tuple[str, ...] = ()


class Deletion(Struct, frozen=True):
    """What a deletion came to: the object as it is now, and whether it is gone."""

    entry: Entry
    removed: bool


def read_options(document: JsonObject) -> DeleteOptions:
    """Read DeleteOptions; raises a 400 or 422 that names the field."""
    try:
        options = msgspec.convert({k: v for k, v in document.items() if v is not None}, DeleteOptions)
    except msgspec.ValidationError as problem:
        raise errors.bad_request(f"DeleteOptions cannot be read: {problem}") from problem
    policy = options.propagation_policy
    if policy not in (None, *_POLICIES):
        raise errors.invalid_options(
            "DeleteOptions", FieldError.unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))
        )
    if policy is not None and options.orphan_dependents is not None:
        words = "orphanDependents and deletionPropagation cannot be both set"
        raise errors.invalid_options("DeleteOptions", FieldError.invalid("propagationPolicy", policy, words))
    return options


def check_preconditions(resource: Resource, entry: Entry, preconditions: Preconditions | None) -> None:
    """Raise a 409 if the object is not the one the client means."""
    if preconditions is None:
        return
    uid, version = entry.obj["metadata"]["uid"], entry.obj["metadata"]["resourceVersion"]
    if preconditions.uid not in (None, uid):
        why = f"the UID in the precondition ({preconditions.uid}) does not match the UID in record ({uid}). "
        raise errors.precondition_failed(
            resource, entry.name, why + "The object might have been deleted and then recreated"
        )
    if preconditions.resource_version not in (None, version):
        why = f"the ResourceVersion in the precondition ({preconditions.resource_version}) does not match the "
        why += f"ResourceVersion in record ({version}). The object might have been modified"
        raise errors.precondition_failed(resource, entry.name, why)


def delete(
    store: Store, resource: Resource, entry: Entry, options: DeleteOptions, now: datetime, *, dry_run: bool
) -> Deletion:
    """Delete an object, or begin to: grace and finalizers leave it in place with a deletionTimestamp."""
    check_preconditions(resource, entry, options.preconditions)
    obj = decode(entry.body)
    metadata = obj["metadata"]
    finalizers = _finalizers(resource, metadata.get("finalizers") or [], options)
    grace = _grace(resource, obj, options)
    if resource is NAMESPACES:
        return _delete_namespace(store, entry, obj, now, dry_run=dry_run)
    goes_now = not grace and not finalizers
    if goes_now and "deletionTimestamp" not in metadata:
        return Deletion(entry if dry_run else remove(store, resource, entry.key), removed=True)
    if not _mark(metadata, now, grace, finalizers) and not goes_now:
        return Deletion(entry, removed=False)
    # The last shortening of the grace is written (watchers see it) before the object goes.
    marked = _keep(store, resource, entry, obj, dry_run=dry_run)
    if goes_now and not dry_run:
        remove(store, resource, entry.key)
    return Deletion(marked, removed=goes_now)


def _finalizers(resource: Resource, present: list[str], options: DeleteOptions) -> list[str]:
    policy = options.propagation_policy
    if options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if policy is None:
        if _ORPHAN in present or _FOREGROUND in present:
            return present
        # batch/v1 keeps the habit of its first days: pods outlive a Job that is deleted without a policy.
        policy = "Orphan" if resource is JOBS else "Background"
    kept = [finalizer for finalizer in present if finalizer not in (_ORPHAN, _FOREGROUND)]
    return kept + {"Orphan": [_ORPHAN], "Foreground": [_FOREGROUND], "Background": []}[policy]


def _grace(resource: Resource, obj: JsonObject, options: DeleteOptions) -> int:
    """Return the seconds of grace: only a pod that is on a node and has not finished has any."""
    if resource is not PODS:
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or obj["status"].get("phase") in _TERMINAL:
        return 0
    if options.grace_period_seconds is not None:
        return max(options.grace_period_seconds, 0)
    return int(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE))


def _mark(metadata: JsonObject, now: datetime, grace: int, finalizers: list[str]) -> bool:
    """Note that the object is being deleted; a later request may only shorten the grace. False: nothing to change."""
    before = dict(metadata)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        begun = parse_timestamp(metadata["deletionTimestamp"]) - timedelta(
            seconds=metadata["deletionGracePeriodSeconds"]
        )
        metadata["deletionTimestamp"] = timestamp(begun + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    return metadata != before


def _keep(store: Store, resource: Resource, entry: Entry, obj: JsonObject, *, dry_run: bool) -> Entry:
    return Entry(entry.key, obj, entry.revision) if dry_run else store.put(resource, entry.key, obj)


def remove(store: Store, resource: Resource, key: str) -> Entry:
    """Take an object out of the store; a terminating namespace that has become empty goes with it."""
    entry = store.remove(resource, key)
    if entry.namespace:
        finish_namespace(store, entry.namespace)
    return entry


def is_finished(resource: Resource, metadata: JsonObject) -> bool:
    """Tell whether an object that is being deleted has nothing left to wait for."""
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return resource is not NAMESPACES and not metadata.get("deletionGracePeriodSeconds")


def _delete_namespace(store: Store, entry: Entry, obj: JsonObject, now: datetime, *, dry_run: bool) -> Deletion:
    """Mark a namespace as terminating and delete what is in it, as the namespace controller would."""
    if entry.name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        raise errors.forbidden(NAMESPACES, entry.name, "this namespace may not be deleted")
    metadata = obj["metadata"]
    if "deletionTimestamp" in metadata:
        return Deletion(entry, removed=False)
    metadata["deletionTimestamp"] = timestamp(now)
    obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
    marked = _keep(store, NAMESPACES, entry, obj, dry_run=dry_run)
    if not dry_run:
        for resource in RESOURCES:
            if resource.namespaced:
                for content in tuple(store.collection(resource).in_order(entry.name)):
                    delete(store, resource, content, DeleteOptions(propagation_policy="Background"), now, dry_run=False)
        finish_namespace(store, entry.name)
    return Deletion(marked, removed=False)


def finish_namespace(store: Store, namespace: str) -> None:
    """Remove a terminating namespace once nothing is left in it."""
    entry = store.collection(NAMESPACES).entries.get(namespace)
    if entry is None or "deletionTimestamp" not in entry.obj["metadata"] or entry.obj["metadata"].get("finalizers"):
        return
    collections = (store.collection(resource) for resource in RESOURCES if resource.namespaced)
    if not any(next(iter(collection.in_order(namespace)), None) for collection in collections):
        store.remove(NAMESPACES, namespace)
