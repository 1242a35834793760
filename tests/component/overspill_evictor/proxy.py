"""Between the evictor and the API server: forwards everything, except what a test wants done to evictions."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import yaml
from aiohttp import web


class Fault(Enum):
    """What happens to one real (not dry-run) eviction."""

    THROTTLE = "throttle"  # 429 without a budget's cause
    LOSE_ANSWER = "lose-answer"  # carried out, and the connection breaks
    LOSE_REQUEST = "lose-request"  # the connection breaks before


class EvictionProxy:
    """`faults` are used up one by one; `evictions` counts the requests, dry runs left out.

    `before_trial`, when set, is waited for before a dry run is forwarded.
    """

    def __init__(self, upstream: str, session: aiohttp.ClientSession) -> None:
        self._upstream, self._session = upstream, session
        self.faults: deque[Fault] = deque()
        self.evictions = 0
        self.before_trial: Callable[[], Awaitable[None]] | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_eviction = request.method == "POST" and request.path.endswith("/eviction")
        body = await request.read()
        fault = None
        if is_eviction and b"dryRun" in body and self.before_trial is not None:
            await self.before_trial()
        if is_eviction and b"dryRun" not in body:
            self.evictions += 1
            fault = self.faults.popleft() if self.faults else None
        if fault is Fault.THROTTLE:
            status = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 2}}
            return web.Response(status=429, body=json.dumps(status), headers={"Retry-After": "2"})
        if fault is Fault.LOSE_REQUEST:
            return self._break(request)
        return await self._forward(request, body, answer=fault is None)

    async def _forward(self, request: web.Request, body: bytes, *, answer: bool) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() in {"authorization", "content-type", "accept"}}
        url = self._upstream + request.raw_path
        async with self._session.request(request.method, url, data=body, headers=headers) as reply:
            if not answer:
                await reply.read()
                return self._break(request)
            kept = {k: v for k, v in reply.headers.items() if k.lower() in {"content-type", "retry-after"}}
            response = web.StreamResponse(status=reply.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # a watcher that has gone
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response

    def _break(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@contextlib.asynccontextmanager
async def eviction_proxy(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[EvictionProxy, Path]]:
    """The proxy, and a kubeconfig that goes through it."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster = config["clusters"][0]["cluster"]
    address = urlsplit(cluster["server"])
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        proxy = EvictionProxy(f"{address.scheme}://{address.netloc}", session)
        runner = web.ServerRunner(web.Server(proxy.handle), handle_signals=False)  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        cluster["server"] = address._replace(netloc=f"127.0.0.1:{runner.addresses[0][1]}").geturl()
        path = folder / "proxied"
        await asyncio.to_thread(path.write_text, yaml.safe_dump(config))
        try:
            yield proxy, path
        finally:
            await runner.cleanup()
