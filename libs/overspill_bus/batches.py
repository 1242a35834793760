"""Work off a durable consumer in batches, in the order of the record: for writers that commit many events at once.

Messages that cannot be read are buried and still handed over, with their error: a ledger wants to know of every number.
This module must not know what is written.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from overspill_bus.connection import Connection
from overspill_bus.deadletters import DeadReason, bury
from overspill_bus.durables import Durable
from overspill_bus.errors import ApiError, BusUnavailable, RetryLater
from overspill_bus.pulling import ConsumerLost
from overspill_bus.recorded import Delivery, Recorded, recorded

LOG: Final = logging.getLogger("overspill_bus")
_RETRY: Final = 0.25

BatchHandler = Callable[[list[Recorded]], Awaitable[None]]


class BatchConsumption:
    """One `consume_batches` call."""

    def __init__(self, connection: Connection, durable: Durable, handler: BatchHandler, *, batch: int) -> None:
        self._connection = connection
        self._durable = durable
        self._handler = handler
        self._batch = batch
        self._held: list[Delivery] = []

    async def run(self) -> NoReturn:
        """For ever. An exception of the handler other than RetryLater ends it; the batch comes again."""
        async with self._durable.kept_alive(lambda: self._held):
            while True:
                try:
                    await self._work()
                except (ConsumerLost, BusUnavailable, ApiError) as error:
                    self._held = []
                    LOG.info("bus consumer %s begins anew: %s", self._durable.name, error)
                    await asyncio.sleep(_RETRY)

    async def _work(self) -> None:
        async with self._durable.opened(self._batch) as session:
            while True:
                self._held = await session.next(self._batch)
                if self._held:
                    records = [recorded(delivery) for delivery in self._held]
                    await self._bury_unreadable(records)
                    await self._hand_over(records)
                    await self._answer()

    async def _hand_over(self, records: list[Recorded]) -> None:
        while True:
            try:
                await self._handler(records)
            except RetryLater as later:
                LOG.warning("bus consumer %s: %s", self._durable.name, later)
                await asyncio.sleep(later.delay)
            else:
                return

    async def _bury_unreadable(self, records: list[Recorded]) -> None:
        for delivery, record in zip(self._held, records, strict=True):
            if record.error is not None:
                reason = DeadReason.UNDECODABLE
                await bury(self._connection, delivery, durable=self._durable.name, reason=reason, detail=record.error)

    async def _answer(self) -> None:
        *others, last = self._held
        for delivery in others:
            await self._durable.tell(delivery, b"+ACK")
        await self._durable.ack(last)
        self._durable.answered_up_to(last.stream_sequence)
        self._held = []
