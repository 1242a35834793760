"""Work off a durable consumer: messages of one subject one after the other, different subjects side by side.

A message that must wait is held here, and with it the later ones of its subject: handed back to the server it would be
overtaken by them. This module must not know what a handler does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from overspill_bus.connection import Connection
from overspill_bus.deadletters import DeadReason, bury
from overspill_bus.durables import Durable
from overspill_bus.errors import ApiError, BusUnavailable, Poison, RetryLater
from overspill_bus.pulling import ConsumerLost
from overspill_bus.recorded import Delivery, Recorded, recorded
from overspill_bus.sessions import Session

LOG: Final = logging.getLogger("overspill_bus")
_RETRY: Final = 0.25
_HELD_PER_WORKER: Final = 16

Handler = Callable[[Recorded], Awaitable[None]]
_Key = tuple[int, int]  # generation and sequence of the stream


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    failures: int = 0  # of the handler, in this process: a message that only waited is not to blame


class Consumption:
    """One `consume` call."""

    def __init__(
        self,
        connection: Connection,
        durable: Durable,
        handler: Handler,
        *,
        concurrency: int,
        max_deliver: int,
        backoff: Sequence[float],
    ) -> None:
        self._connection = connection
        self._durable = durable
        self._handler = handler
        self._slots = asyncio.Semaphore(concurrency)
        self._capacity = concurrency * _HELD_PER_WORKER
        self._max_deliver = max_deliver
        self._backoff = backoff
        self._held: dict[_Key, _Held] = {}
        self._done: dict[_Key, None] = {}  # the last ones, in the order of their end
        self._lanes: dict[str, deque[_Key]] = {}
        self._room = asyncio.Event()
        self._newest: _Key = (0, 0)

    async def run(self) -> NoReturn:
        """For ever. What is held at the end has no answer, and comes first to whoever consumes next."""
        try:
            async with (
                self._durable.kept_alive(lambda: [held.delivery for held in self._held.values()]),
                asyncio.TaskGroup() as tasks,
            ):
                await self._fetch(tasks)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # it ended the others
        raise AssertionError("fetching never ends")

    async def _fetch(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                async with self._durable.opened(self._capacity) as session:
                    await self._fill(session, tasks)
            except (ConsumerLost, BusUnavailable, ApiError) as error:
                LOG.info("bus consumer %s begins anew: %s", self._durable.name, error)
                await asyncio.sleep(_RETRY)

    async def _fill(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        while True:
            while len(self._held) >= self._capacity:
                self._room.clear()
                await self._room.wait()
            for delivery in await session.next(self._capacity - len(self._held)):
                if (self._durable.generation, delivery.stream_sequence) in self._done:
                    await self._durable.tell(delivery, b"+ACK")  # the answer to an earlier delivery got lost
                else:
                    self._hold(delivery, tasks)

    def _hold(self, delivery: Delivery, tasks: asyncio.TaskGroup) -> None:
        key = (self._durable.generation, delivery.stream_sequence)
        self._newest = max(self._newest, key)
        if key in self._held:
            return  # delivered again meanwhile; the answer to the first delivery counts
        self._held[key] = _Held(delivery)
        lane = self._lanes.get(delivery.subject)
        if lane is None:
            self._lanes[delivery.subject] = deque([key])
            tasks.create_task(self._work(delivery.subject), name=f"bus {self._durable.name}")
        else:
            lane.append(key)

    async def _work(self, subject: str) -> None:
        lane = self._lanes[subject]
        while lane:
            await self._finish(self._held[lane[0]])
            key = lane.popleft()
            del self._held[key]
            self._remember(key)
            self._room.set()
        del self._lanes[subject]

    def _remember(self, key: _Key) -> None:
        self._done[key] = None
        generation, newest = self._newest
        waiting = [sequence for of, sequence in self._held if of == generation]
        self._durable.answered_up_to(min(waiting, default=newest + 1) - 1)
        while len(self._done) > self._capacity:
            del self._done[next(iter(self._done))]

    async def _finish(self, held: _Held) -> None:
        """Until the message is handled or buried."""
        while True:
            async with self._slots:
                delay = await self._try(held)
            if delay is None:
                return
            await asyncio.sleep(delay)

    async def _try(self, held: _Held) -> float | None:
        """One delivery to the handler; seconds to wait before the next, or None when there is none."""
        record = recorded(held.delivery, retries=held.failures)
        if record.error is not None:
            return await self._bury(held, DeadReason.UNDECODABLE, record.error)
        try:
            await self._handler(record)
        except RetryLater as later:
            return later.delay  # "not yet" is no failure
        except BusUnavailable:
            return self._backoff[0]  # the bus is away, the message is not to blame
        except Poison as poison:
            return await self._bury(held, DeadReason.POISON, str(poison))
        except Exception as error:
            held.failures += 1
            LOG.warning("bus consumer %s: %s failed", self._durable.name, record.envelope.type, exc_info=error)
            if held.failures >= self._max_deliver:
                return await self._bury(held, DeadReason.EXHAUSTED, f"{type(error).__name__}: {error}")
            return self._backoff[min(held.failures, len(self._backoff)) - 1]
        await self._durable.ack(held.delivery)
        return None

    async def _bury(self, held: _Held, reason: DeadReason, detail: str) -> float | None:
        try:
            await bury(self._connection, held.delivery, durable=self._durable.name, reason=reason, detail=detail)
        except (BusUnavailable, ApiError) as error:
            LOG.warning("bus cannot store a dead letter: %s", error)
            return self._backoff[0]
        await self._durable.tell(held.delivery, b"+TERM")
        return None
