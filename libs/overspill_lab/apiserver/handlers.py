"""Each verb on objects: read the request, call the registry, answer. Only this module knows both HTTP and writes."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import ClassVar

from aiohttp import web

from overspill_lab.apiserver import bodies, deletion, errors, eviction, lists, subresources, targets
from overspill_lab.apiserver.documents import JsonObject, encode
from overspill_lab.apiserver.patch import patcher
from overspill_lab.apiserver.registry import Change, Registry
from overspill_lab.apiserver.resources import NAMESPACES, Resource
from overspill_lab.apiserver.store import Entry, key_of
from overspill_lab.apiserver.streaming import serve_watch
from overspill_lab.apiserver.targets import Target
from overspill_lab.apiserver.views import PlainView, TableView, View

_JSON = "application/json"
_TABLE = "as=table"
_CREATED = 201
_NOT_STRICT = '299 - "the lab does not refuse unknown fields"'
_SUCCESS = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": _CREATED})


class Api:
    """The verbs, over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    async def handle(self, request: web.Request, path: str) -> web.StreamResponse:
        """Answer a request about objects; `path` is that of the Kubernetes API."""
        target = targets.parse_target(path)
        view = _negotiate(request, target, self._registry.now)
        if target.subresource and target.subresource != "status":
            return await self._subresource(request, target)
        verbs = self._object_verbs if target.name else self._collection_verbs
        verb = verbs.get(request.method)
        if verb is None:
            raise errors.method_not_allowed()
        return await verb(self, request, target, view)

    async def _list_or_watch(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        query = targets.parse_list_query(target.resource, request.query)
        if query.watch:
            return await serve_watch(request, self._store, target, query, view)
        shown = lists.page(self._store, self._store.collection(target.resource), target.namespace, query)
        return _json(view.list_body(shown))

    async def _create(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        document = await bodies.document(request)
        dry_run = bodies.dry_run(request)
        bodies.take_type(document, target)
        if target.resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        entry = self._registry.create(target.resource, target.namespace, document, dry_run=dry_run)
        return _written(request, view.object_body(entry), status=_CREATED)

    async def _get(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:  # noqa: ARG002
        return _json(view.object_body(self._read(target)))

    def _read(self, target: Target) -> Entry:
        return self._registry.read(target.resource, target.namespace, target.name)

    async def _replace(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        document = await bodies.document(request)
        dry_run = bodies.dry_run(request)
        bodies.take_type(document, target)
        bodies.check_identity(document, target)
        known = key_of(target.namespace, target.name) in self._store.collection(target.resource).entries
        if not known and target.resource.create_on_update and not target.subresource:
            document.setdefault("metadata", {})["name"] = target.name
            entry = self._registry.create(target.resource, target.namespace, document, dry_run=dry_run)
            return _json(view.object_body(entry), status=_CREATED)
        current = self._read(target)
        uid, known_uid = (document.get("metadata") or {}).get("uid"), current.obj["metadata"]["uid"]
        if uid and uid != known_uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known_uid}"
            raise errors.conflict(target.resource, target.name, why)
        return _json(view.object_body(self._update(target, lambda _: document, dry_run=dry_run)))

    def _update(self, target: Target, change: Change, *, dry_run: bool) -> Entry:
        return self._registry.update(
            target.resource, target.namespace, target.name, change, part=target.subresource, dry_run=dry_run
        )

    async def _patch(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        body = await request.read()
        dry_run = bodies.dry_run(request)
        apply = patcher(request.headers.get("Content-Type", ""), body, target.resource)

        def change(obj: JsonObject) -> JsonObject:
            patched = apply({"kind": target.resource.kind, "apiVersion": target.api_version, **obj})
            bodies.take_type(patched, target)
            bodies.check_identity(patched, target)
            return patched

        try:
            changed = self._update(target, change, dry_run=dry_run)
        except errors.UndecodableError as problem:
            raise problem.patch_refusal() from problem
        return _written(request, view.object_body(changed))

    async def _delete(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        options = await bodies.delete_options(request)
        if target.subresource:
            raise errors.method_not_allowed()
        done = self._delete_one(target.resource, self._read(target), options)
        if done.removed and not target.resource.returns_deleted:
            return _json(_deleted(target, done.entry))
        return _json(view.object_body(done.entry))

    def _delete_one(self, resource: Resource, entry: Entry, options: deletion.DeleteOptions) -> deletion.Deletion:
        dry_run = "All" in options.dry_run
        return deletion.delete(self._store, resource, entry, options, self._registry.now(), dry_run=dry_run)

    async def _delete_collection(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        options = await bodies.delete_options(request)
        query = targets.parse_list_query(target.resource, request.query)
        if (target.resource.namespaced and not target.namespace) or target.resource is NAMESPACES:
            raise errors.method_not_allowed()
        shown = lists.page(self._store, self._store.collection(target.resource), target.namespace, query)
        gone = [self._delete_one(target.resource, entry, options).entry for entry in shown.entries]
        return _json(view.list_body(lists.Page(gone, self._store.revision)))

    _collection_verbs: ClassVar[dict[str, "Verb"]] = {
        "GET": _list_or_watch,
        "POST": _create,
        "DELETE": _delete_collection,
    }
    _object_verbs: ClassVar[dict[str, "Verb"]] = {"GET": _get, "PUT": _replace, "PATCH": _patch, "DELETE": _delete}

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.subresource == "scale":
            return await self._scale(request, target)
        if request.method != "POST":
            raise errors.method_not_allowed()
        document = await bodies.document(request)
        dry_run = bodies.dry_run(request)
        act = eviction.evict if target.subresource == "eviction" else subresources.bind
        act(self._registry, target.namespace, target.name, document, dry_run=dry_run)
        return _json(_SUCCESS, status=_CREATED)

    async def _scale(self, request: web.Request, target: Target) -> web.StreamResponse:
        entry = self._read(target)
        scale = subresources.read_scale(entry)
        if request.method == "GET":
            return _json(encode(scale))
        if request.method == "PUT":
            replicas = subresources.scaled(target.name, wanted := await bodies.document(request))
        elif request.method == "PATCH":
            wanted = patcher(request.headers.get("Content-Type", ""), await request.read(), target.resource)(scale)
            try:
                replicas = subresources.scaled(target.name, wanted)
            except errors.UndecodableError as problem:
                raise problem.patch_refusal() from problem
        else:
            raise errors.method_not_allowed()
        version = (wanted.get("metadata") or {}).get("resourceVersion", "")

        def change(obj: JsonObject) -> JsonObject:
            obj["spec"]["replicas"] = replicas
            if version:
                obj["metadata"]["resourceVersion"] = version
            return obj

        whole = Target(target.resource, target.version, target.namespace, target.name)
        changed = self._update(whole, change, dry_run=bodies.dry_run(request))
        return _json(encode(subresources.read_scale(changed)))


Verb = Callable[[Api, web.Request, Target, View], Awaitable[web.StreamResponse]]


def _negotiate(request: web.Request, target: Target, now: Callable[[], datetime]) -> View:
    """Choose the representation from `Accept`: the first one of its list that the lab can produce."""
    for wanted in request.headers.get("Accept", "*/*").lower().split(","):
        media, _, parameters = wanted.strip().partition(";")
        if media not in (_JSON, "application/*", "*/*"):
            continue
        form = {part.strip() for part in parameters.split(";") if part.strip().startswith("as=")}
        if not form:
            return PlainView(target)
        if form == {_TABLE} and "v=v1beta1" not in parameters:
            return TableView(target, request.query.get("includeObject", ""), now)
    raise errors.not_acceptable()


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type=_JSON)


def _written(request: web.Request, body: bytes, *, status: int = 200) -> web.Response:
    """Answer a write; a client that asked for strict validation is told what it did not get."""
    answer = _json(body, status=status)
    if request.query.get("fieldValidation") == "Strict":
        answer.headers["Warning"] = _NOT_STRICT
    return answer


def _deleted(target: Target, entry: Entry) -> bytes:
    details = {"name": entry.name, "kind": target.resource.plural, "uid": entry.obj["metadata"]["uid"]}
    if target.resource.group:
        details["group"] = target.resource.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return encode(status)
