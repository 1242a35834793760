"""One watch request: a stream of lines becomes typed events, and every way to end becomes an exception or a clean end.

Following a resource for ever, over many such requests, is the informer's business.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from overspill_kube.client import Client, decode_object, unexpected
from overspill_kube.errors import KubeError, KubeUnavailable, VersionGone
from overspill_kube.lines import LineSplitter
from overspill_kube.outcomes import read_status
from overspill_kube.resources import Resource
from overspill_kube.transport import Reply, Stream, retry_after_of
from overspill_objects.meta import ObjectMeta

T = TypeVar("T")

GRACE_SECONDS: Final = 30.0  # a server that forgets its own timeout is cut off this much later
_RANDOM: Final = random.SystemRandom()


class Selection(Struct, Generic[T], frozen=True, kw_only=True):
    """What to follow: a resource, in one namespace or all, narrowed by selectors."""

    resource: Resource[T]
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None


class Seen(Struct, Generic[T], frozen=True):
    """An object was there at this version; `gone` when this is its last word."""

    object: T
    resource_version: str
    gone: bool = False


class Bookmark(Struct, frozen=True):
    """Nothing happened up to this version."""

    resource_version: str


class _Line(Struct):
    type: str
    object: msgspec.Raw


class _Meta(Struct):
    metadata: ObjectMeta = ObjectMeta()


_LINE: Final = msgspec.json.Decoder(_Line)
_META: Final = msgspec.json.Decoder(_Meta)


@contextlib.asynccontextmanager
async def open_watch(
    client: Client, selection: Selection[T], *, since: str
) -> AsyncIterator[AsyncIterator[list[Seen[T] | Bookmark]]]:
    """Start a watch after version `since` and yield its batches of events (as they arrive, at least one per batch).

    The iterator ends when the server ends the watch. Raises VersionGone (410, at the start or in the stream),
    KubeUnavailable (connection, silence, throttling, garbage on the line) and KubeError (refused, unreadable object).
    """
    timing = client.settings.watch
    seconds = _RANDOM.uniform(*timing.server_seconds)
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": since,
        "timeoutSeconds": str(max(1, round(seconds))),
    }
    if selection.labels:
        params["labelSelector"] = selection.labels
    if selection.fields:
        params["fieldSelector"] = selection.fields
    path = selection.resource.path(namespace=selection.namespace)
    async with client.transport.stream(
        path, params=params, silence_seconds=timing.silence_seconds, total_seconds=seconds + GRACE_SECONDS
    ) as stream:
        if stream.status != 200:  # noqa: PLR2004
            await _refused(stream, path)
        yield _batches(stream, selection.resource, path)


async def _refused(stream: Stream, path: str) -> None:
    body = b"".join([chunk async for chunk in stream.chunks])
    if stream.status == 410:  # noqa: PLR2004
        raise VersionGone(path)
    raise unexpected(Reply(stream.status, stream.headers, body), f"watch {path}")


async def _batches(stream: Stream, resource: Resource[T], path: str) -> AsyncIterator[list[Seen[T] | Bookmark]]:
    splitter = LineSplitter()
    async for chunk in stream.chunks:
        try:
            lines = [_LINE.decode(line) for line in splitter.feed(chunk)]
        except (msgspec.DecodeError, ValueError) as error:
            # Not an object that we cannot read, but bytes that no API server sends: the connection is not to be
            # trusted.
            raise KubeUnavailable(f"watch {path}: garbage on the line: {error}") from error
        events: list[Seen[T] | Bookmark] = []
        for line in lines:
            if line.type == "ERROR":
                if events:
                    yield events
                raise _error_event(line.object, stream, path)
            events.append(_event(line, resource))
        if events:
            yield events


def _event(line: _Line, resource: Resource[T]) -> Seen[T] | Bookmark:
    version = _META.decode(line.object).metadata.resource_version
    if line.type == "BOOKMARK":
        return Bookmark(version)
    return Seen(decode_object(resource.view, line.object), version, gone=line.type == "DELETED")


def _error_event(body: Any, stream: Stream, path: str) -> Exception:
    status = read_status(bytes(body))
    if status.code == 410:  # noqa: PLR2004
        return VersionGone(f"watch {path}: {status.message}")
    words = f"watch {path}: {status.code} {status.message}"
    if 400 <= status.code < 500 and status.code != 429:  # noqa: PLR2004
        return KubeError(words, status=status.code, reason=status.reason)
    return KubeUnavailable(words, status=status.code, retry_after=retry_after_of(stream.headers))
