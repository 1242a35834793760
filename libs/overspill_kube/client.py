"""Reads and writes of whole objects: views out, typed outcomes back.

Reads are live: a list or get never asks for a cached answer (`resourceVersion=0`), because decisions stand on them. A
list is whole or an exception. This module must not know why anybody reads or writes.
"""

import contextlib
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from overspill_kube.errors import KubeError, KubeUnavailable, VersionGone
from overspill_kube.note_limits import NoteLimits
from overspill_kube.outcomes import Done, Invalid, NotFound, Outcome, Refusal, Throttled, classify, read_status
from overspill_kube.resources import Resource
from overspill_kube.settings import KubeSettings
from overspill_kube.transport import OnRequest, Reply, Requests, open_transport
from overspill_runtime.clock import Clock, SystemClock

T = TypeVar("T")

LIST_ATTEMPTS: Final = 3  # a list whose continuation expired is begun anew this many times in all


class PatchKind(Enum):
    """What a patch's body means. Always said explicitly: guesses differ between built-in and custom kinds."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"  # built-in kinds only
    APPLY = "application/apply-patch+yaml"


class Listing(Struct, Generic[T], frozen=True):
    """All objects of one moment, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


@cache
def _decoder(shape: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def _object_decoder(view: type[T]) -> msgspec.json.Decoder[T]:
    return _decoder(cast("Hashable", view))


def _page_decoder(view: type[T]) -> msgspec.json.Decoder[_Page[T]]:
    return _decoder(cast("Hashable", _Page[view]))  # type: ignore[valid-type]  # the view is a value here


def decode_object(view: type[T], body: bytes | msgspec.Raw) -> T:
    """An object as its view. Raises KubeError naming the field that does not fit."""
    try:
        return _object_decoder(view).decode(body)
    except msgspec.DecodeError as error:
        raise KubeError(f"unreadable {view.__name__}: {error}", status=0) from error


class Client:
    """One connection per process, made by `connect`."""

    def __init__(self, transport: Requests, *, clock: Clock, note_limits: NoteLimits) -> None:
        self.transport = transport
        self.clock = clock
        self.note_limits = note_limits  # one process, one budget of notes

    @property
    def settings(self) -> KubeSettings:
        """What the client was made with."""
        return self.transport.settings

    async def get(
        self, resource: Resource[T], name: str, namespace: str | None = None, *, seconds: float | None = None
    ) -> T | None:
        """The object as it is now, or None when there is none of that name.

        Raises KubeUnavailable, and KubeError when the kind is not served or reading is not allowed.
        """
        reply = await self._get(resource, name, namespace, seconds)
        return None if reply is None else decode_object(resource.view, reply.body)

    async def get_document(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any | None:
        """As `get`, but the whole object as plain data: for patches that must test the exact old value."""
        reply = await self._get(resource, name, namespace)
        return None if reply is None else decode_object(dict, reply.body)

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = 500,
    ) -> Listing[T]:
        """Everything that matches the selectors at one moment, fetched in pages of `limit`.

        Raises KubeUnavailable or KubeError rather than returning a part.
        """
        path = resource.path(namespace=namespace)
        params = {"limit": str(limit)}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        for _ in range(LIST_ATTEMPTS):
            with contextlib.suppress(VersionGone):
                return await self._pages(resource, path, params)
        raise KubeUnavailable(f"list {path}: its continuation expired {LIST_ATTEMPTS} times")

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        seconds: float | None = None,
    ) -> Outcome[T]:
        """Create an object; apiVersion and kind are filled in. Without `namespace` the body's own is used."""
        path = resource.path(namespace=_namespace_of(resource, body, namespace))
        document, params = _with_type(resource, body), self._write_params(dry_run=dry_run)
        return await self._write(resource, "POST", path, document, params=params, seconds=seconds)

    async def update(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Outcome[T]:
        """Replace an object with a whole document (from `get_document`, never from a view: fields would be lost)."""
        name, space = str(body["metadata"]["name"]), _namespace_of(resource, body, namespace)
        path = resource.path(namespace=space, name=name, subresource=subresource)
        return await self._write(
            resource, "PUT", path, _with_type(resource, body), params=self._write_params(dry_run=dry_run)
        )

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        force: bool = False,
        seconds: float | None = None,
    ) -> Outcome[T]:
        """Change an object. `force` takes over other managers' fields and is for `PatchKind.APPLY` alone."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        params = self._write_params(dry_run=dry_run)
        if force:
            params["force"] = "true"
        return await self._write(resource, "PATCH", path, body, params=params, content_type=kind.value, seconds=seconds)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Done[None] | Refusal:
        """Delete an object; with `uid` only that one. `propagation`: Background, Foreground or Orphan."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        path = resource.path(namespace=namespace, name=name)
        reply = await self.transport.request("DELETE", path, body=msgspec.json.encode(options))
        if 200 <= reply.status < 300:  # noqa: PLR2004
            return Done(None)
        return refusal_of(reply, f"DELETE {path}")

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Any request, for what has no method here; answers of every status are returned. `body` is data or bytes."""
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        reply = await self.transport.request(method, path, params=params, body=data, content_type=content_type)
        return reply.status, reply.body

    async def served(self, resource: Resource[T], *versions: str) -> Resource[T] | None:
        """The resource in the first of these versions that the server has, or None when it serves none of them."""
        reply = await self.transport.request("GET", f"/apis/{resource.group}")
        if reply.status == 404:  # noqa: PLR2004
            return None
        if reply.status != 200:  # noqa: PLR2004
            raise unexpected(reply, f"GET /apis/{resource.group}")
        group = decode_object(_ApiGroup, reply.body)
        there = {entry.version for entry in group.versions}
        version = next((version for version in versions if version in there), None)
        return None if version is None else msgspec.structs.replace(resource, version=version)

    def _write_params(self, *, dry_run: bool) -> dict[str, str]:
        params = {"fieldManager": self.settings.user_agent}
        if dry_run:
            params["dryRun"] = "All"
        return params

    async def _get(
        self, resource: Resource[Any], name: str, namespace: str | None, seconds: float | None = None
    ) -> Reply | None:
        path = resource.path(namespace=namespace, name=name)
        reply = await self.transport.request("GET", path, seconds=seconds)
        if reply.status == 200:  # noqa: PLR2004
            return reply
        if isinstance(classify(reply.status, reply.body), NotFound):
            return None
        raise unexpected(reply, f"GET {path}")

    async def _pages(self, resource: Resource[T], path: str, params: Mapping[str, str]) -> Listing[T]:
        items: list[T] = []
        query = dict(params)
        while True:
            reply = await self.transport.request("GET", path, params=query)
            if reply.status == 410:  # noqa: PLR2004
                raise VersionGone(path)
            if reply.status != 200:  # noqa: PLR2004
                raise unexpected(reply, f"list {path}")
            try:
                page = _page_decoder(resource.view).decode(reply.body)
            except msgspec.DecodeError as error:
                raise KubeError(f"list {path}: unreadable {resource.kind}: {error}", status=0) from error
            items += page.items or ()
            if not page.metadata.continue_:
                return Listing(tuple(items), page.metadata.resource_version)
            query["continue"] = page.metadata.continue_

    async def _write(
        self,
        resource: Resource[T],
        method: str,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str],
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> Outcome[T]:
        reply = await self.transport.request(
            method, path, params=params, body=msgspec.json.encode(body), content_type=content_type, seconds=seconds
        )
        if 200 <= reply.status < 300:  # noqa: PLR2004
            return Done(decode_object(resource.view, reply.body))
        return refusal_of(reply, f"{method} {path}")


class _GroupVersion(Struct):
    version: str


class _ApiGroup(Struct):
    versions: tuple[_GroupVersion, ...] = ()


def refusal_of(reply: Reply, what: str) -> Refusal:
    """The refusal in an unsuccessful reply. Raises KubeUnavailable (5xx) or KubeError when it is none."""
    refusal = classify(reply.status, reply.body, retry_after=reply.retry_after)
    if refusal is None:
        raise unexpected(reply, what)
    if isinstance(refusal, Invalid) and not refusal.message:
        return Invalid(f"{what}: refused without a word", refusal.fields)
    return refusal


def unexpected(reply: Reply, what: str) -> KubeUnavailable | KubeError:
    """The exception for a reply that is neither success nor an expected refusal."""
    status = read_status(reply.body)
    words = f"{what}: {reply.status} {status.message or status.reason}".rstrip()
    refusal = classify(reply.status, reply.body, retry_after=reply.retry_after)
    if isinstance(refusal, Throttled):
        return KubeUnavailable(words, status=reply.status, retry_after=refusal.retry_after)
    if reply.status >= 500:  # noqa: PLR2004
        return KubeUnavailable(words, status=reply.status, retry_after=reply.retry_after)
    return KubeError(words, status=reply.status, reason=status.reason)


def _with_type(resource: Resource[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _namespace_of(resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> str | None:
    if not resource.namespaced:
        return None
    found = namespace or body.get("metadata", {}).get("namespace")
    if not found:
        raise ValueError(f"{resource.kind}: a namespace is needed, as an argument or in the body's metadata")
    return str(found)


@contextlib.asynccontextmanager
async def connect(
    settings: KubeSettings, *, clock: Clock | None = None, on_request: OnRequest | None = None
) -> AsyncIterator[Client]:
    """A client for the API server that the settings name; closed at the end.

    Nothing is sent yet, so a server that is down does not prevent it. Raises ConfigError. `on_request` is called after
    each request with method, path, status (0: no answer) and seconds.
    """
    the_clock = SystemClock() if clock is None else clock
    async with open_transport(settings, clock=the_clock, on_request=on_request) as transport:
        yield Client(transport, clock=the_clock, note_limits=NoteLimits())
