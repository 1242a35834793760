"""Durable consumers: work that survives its process, acknowledged message by message.

One process at a time works off a durable (services have one leader): that is what makes order possible. The server
never gives up a message by itself (max_deliver is unlimited): giving up means a dead letter, which only we can write.
This module must not know what is done with the messages.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

from overspill_bus.connection import Connection
from overspill_bus.errors import ApiError, BusUnavailable, NoResponders
from overspill_bus.jetstream import ConsumerInfo, JetStream
from overspill_bus.pulling import Pull
from overspill_bus.recorded import Delivery
from overspill_bus.sessions import Session
from overspill_events.subjects import STREAM

LOG: Final = logging.getLogger("overspill_bus")
_NANOSECONDS: Final = 1_000_000_000
_WAIT: Final = 5.0
_ACK_TIMEOUT: Final = 5.0
_ACK_ATTEMPTS: Final = 3
_CONSUMER_NOT_FOUND: Final = 10014
_STREAM_NOT_FOUND: Final = 10059
_FIXED_AT_BIRTH: Final = ("deliver_policy", "opt_start_seq", "opt_start_time")


class Durable:
    """One durable consumer of the record: where it stands, and how its messages are answered."""

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        ensure: Callable[[], Awaitable[None]],
        *,
        name: str,
        filters: Sequence[str],
        ack_wait: float,
        max_ack_pending: int,
    ) -> None:
        if not name or set(name) & set(".*> \t\r\n/\\"):
            raise ValueError(f"durable {name!r}: a name without spaces, dots, slashes and wildcards is needed")
        self.name = name
        self._connection = connection
        self._jetstream = jetstream
        self._ensure = ensure
        self._filters = list(filters)
        self._ack_wait = ack_wait
        self._max_ack_pending = max_ack_pending
        self._done_up_to = 0  # everything up to here was answered by this process
        self._stream_created: datetime | None = None
        self.generation = 0  # of the stream: the same sequence in another generation is another message

    @contextlib.asynccontextmanager
    async def opened(self, batch: int) -> AsyncIterator[Session]:
        """The consumer's messages; it is made, or fitted to our settings, first. Raises BusUnavailable, ApiError.

        What a predecessor, or we on a connection that broke, left without an answer comes first and in order: the
        server would send it when `ack_wait` is over, after newer messages. What this process has done does not come
        again, although the consumer was deleted or the server crashed and forgot the last answers.
        """
        await self._connection.wait_connected()
        consumer = await self._put()
        acked = consumer.ack_floor.stream_seq
        if consumer.num_ack_pending or acked < self._done_up_to:
            with contextlib.suppress(NoResponders):
                after = self._done_up_to if acked < self._done_up_to else 0
                consumer = await self._jetstream.reset_consumer(STREAM, self.name, after=after)
        pull = Pull(self._connection, stream=STREAM, consumer=self.name, batch=batch, wait=_WAIT)
        async with pull.opened():
            yield Session(pull, self._jetstream, stream=STREAM, consumer=consumer)

    async def ack(self, delivery: Delivery) -> None:
        """Done, confirmed by the server. Without a confirmation the message comes again, which a handler must bear."""
        for _ in range(_ACK_ATTEMPTS):
            try:
                await self._connection.wait_connected()
                await self._connection.request(delivery.reply, b"+ACK", timeout=_ACK_TIMEOUT)
            except NoResponders:
                return  # the consumer is gone; the message comes again with the next one
            except BusUnavailable as error:
                LOG.warning("bus: no confirmation for %s: %s", delivery.stream_sequence, error)
            else:
                return

    async def tell(self, delivery: Delivery, answer: bytes) -> None:
        """+ACK, +WPI or +TERM without confirmation; lost with the connection, then the message comes again."""
        with contextlib.suppress(BusUnavailable):
            await self._connection.send(delivery.reply, answer)

    @contextlib.asynccontextmanager
    async def kept_alive(self, held: Callable[[], Sequence[Delivery]]) -> AsyncIterator[None]:
        """Tell the server that the held messages are worked on, before it would deliver them again."""

        async def tell_all() -> None:
            while True:
                await asyncio.sleep(self._ack_wait / 3)
                for delivery in held():
                    await self.tell(delivery, b"+WPI")

        task = asyncio.create_task(tell_all(), name=f"bus keep-alive {self.name}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def answered_up_to(self, sequence: int) -> None:
        """Remember where to go on should somebody delete the consumer."""
        self._done_up_to = max(self._done_up_to, sequence)

    async def _put(self) -> ConsumerInfo:
        config: dict[str, Any] = {
            "name": self.name,
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": round(self._ack_wait * _NANOSECONDS),
            "max_deliver": -1,
            "max_ack_pending": self._max_ack_pending,
            "filter_subjects": self._filters,
        }
        try:
            return await self._jetstream.put_consumer(STREAM, config | await self._start())
        except ApiError as error:
            if error.code == 400:  # noqa: PLR2004 (bad request: these filters will never do)
                raise ValueError(f"durable {self.name} with filters {self._filters}: {error}") from None
            raise

    async def _start(self) -> dict[str, Any]:
        """Where the consumer begins: the record's beginning, or whatever one that exists was made with."""
        await self._meet_stream()
        try:
            found = (await self._jetstream.consumer_info(STREAM, self.name)).config
        except ApiError as error:
            if error.err_code != _CONSUMER_NOT_FOUND:
                raise
        else:
            return {name: found[name] for name in _FIXED_AT_BIRTH if name in found}
        return {"deliver_policy": "all"}

    async def _meet_stream(self) -> None:
        try:
            info = await self._jetstream.stream_info(STREAM)
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
            await self._ensure()
            info = await self._jetstream.stream_info(STREAM)
        if self._stream_created not in {None, info.created}:
            self._done_up_to = 0  # another stream of the same name: all of it is to be done
            self.generation += 1
        self._stream_created = info.created
