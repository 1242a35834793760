"""Reading the record: a window of it, or from some point on for ever, completely and in order.

Every reader has a short-lived pull consumer without acknowledgements. When a message got lost on the way, and whenever
the server or the consumer went away, a new consumer goes on after the last message that was handed over. This module
must not know what events mean.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from overspill_bus.connection import Connection
from overspill_bus.errors import ApiError, BusClosed, BusUnavailable
from overspill_bus.jetstream import JetStream, StreamInfo
from overspill_bus.pulling import ConsumerLost, Pull
from overspill_bus.recorded import Delivery
from overspill_bus.sessions import Session

LOG: Final = logging.getLogger("overspill_bus")
_BATCH: Final = 256
_WAIT: Final = 5.0  # seconds of one request; also how often an idle reader makes sure that nothing got lost
_RETRY: Final = 0.25
_INACTIVE_NANOSECONDS: Final = 60_000_000_000  # a consumer nobody asks for this long is removed by the server
_DELETE_WAIT: Final = 0.5
_STREAM_NOT_FOUND: Final = 10059
_BAD_REQUEST: Final = 400

Since = datetime | int | None


class Position:
    """Where a reader stands: the next sequence, or the time or end of the stream where it begins."""

    def __init__(self, since: Since, *, from_end: bool = False) -> None:
        self._time = since if isinstance(since, datetime) else None
        self._from_end = from_end
        self._created: datetime | None = None
        self.next: int | None = since if isinstance(since, int) else None

    def meet(self, info: StreamInfo) -> None:
        """Fit to the stream that is there; one that was made anew is read from its beginning: all of it is unread."""
        if self._created is not None and self._created != info.created:
            self.next = 1
        elif self.next is None and self._time is None:
            self.next = info.state.last_seq + 1 if self._from_end else 1
        self._created = info.created

    def start(self) -> dict[str, Any]:
        """The consumer's start, for JetStream's API."""
        if self.next is not None:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, self.next)}
        if self._time is None:
            raise AssertionError("the position has not met its stream")
        start = self._time.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return {"deliver_policy": "by_start_time", "opt_start_time": start}


class Reader:
    """Opens sessions, again and again where they must not end."""

    def __init__(
        self, connection: Connection, jetstream: JetStream, ensure: Callable[[], Awaitable[None]], *, name: str
    ) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._ensure = ensure
        self._name = name

    async def window(
        self, stream: str, filters: Sequence[str], since: Since, until: int | None, *, last_per_subject: bool = False
    ) -> AsyncGenerator[Delivery, None]:
        """From `since` to the stream's end as it is now, or to the sequence `until`.

        Raises BusUnavailable when the bus does not answer for about ten seconds.
        """
        position = Position(since)
        end: int | None = None
        failures = 0
        while True:
            try:
                async with asyncio.timeout(_WAIT):
                    await self._connection.wait_connected()
                async with self._session(stream, filters, position, last_per_subject=last_per_subject) as (
                    session,
                    info,
                ):
                    if end is None:
                        end = min(info.state.last_seq, until if until is not None else info.state.last_seq)
                    left = session.pending
                    while left > 0 and (position.next or 1) <= end:
                        for delivery in await session.next(_BATCH):
                            if delivery.stream_sequence > end:
                                return
                            if position.next is None or delivery.stream_sequence >= position.next:
                                position.next = delivery.stream_sequence + 1
                                failures = 0
                                yield delivery
                            left = delivery.pending
                    return
            except (ConsumerLost, BusUnavailable, ApiError, TimeoutError) as error:
                failures += 1
                self._note(error)
                if failures > 1 and not isinstance(error, ConsumerLost):
                    raise BusUnavailable(f"cannot read {stream}: {error or 'not connected'}") from None
                await asyncio.sleep(_RETRY)

    async def follow(
        self,
        stream: str,
        filters: Sequence[str],
        position: Position,
        receive: Callable[[Delivery], Awaitable[None]],
        caught_up: Callable[[], None],
    ) -> None:
        """Hand over everything from `position` on, for ever; `caught_up` is called once, at the end of the past.

        What `receive` raises ends it. Raises BusClosed when the connection has ended for good.
        """
        behind, goal = True, 0
        while True:
            try:
                await self._connection.wait_connected()
                async with self._session(stream, filters, position) as (session, info):
                    goal = goal or info.state.last_seq
                    if behind and (session.pending == 0):
                        behind = False
                        caught_up()
                    while True:
                        for delivery in await session.next(_BATCH):
                            position.next = delivery.stream_sequence + 1
                            await receive(delivery)
                            if behind and (delivery.pending == 0 or delivery.stream_sequence >= goal):
                                behind = False
                                caught_up()
            except (ConsumerLost, BusUnavailable, ApiError) as error:
                self._note(error)
                await asyncio.sleep(_RETRY)

    def _note(self, error: Exception) -> None:
        LOG.info("bus reader %s begins anew: %s", self._name, error)

    @contextlib.asynccontextmanager
    async def _session(
        self, stream: str, filters: Sequence[str], position: Position, *, last_per_subject: bool = False
    ) -> AsyncIterator[tuple[Session, StreamInfo]]:
        info = await self._stream_info(stream)
        position.meet(info)
        name = f"{self._name}-{secrets.token_hex(6)}"
        start = {"deliver_policy": "last_per_subject"} if last_per_subject else position.start()
        config = {
            "name": name,
            "description": f"reader of {self._name}",
            "ack_policy": "none",
            "filter_subjects": list(filters),
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _INACTIVE_NANOSECONDS,
            **start,
        }
        try:
            consumer = await self._jetstream.put_consumer(stream, config)
        except ApiError as error:
            if error.code == _BAD_REQUEST:
                raise ValueError(f"filters {list(filters)}: {error}") from None
            raise
        pull = Pull(self._connection, stream=stream, consumer=name, batch=_BATCH, wait=_WAIT)
        async with pull.opened():
            try:
                session = Session(pull, self._jetstream, stream=stream, consumer=consumer)
                yield session, info
            finally:
                # Best effort: a consumer that stays is removed by the server when it is inactive.
                with contextlib.suppress(BusUnavailable, BusClosed, ApiError, TimeoutError):
                    async with asyncio.timeout(_DELETE_WAIT):
                        await self._jetstream.delete_consumer(stream, name)

    async def _stream_info(self, stream: str) -> StreamInfo:
        try:
            return await self._jetstream.stream_info(stream)
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
        await self._ensure()
        return await self._jetstream.stream_info(stream)
