"""An API server that does exactly what a test tells it, down to half a line and a reset connection.

It keeps no state and knows no Kubernetes: use it for what a healthy server cannot be asked to do. Real behaviour belongs to
the lab's server and the real one.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class ScriptedApi:
    """Answers queue up per kind of request; a watch without an answer stays silent, anything else gets a 500."""

    url: str = ""
    lists: deque[Answer] = field(default_factory=deque)
    watches: deque[Answer] = field(default_factory=deque)
    others: deque[Answer] = field(default_factory=deque)
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def watched_from(self) -> list[str]:
        """The resourceVersion of every watch so far."""
        return [request.query["resourceVersion"] for request in self.requests if "watch" in request.query]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        if "watch" in request.query:
            return await (self.watches.popleft() if self.watches else silence())(request)
        queue = self.lists if request.method == "GET" and self.lists else self.others
        if not queue:
            return web.json_response(status(500, "InternalError", "the script has no more answers"), status=500)
        return await queue.popleft()(request)

    def write_kubeconfig(self, folder: Path, *, token: str = "secret") -> Path:
        """A kubeconfig for this server."""
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig(self.url, token)))
        return path


def kubeconfig(url: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": token}}],
    }


@contextlib.asynccontextmanager
async def scripted_api() -> AsyncIterator[ScriptedApi]:
    """A running scripted server on a free loopback port."""
    api = ScriptedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


# --- answers ----------------------------------------------------------------------------------------------------------


def reply(body: Any, *, code: int = 200, headers: dict[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=code, headers=headers)

    return answer


def status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """An error body as API servers write it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def listing(version: str, *items: dict[str, Any], continue_: str | None = None) -> Answer:
    meta = {"resourceVersion": version} | ({"continue": continue_} if continue_ else {})
    return reply({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": list(items)})


def pod(name: str, version: str, *, uid: str | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version},
        "spec": spec,
    }


def line(type_: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}})


def stream(*chunks: bytes, end: str = "hold") -> Answer:
    """Send chunks, then `hold` the connection open in silence, `close` it properly, or `reset` it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)  # so that chunks arrive apart
        if end == "hold":
            await asyncio.Event().wait()
        if end == "reset" and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def silence() -> Answer:
    return stream(end="hold")
