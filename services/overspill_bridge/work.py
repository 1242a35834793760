"""A queue of keys: no key is worked on twice at once, none is ever dropped, each failing one is tried ever more slowly.

A key that is added while it is being worked on is worked on once more. Each due key gets a task of its own, so that a
slow call for one pod delays no other; how many calls run at once is the business of whoever makes them. This module
must not know what a key stands for.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Never

from overspill_runtime.clock import Clock

Handler = Callable[
    [str], Awaitable[float | None]
]  # returns when to look again, in seconds; None: when something changes


class WorkQueue:
    """Runs `handle` for added keys. `on_error` hears of every exception of a handler; the key is then tried again."""

    def __init__(
        self,
        handle: Handler,
        *,
        clock: Clock,
        retry_min: float,
        retry_max: float,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._handle = handle
        self._clock = clock
        self._retry_min = retry_min
        self._retry_max = retry_max
        self._on_error = on_error
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._running: set[str] = set()
        self._failures: dict[str, int] = {}
        self._stirred = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Keys that are due or planned."""
        return len(self._due)

    @property
    def running(self) -> int:
        """Keys that are being worked on."""
        return len(self._running)

    def add(self, key: str, delay: float = 0.0) -> None:
        """Work on a key after `delay` seconds, or earlier if it is planned earlier."""
        due = self._clock.monotonic() + delay
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._stirred.set()

    def backoff(self, key: str) -> float:
        """Count a failure of this key; returns the pause before the next try, doubled each time up to the cap."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._retry_max, self._retry_min * float(1 << min(failures, 32)))

    def succeeded(self, key: str) -> None:
        """Forget this key's failures."""
        self._failures.pop(key, None)

    async def run(self) -> Never:
        """Work until cancelled; cancellation reaches every handler and is awaited."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._stirred.clear()
                pause = self._start_due(tasks)
                try:
                    async with asyncio.timeout(pause):
                        await self._stirred.wait()
                except TimeoutError:
                    continue

    def _start_due(self, tasks: asyncio.TaskGroup) -> float | None:
        """Start what is due; returns the seconds until the next planned key, None without one."""
        now = self._clock.monotonic()
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) != due or key in self._running:
                heapq.heappop(self._heap)  # planned anew, or to be planned again when its run has ended
            elif due <= now:
                heapq.heappop(self._heap)
                del self._due[key]
                self._running.add(key)
                tasks.create_task(self._work(key))
            else:
                return due - now
        return None

    async def _work(self, key: str) -> None:
        again: float | None
        try:
            again = await self._handle(key)
        except Exception as error:  # noqa: BLE001 -- reported, and the key stays: nothing may be lost to a fault
            self._on_error(key, error)
            again = self.backoff(key)
        finally:
            self._running.discard(key)
            if key in self._due:  # added meanwhile
                heapq.heappush(self._heap, (self._due[key], key))
                self._stirred.set()
        if again is not None:
            self.add(key, again)
