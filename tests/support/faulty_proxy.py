"""A TCP proxy that breaks connections on purpose: between a healthy client and a healthy server, any fault is the network's.

It forwards bytes and knows nothing about them, so it stands before the real API server (TLS) as well as before the lab's.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import yaml

_CHUNK = 4096


class FaultyProxy:
    """Forwards to one server. Healthy until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._budget: Callable[[], int] | None = None
        self.cuts = 0
        self.port = 0

    def freeze(self) -> None:
        """Let nothing through any more, without closing anything: a partition as the client sees it."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything through again, what has been waiting first."""
        self._flowing.set()

    def cut_each_after(self, budget: Callable[[], int] | None) -> None:
        """Reset every new connection after so many bytes of answers, wherever in a line that is; None: heal."""
        self._budget = budget

    def cut_all(self) -> None:
        """Reset every connection now."""
        for writer in list(self._open):
            self._abort(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        except OSError:
            self._abort(writer)
            return
        self._open |= {writer, upstream_writer}
        budget = self._budget() if self._budget is not None else None
        pumps = [
            asyncio.ensure_future(self._pump(reader, upstream_writer, None)),
            asyncio.ensure_future(self._pump(upstream_reader, writer, budget)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, upstream_writer):
                self._abort(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None) -> None:
        left = budget
        while chunk := await reader.read(_CHUNK):
            await self._flowing.wait()
            if left is not None and len(chunk) >= left:
                writer.write(chunk[:left])
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                self.cuts += 1
                return
            if left is not None:
                left -= len(chunk)
            writer.write(chunk)
            await writer.drain()

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()


@contextlib.asynccontextmanager
async def faulty_proxy(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[FaultyProxy, Path]]:
    """A proxy before the server of `kubeconfig`, and a kubeconfig that goes through it."""
    config = yaml.safe_load(kubeconfig.read_text())  # noqa: ASYNC240
    cluster = config["clusters"][0]["cluster"]
    address = urlsplit(cluster["server"])
    assert address.hostname is not None
    assert address.port is not None
    proxy = FaultyProxy(address.hostname, address.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    cluster["server"] = address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
    path = folder / f"proxied-{proxy.port}"
    path.write_text(yaml.safe_dump(config))
    try:
        yield proxy, path
    finally:
        proxy.thaw()
        server.close()
        proxy.cut_all()
        await server.wait_closed()
