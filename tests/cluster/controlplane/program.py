"""One real server as a process: started on a leash, asked until it is healthy, ended by its id.

It knows nothing of what the program is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp

from overspill_lab import leash

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
LOG_TAIL_LINES = 25
PORT_TRIES = 3

Started = TypeVar("Started")


class StartError(RuntimeError):
    """A program did not become ready; the message carries the end of its log."""


@dataclass(kw_only=True)
class Program:
    """One running program and its log."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @classmethod
    async def spawn(cls, name: str, program: Path, arguments: list[str], *, folder: Path) -> Program:
        """Start it in `folder`, where its log is too; it does not outlive a test run that was itself killed."""
        path = folder / f"{name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, leash.__file__, str(os.getpid()), str(program), *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        return cls(name=name, process=process, log=path)

    async def until_ready(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Ask until the program says it is healthy. Raises StartError when it has ended or takes too long."""
        deadline = asyncio.get_running_loop().time() + READY_WITHIN_S
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=5)) as session:
            while asyncio.get_running_loop().time() < deadline:
                if self.process.returncode is not None:
                    raise self._failed(f"ended with {self.process.returncode}")
                # Readiness only: a certificate is made while its server starts, and no secret but a throw-away one is sent.
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url, ssl=False) as reply:
                        if reply.status == 200:
                            return
                await asyncio.sleep(0.1)
        raise self._failed(f"was not ready within {READY_WITHIN_S:.0f} s")

    def _failed(self, why: str) -> StartError:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return StartError(f"{self.name} {why}; the end of its log:\n" + "\n".join(lines))

    async def stop(self) -> None:
        """End it, the hard way when it takes too long. Calling it twice is harmless."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


async def with_free_ports(start: Callable[[], Awaitable[Started]]) -> Started:
    """Start again when a port that was free when we asked was taken by the time it was bound."""
    for _ in range(PORT_TRIES - 1):
        try:
            return await start()
        except StartError as error:
            if "address already in use" not in str(error):
                raise
    return await start()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
