"""Starts programs, keeps them running, and leaves nothing behind.

One supervisor owns all processes of a lab. It ends a process only by the id it got when it started it. It knows nothing
of what the programs do: see `programs` for what it is told, and `lab` for who they are.
"""

import asyncio
import atexit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from overspill_lab.programs import Death, LabError, Program, Progress, State
from overspill_lab.running import Running, launch, tail

READY_WITHIN_S: Final = 60.0
CRASHES_ALLOWED: Final = 5  # in a row, each less than STABLE_S after its start: then the program cannot work here
STABLE_S: Final = 10.0


class Supervisor:
    """The processes of one lab. An async context manager: leaving the block stops all, last started first."""

    def __init__(self, folder: Path, *, progress: Callable[[Progress], None] | None = None) -> None:
        self.deaths: list[Death] = []
        self._folder = folder
        self._progress = progress
        self._kept: dict[str, _Kept] = {}
        self._order: list[str] = []  # in which they were asked for: which process came up first is chance
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self._kill_all)
        return self

    async def __aexit__(self, *_: object) -> None:
        # Shielded: a cancelled lab (Ctrl-C) still stops its processes in order; a second cancellation kills them.
        stopping = asyncio.ensure_future(self.stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            self._kill_all()
            await stopping
            raise

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by program name, of those alive now."""
        return {name: kept.now.process.pid for name, kept in self._kept.items() if kept.now.process.returncode is None}

    def log_of(self, name: str) -> Path:
        """Where a program's output goes."""
        return self._folder / f"{name}.log"

    async def start(self, program: Program) -> Mapping[str, Any]:
        """Start a program and wait until it is ready; returns what it announced (empty for other kinds of readiness).

        Raises LabError when it ends first or takes more than READY_WITHIN_S seconds.
        """
        if program.name in self._kept:
            raise LabError(f"{program.name} was started already")
        self._tell(program, State.STARTING)
        self._order.append(program.name)
        kept = self._kept[program.name] = _Kept(program, await launch(program, self.log_of(program.name)))
        try:
            announced = await asyncio.wait_for(kept.now.ready(), READY_WITHIN_S)
        except TimeoutError:
            announced = None
        if announced is None:
            end = tail(self.log_of(program.name))
            raise LabError(f"{program.name} did not become ready; the end of {self.log_of(program.name)}:\n{end}")
        self._is_ready(kept)
        kept.keeper = asyncio.create_task(self._keep(kept), name=f"keep {program.name}")
        return announced

    async def kill(self, name: str) -> int:
        """End a program the hard way (SIGKILL) and return the process id it had; it is restarted by its policy.

        Raises LabError when there is no such program or it is not alive.
        """
        if name not in self.pids:
            raise LabError(f"no running program {name!r}; there are: {', '.join(sorted(self.pids))}")
        kept = self._kept[name]
        kept.is_ready.clear()
        victim = kept.now
        victim.asked_to_end = True
        victim.kill()
        await victim.ended()
        return victim.process.pid

    async def ready(self, name: str) -> None:
        """Wait until a program is ready (again, after a kill)."""
        await self._kept[name].is_ready.wait()

    async def failed(self) -> None:
        """Wait until the lab cannot go on, and raise the LabError that says why. Never returns otherwise."""
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop every program, last started first, each within its time. Calling it again is harmless."""
        while self._order:
            kept = self._kept.pop(self._order.pop(), None)
            if kept is None:
                continue  # it could not be launched
            await kept.stop()
            self._tell(kept.program, State.STOPPED)
        self._failure.cancel()
        atexit.unregister(self._kill_all)

    async def _keep(self, kept: "_Kept") -> None:
        """Wait for the program's end and start it again, as its policy says."""
        program, crashes, clock = kept.program, 0, asyncio.get_running_loop().time
        started = clock()
        while True:
            exit_code = await kept.now.ended()
            kept.is_ready.clear()
            asked = kept.now.asked_to_end
            self._note_end(program, exit_code, asked=asked)
            crashes = 0 if asked or clock() - started > STABLE_S else crashes + 1
            if not program.restarts or crashes > CRASHES_ALLOWED:
                self._fail(LabError(f"{program.name} was killed" if asked else str(self.deaths[-1])))
                return
            await asyncio.sleep(program.restart_after_s * max(1, crashes))
            self._tell(program, State.STARTING)
            kept.now, started = await launch(program, self.log_of(program.name)), clock()
            if await kept.now.ready() is not None:
                self._is_ready(kept)

    def _note_end(self, program: Program, exit_code: int, *, asked: bool) -> None:
        if asked:
            self._tell(program, State.KILLED)
            return
        log = self.log_of(program.name)
        self.deaths.append(Death(name=program.name, exit_code=exit_code, log=log, log_tail=tail(log)))
        self._tell(program, State.DIED, f"exit code {exit_code}")

    def _fail(self, error: LabError) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # marked as seen: a lab nobody waits on still shows it in `deaths`

    def _is_ready(self, kept: "_Kept") -> None:
        # A program may have been killed between its word and our reading it.
        if kept.now.process.returncode is None and not kept.now.asked_to_end:
            kept.is_ready.set()
            self._tell(kept.program, State.READY, f"pid {kept.now.process.pid}")

    def _tell(self, program: Program, state: State, detail: str = "") -> None:
        if self._progress is not None:
            self._progress(Progress(name=program.name, state=state, detail=detail))

    def _kill_all(self) -> None:
        for kept in self._kept.values():
            kept.now.kill()


class _Kept:
    """A program, its present process and the task that brings it back."""

    def __init__(self, program: Program, now: Running) -> None:
        self.program = program
        self.now = now
        self.is_ready = asyncio.Event()
        self.keeper: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """End the keeper first, so that nothing comes back; it may be in the middle of a launch."""
        if self.keeper is not None:
            self.keeper.cancel()
            await asyncio.gather(self.keeper, return_exceptions=True)
        await self.now.stop()
