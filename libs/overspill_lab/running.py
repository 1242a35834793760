"""One program's present process: started, read, asked whether it is ready, ended by its id.

It must not decide anything: whether a dead program comes back is the supervisor's matter.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from overspill_lab.programs import Announces, Answers, Listens, Program

POLL_S: Final = 0.05
LOG_TAIL_LINES: Final = 25
LEASH: Final = Path(__file__).with_name("leash.py")
OK: Final = 200


class Running:
    """A process and its output. Make it with `launch`."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.asked_to_end = False
        self._program = program
        self._log = log
        self._announcement: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(), name=f"output of {program.name}")

    async def ready(self) -> Mapping[str, Any] | None:
        """Wait until the program is ready: what it announced (empty for other kinds of readiness), None if it ended."""
        is_ready, ended = asyncio.ensure_future(self._ready()), asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait({is_ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            return is_ready.result() if is_ready.done() else None
        finally:
            is_ready.cancel()
            ended.cancel()

    async def ended(self) -> int:
        """Wait for the end of the process and of its output; its exit code, negative for a signal."""
        exit_code = await self.process.wait()
        await self._reader
        self._announcement.cancel()
        return exit_code

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL; returns when the process is gone."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), self._program.stop_within_s)
            except TimeoutError:
                self.kill()
        await self.ended()

    def kill(self) -> None:
        """SIGKILL, if it is alive."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _ready(self) -> Mapping[str, Any]:
        match self._program.readiness:
            case Announces():
                return await asyncio.shield(self._announcement)
            case Answers(url=url):
                await _answers(url)
            case Listens(port=port):
                await _listens(port)
        return {}

    async def _read(self) -> None:
        """Take the announcement off the standard output; everything else goes to the log."""
        if self.process.stdout is None:
            raise RuntimeError("the process was started without a pipe for its output")
        async for line in self.process.stdout:
            announced = _as_announcement(line)
            if announced is not None and not self._announcement.done():
                self._announcement.set_result(announced)
                continue
            with self._log.open("ab") as log:
                log.write(line)


async def launch(program: Program, log: Path) -> Running:
    """Start a program, in a session of its own so that a terminal's Ctrl-C reaches only the supervisor."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-ISE", str(LEASH), str(os.getpid())),
            *program.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=None if program.environment is None else dict(program.environment),
            start_new_session=True,
        )
    return Running(program, process, log)


def tail(log: Path) -> str:
    """The last lines of a log; empty when there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def _as_announcement(line: bytes) -> dict[str, Any] | None:
    try:
        announced = json.loads(line)
    except ValueError:
        return None
    return announced if isinstance(announced, dict) else None


async def _answers(url: str) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as reply:
                    if reply.status == OK:
                        return
            await asyncio.sleep(POLL_S)


async def _listens(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            return
        await asyncio.sleep(POLL_S)
