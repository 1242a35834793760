"""Keys to be worked on, each by one worker at a time, tried again later when the work fails.

A key that is added again while it is waiting is worked on once; while it is being worked on, once more afterwards. It
must not know what the work is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog

from overspill_kube.errors import KubeError, KubeUnavailable

FIRST_DELAY_S: Final = 0.05
LAST_DELAY_S: Final = 30.0
CONFLICT: Final = 409

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """One controller's queue."""

    def __init__(self, name: str, work: Callable[[K], Awaitable[None]], *, workers: int = 4) -> None:
        self._name = name
        self._work = work
        self._workers = workers
        self._waiting: dict[K, None] = {}  # insertion order is the order of work
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._log = structlog.get_logger(controller=name)

    def add(self, key: K) -> None:
        """Work on this key soon."""
        self._waiting[key] = None
        self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Work on this key after a while; an earlier appointment stands."""
        loop = asyncio.get_running_loop()
        appointed = self._timers.get(key)
        if appointed is not None and not appointed.cancelled() and appointed.when() <= loop.time() + seconds:
            return
        if appointed is not None:
            appointed.cancel()
        self._timers[key] = loop.call_later(max(0.0, seconds), self._due, key)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._serve(), name=f"{self._name} {number}")
        finally:
            for timer in self._timers.values():
                timer.cancel()

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    async def _serve(self) -> None:
        while True:
            key = self._take()
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._do(key)

    def _take(self) -> K | None:
        for key in self._waiting:
            if key not in self._working:
                del self._waiting[key]
                self._working.add(key)
                return key
        return None

    async def _do(self, key: K) -> None:
        try:
            await self._work(key)
        except (KubeError, KubeUnavailable) as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = min(LAST_DELAY_S, FIRST_DELAY_S * 2**failures)
            # Being outrun by another writer is daily business.
            log = self._log.debug if error.status == CONFLICT else self._log.warning
            log("work-failed", key=str(key), error=str(error), again_in_s=delay)
            self.add_after(key, delay)
        else:
            self._failures.pop(key, None)
        finally:
            self._working.discard(key)
            self._wake.set()
