"""Serving a watch: catch up from a version, then follow, as chunked JSON lines until the deadline.

Bookmarks go out on quiet watches too, so that a client's version stays fresh and 410 stays rare.
"""

import asyncio
import contextlib

from aiohttp import web

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import encode
from overspill_lab.apiserver.store import Change, Collection, Store, event_line
from overspill_lab.apiserver.targets import ListQuery, Target, parse_version
from overspill_lab.apiserver.views import View
from overspill_lab.apiserver.watch import Watcher

_BOOKMARK_SECONDS = 10.0
# A real server sends a last bookmark this long before it ends a watch.
_LAST_BOOKMARK_SECONDS = 2.0
_DEFAULT_TIMEOUT_SECONDS = 1800.0
_QUEUE_BYTES = 32 * 1024 * 1024
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def serve_watch(
    request: web.Request, store: Store, target: Target, query: ListQuery, view: View
) -> web.StreamResponse:
    """Answer a watch request; ends at its deadline, with the client, or when the client cannot keep up."""
    start = _start(query)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)

    def cut_off() -> None:
        if request.transport is not None:
            request.transport.abort()

    watcher = Watcher(
        namespace=target.namespace,
        selection=query.selection,
        render=view.change_line,
        limit_bytes=_QUEUE_BYTES,
        on_overflow=cut_off,
    )
    open_watches = request.app[WATCHERS]
    collection = store.collection(target.resource)
    # From here to the listener's registration nothing awaits, so that no write can fall between.
    if problem := _prime(watcher, collection, target.namespace, start):
        await response.write(event_line("ERROR", encode(problem.status())))
        return response
    if query.send_initial_events and query.bookmarks:
        watcher.push(view.bookmark_line(store.revision, {_INITIAL_EVENTS_END: "true"}))
    collection.listeners.add(watcher.offer)
    open_watches.append(watcher)
    try:
        with contextlib.suppress(ConnectionResetError):
            await _follow(response, watcher, store, query, view)
    finally:
        collection.listeners.discard(watcher.offer)
        open_watches.remove(watcher)
    return response


WATCHERS = web.AppKey("watchers", list[Watcher])


def _start(query: ListQuery) -> int:
    """Return the version to watch from, 0 for "from the state as it is"; raises 400 and 422."""
    if query.send_initial_events and query.version_match != "NotOlderThan":
        raise _bad_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if query.version_match and not query.send_initial_events:
        raise _bad_match("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    return 0 if query.send_initial_events or not query.resource_version else parse_version(query.resource_version)


def _bad_match(why: str) -> errors.ApiError:
    return errors.invalid_options("ListOptions", errors.FieldError.forbidden("resourceVersionMatch", why))


def _prime(watcher: Watcher, collection: Collection, namespace: str, start: int) -> errors.ApiError | None:
    """Queue what the client has not seen, or say why that is not known any more."""
    if start == 0:
        for entry in collection.in_order(namespace):
            watcher.offer(Change("ADDED", entry, None))
        return None
    if start < collection.forgotten:
        return errors.expired(f"too old resource version: {start} ({collection.forgotten})")
    for change in collection.since(start):
        watcher.offer(change)
    return None


async def _follow(response: web.StreamResponse, watcher: Watcher, store: Store, query: ListQuery, view: View) -> None:
    loop = asyncio.get_running_loop()
    timeout = query.timeout_seconds or _DEFAULT_TIMEOUT_SECONDS
    deadline = loop.time() + timeout
    last = deadline - min(_LAST_BOOKMARK_SECONDS, timeout / 2)
    bookmark_at = min(loop.time() + _BOOKMARK_SECONDS, last)
    while not watcher.closed:
        now = loop.time()
        if now >= deadline:
            return
        if now >= bookmark_at:
            bookmark_at = min(now + _BOOKMARK_SECONDS, last) if now < last else deadline
            if query.bookmarks:
                watcher.push(view.bookmark_line(store.revision, {}))
        if lines := await watcher.take(min(deadline, bookmark_at) - now):
            await response.write(lines)
