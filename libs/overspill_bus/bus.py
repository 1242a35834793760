"""The bus as services see it: publish, emit, follow, consume, read.

Causation and correlation are carried by themselves: name the cause, and the rest follows. Services must not need NATS
to run: with the bus away events are kept in a bounded buffer, and readers go on when it is back.
"""

import asyncio
import contextlib
import inspect
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NoReturn

from overspill_bus.batches import BatchConsumption, BatchHandler
from overspill_bus.connection import Connection
from overspill_bus.consuming import Consumption, Handler
from overspill_bus.deadletters import DeadLetter, dead_letter
from overspill_bus.durables import Durable
from overspill_bus.errors import BusClosed, BusUnavailable
from overspill_bus.filters import checked_filters
from overspill_bus.jetstream import JetStream, StreamInfo
from overspill_bus.outbox import Letter, Published
from overspill_bus.reading import Position, Reader, Since
from overspill_bus.recorded import Delivery, Recorded, recorded
from overspill_bus.sending import Sender, message_size
from overspill_bus.settings import BusSettings
from overspill_bus.topology import ensure
from overspill_events import Envelope, EventError, encode, source_uri, subject_for, to_headers
from overspill_events.catalog import Event
from overspill_events.subjects import DLQ, DLQ_SUBJECTS, STREAM
from overspill_runtime.clock import Clock
from overspill_runtime.settings import without_passwords

_CONNECT_WAIT: Final = 10.0  # seconds, where the caller wants to wait
_FLUSH_AT_END: Final = 0.75  # with the connection's own second this stays below two


class Bus:
    """One process's place on the bus. Made by `connect`."""

    def __init__(self, settings: BusSettings, *, clock: Clock) -> None:
        now = clock.now()
        self.source: Final = source_uri(settings.cluster, settings.service, settings.shard)
        self.epoch: Final = f"{int(now.timestamp() * 1000)}-{secrets.token_hex(2)}"
        self._settings = settings
        self._clock = clock
        self._connection = Connection(settings)
        self._jetstream = JetStream(self._connection)
        self._sender = Sender(
            self._connection,
            self._jetstream,
            self._make_streams,
            capacity=settings.buffer_events,
            duplicate_window=settings.topology.duplicate_window,
        )
        self._reader = Reader(self._connection, self._jetstream, self._make_streams, name=settings.service)
        self._sending: asyncio.Task[None] | None = None

    # --- how it is ---------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether the server is there now."""
        return self._connection.connected

    @property
    def buffered(self) -> int:
        """Events that the stream has not acknowledged yet."""
        return len(self._sender.outbox)

    @property
    def lost_events(self) -> int:
        """Events dropped because the buffer was full or the stream refused them; each leaves a gap in our numbers."""
        return self._sender.outbox.lost

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        return self._connection.reconnects

    @property
    def last_error(self) -> str | None:
        """What went wrong last, of what still matters."""
        return self._sender.last_error or self._connection.last_error

    def problem(self) -> str | None:
        """For readiness: why the bus cannot be used as it should, or None."""
        if self._sending is not None and self._sending.done():
            return f"the bus has ended: {self._connection.last_error or 'closed'}"
        if not self.connected:
            where = without_passwords(self._settings.nats_url)
            return f"not connected to {where}: {self._connection.last_error or 'trying'}"
        if denied := self._connection.denied:
            return f"permission denied: {denied[-1]}"
        return f"cannot publish: {self._sender.last_error}" if self._sender.last_error else None

    async def wait_connected(self) -> None:
        """Return once connected. Raises BusClosed if the connection has ended for good."""
        await self._connection.wait_connected()

    async def wait_closed(self) -> NoReturn:
        """Never returns; raises BusClosed when the bus has ended for good, so that the process ends and starts anew."""
        await self._connection.wait_closed()
        raise BusClosed(self._connection.last_error or "closed")

    # --- saying ------------------------------------------------------------------------------------------------------

    async def publish(
        self,
        event: Event,
        *,
        caused_by: Recorded | Envelope | None = None,
        correlation_id: str | None = None,
        event_id: str | None = None,
        timeout: float = 5.0,
        must_ack: bool = False,
    ) -> Published:
        """Say `event` and return when the stream has it, in order with everything else that this process says.

        After `timeout` seconds raises BusUnavailable, and the event is still sent when the bus is back; with `must_ack`
        it is withdrawn instead, unless an attempt may have reached the stream: then `maybe_stored` is true. Raises
        EventError for an event that cannot be written, ApiError when the stream refuses it.
        """
        letter = self._letter(event, caused_by, correlation_id, event_id, must_ack=must_ack)
        letter.done = asyncio.get_running_loop().create_future()
        self._sender.put(letter)
        try:
            await asyncio.wait({letter.done}, timeout=timeout)
            if letter.done.done():
                return letter.done.result()
        except asyncio.CancelledError:
            letter.done.cancel()
            if must_ack:
                self._sender.withdraw(letter)
            raise
        letter.done = None
        gone = must_ack and self._sender.withdraw(letter)
        why = f"{event.spec.name} was not acknowledged in {timeout} s: {self.last_error or 'no answer'}"
        raise BusUnavailable(why, maybe_stored=not gone)

    def emit(
        self,
        event: Event,
        *,
        caused_by: Recorded | Envelope | None = None,
        correlation_id: str | None = None,
        event_id: str | None = None,
    ) -> Envelope:
        """Say `event` without waiting; returns its envelope, not numbered yet, to name it as a cause.

        The buffer is bounded: when it is full the oldest event is lost, counted in `lost_events`, and leaves a gap in
        this source's numbers. Raises EventError for an event that cannot be written.
        """
        letter = self._letter(event, caused_by, correlation_id, event_id, must_ack=False)
        self._sender.put(letter)
        return letter.envelope

    async def flush(self, timeout: float) -> bool:
        """Wait until everything said is in the stream; False when that took longer than `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._sender.wait_empty()
        except TimeoutError:
            return False
        return True

    # --- hearing -----------------------------------------------------------------------------------------------------

    async def follow(
        self,
        filters: Sequence[str],
        handler: Callable[[Recorded], Awaitable[None] | None],
        *,
        since: Since,
        on_caught_up: Callable[[], None] | None = None,
    ) -> NoReturn:
        """Everything from `since` (time or stream sequence; None: only new) and then live, for ever, each event once.

        Survives restarts of the server, a deleted consumer and lost messages; `on_caught_up` is called once, when the
        past has been handed over. What the handler raises is raised. Raises BusClosed, ValueError for bad filters.
        """

        async def receive(delivery: Delivery) -> None:
            waiting = handler(recorded(delivery))
            if inspect.isawaitable(waiting):
                await waiting

        position = Position(since, from_end=since is None)
        await self._reader.follow(STREAM, checked_filters(filters), position, receive, on_caught_up or _nothing)
        raise AssertionError("following never ends")

    async def read(
        self,
        filters: Sequence[str],
        *,
        since: Since = None,
        until_sequence: int | None = None,
        last_per_subject: bool = False,
    ) -> AsyncIterator[Recorded]:
        """From `since` (None: the beginning) to the stream's end as it is now, or to `until_sequence`.

        `last_per_subject`: only the newest event of each subject. Raises BusUnavailable, BusClosed.
        """
        window = self._reader.window(
            STREAM, checked_filters(filters), since, until_sequence, last_per_subject=last_per_subject
        )
        async with contextlib.aclosing(window):
            async for delivery in window:
                yield recorded(delivery)

    async def dead_letters(self, *, since: Since = None) -> AsyncIterator[DeadLetter]:
        """What was given up, oldest first. Raises BusUnavailable, BusClosed."""
        window = self._reader.window(DLQ, [DLQ_SUBJECTS], since, None)
        async with contextlib.aclosing(window):
            async for delivery in window:
                yield dead_letter(delivery)

    async def consume(
        self,
        durable: str,
        filters: Sequence[str],
        handler: Handler,
        *,
        concurrency: int = 8,
        max_deliver: int = 6,
        ack_wait: float = 30.0,
        backoff: Sequence[float] = (1.0, 5.0, 15.0, 60.0),
    ) -> NoReturn:
        """Work off a durable consumer for ever: per subject in order, `concurrency` subjects at a time; in one process.

        The handler returns: acknowledged. RetryLater: again after its delay. Poison, or a message that cannot be read:
        dead letter. Another exception: again after the next of `backoff` (seconds), dead letter at `max_deliver`.
        Raises BusClosed, ValueError for a bad name or bad filters.
        """
        consumer = self._durable(durable, filters, ack_wait=ack_wait, max_ack_pending=concurrency * 32)
        await Consumption(
            self._connection, consumer, handler, concurrency=concurrency, max_deliver=max_deliver, backoff=backoff
        ).run()

    async def consume_batches(
        self,
        durable: str,
        filters: Sequence[str],
        handler: BatchHandler,
        *,
        batch: int = 500,
        ack_wait: float = 30.0,
    ) -> NoReturn:
        """Work off a durable consumer for ever in batches, in the stream's order; acknowledged when `handler` returns.

        RetryLater from the handler: the same batch again. Another exception is raised, and the batch comes again to
        whoever consumes next. Messages that cannot be read are dead-lettered and still handed over, with `error`.
        """
        consumer = self._durable(durable, filters, ack_wait=ack_wait, max_ack_pending=batch * 2)
        await BatchConsumption(self._connection, consumer, handler, batch=batch).run()

    # --- streams -----------------------------------------------------------------------------------------------------

    async def ensure_topology(self) -> None:
        """Create or update the streams. Raises BusUnavailable, or ApiError when the server refuses."""
        await ensure(self._jetstream, self._settings.topology)

    async def stream_info(self, stream: str = STREAM) -> StreamInfo:
        """State of a stream. Raises BusUnavailable, or ApiError when there is none."""
        return await self._jetstream.stream_info(stream)

    async def _make_streams(self) -> None:
        """What to do when a stream is missing: make it, or leave that to whoever may."""
        if self._settings.makes_streams:
            await self.ensure_topology()

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect and to send, in the background."""
        self._connection.start()
        self._sending = asyncio.create_task(self._send(), name="bus sender")

    async def close(self) -> None:
        """Send what can still be sent, then end, in less than two seconds."""
        if self.connected:
            await self.flush(_FLUSH_AT_END)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
        await self._connection.close()

    async def _send(self) -> None:
        try:
            await self._sender.run()
        except BusClosed:
            return  # told to everybody by wait_closed
        except Exception as error:
            self._connection.fail(f"the sender failed: {type(error).__name__}: {error}")
            raise

    def _durable(self, name: str, filters: Sequence[str], *, ack_wait: float, max_ack_pending: int) -> Durable:
        return Durable(
            self._connection,
            self._jetstream,
            self._make_streams,
            name=name,
            filters=checked_filters(filters),
            ack_wait=ack_wait,
            max_ack_pending=max_ack_pending,
        )

    def _letter(
        self,
        event: Event,
        caused_by: Recorded | Envelope | None,
        correlation_id: str | None,
        event_id: str | None,
        *,
        must_ack: bool,
    ) -> Letter:
        cause = caused_by.envelope if isinstance(caused_by, Recorded) else caused_by
        identity = event_id or str(uuid.uuid4())
        envelope = Envelope(
            id=identity,
            type=event.spec.type,
            source=self.source,
            time=self._clock.now(),
            subject=subject_for(event, cluster=self._settings.cluster, service=self._settings.service),
            epoch=self.epoch,
            sequence=0,
            correlation_id=correlation_id or (cause.correlation_id if cause else identity),
            causation_id=cause.id if cause else None,
            traceparent=cause.traceparent if cause else None,
        )
        data = encode(event)
        if (size := message_size(to_headers(envelope), data)) > self._connection.max_payload:
            raise EventError(f"{event.spec.name}: {size} bytes; a message may have {self._connection.max_payload}")
        return Letter(envelope=envelope, data=data, must_ack=must_ack)


@contextlib.asynccontextmanager
async def connect(settings: BusSettings, *, clock: Clock, wait: bool = False) -> AsyncIterator[Bus]:
    """A bus that connects in the background and never gives up; closed at the end of the context.

    `wait`: return only when connected. Raises BusUnavailable when that takes more than ten seconds.
    """
    bus = Bus(settings, clock=clock)
    bus.start()
    try:
        if wait:
            try:
                async with asyncio.timeout(_CONNECT_WAIT):
                    await bus.wait_connected()
            except TimeoutError:
                raise BusUnavailable(bus.problem() or "not connected") from None
        yield bus
    finally:
        await bus.close()


def _nothing() -> None:
    pass
