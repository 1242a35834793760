"""Starts a real, throw-away Prometheus on the loopback interface.

What Prometheus answers when a series is gone, old, doubled or not a number is for Prometheus to say. Each `prometheus()`
is a server of its own with a folder of its own; it scrapes what it is told to, and nothing is left when the block ends.

It knows nothing of Overspill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import build
from tests.cluster.controlplane.program import Program, free_port, with_free_ports

SCRAPE_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """How to reach a running server, and how to end it before its block does."""

    url: str
    program: Program

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.program.process.pid

    async def stop(self) -> None:
        """End it. Calling it twice is harmless."""
        await self.program.stop()


@contextlib.asynccontextmanager
async def prometheus(targets: Mapping[str, str] | None = None, *flags: str) -> AsyncIterator[Prometheus]:
    """A running server that scrapes `targets` (job name → URL up to its `/metrics`) four times a second.

    `flags` are the program's own, such as `--query.lookback-delta=2s`. The first call on a machine builds it, which takes
    minutes. Raises BuildError when that cannot be done and StartError when it does not become ready.
    """
    program = await asyncio.to_thread(build.prometheus)
    with tempfile.TemporaryDirectory(prefix="overspill-prometheus-") as folder:
        server = await with_free_ports(lambda: _start(program, Path(folder), targets or {}, flags))
        try:
            yield server
        finally:
            await server.stop()


async def _start(program: Path, folder: Path, targets: Mapping[str, str], flags: tuple[str, ...]) -> Prometheus:
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(_config(targets)))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    arguments = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--scrape.discovery-reload-interval=100ms",  # else the first scrape waits for five seconds
        *flags,
    ]
    started = await Program.spawn("prometheus", program, arguments, folder=folder)
    server = Prometheus(url=f"http://{address}", program=started)
    try:
        await started.until_ready(f"{server.url}/-/ready")
    except BaseException:
        await server.stop()
        raise
    return server


def _config(targets: Mapping[str, str]) -> dict[str, object]:
    interval = f"{SCRAPE_EVERY_S * 1000:.0f}ms"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [url.removeprefix("http://")]}]}
            for job, url in targets.items()
        ],
    }
