"""The single sender of a process: takes letters from the outbox one by one until the stream has them.

An attempt without an answer may have been stored, so it is repeated under the same id; when the stream then says
"duplicate", the stored message tells whether it is ours. This module must not know payloads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from overspill_bus.connection import Connection
from overspill_bus.errors import ApiError, BusUnavailable, NoResponders
from overspill_bus.jetstream import JetStream, StoredMessage, checked
from overspill_bus.outbox import Letter, Outbox, Published
from overspill_events import Envelope, EventError, from_headers, to_headers
from overspill_events.subjects import STREAM

LOG: Final = logging.getLogger("overspill_bus")
_ACK_TIMEOUT: Final = 2.0  # seconds until an attempt is given up
_BACKOFF: Final = (0.05, 0.1, 0.25, 0.5, 1.0)  # ADR-22 asks clients to repeat when nobody responds
_CLIENT_ERRORS: Final = range(400, 500)
_TOO_LARGE: Final = 413


class Sender:
    """Owns the outbox's order; `run` is its one task."""

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        ensure: Callable[[], Awaitable[None]],
        *,
        capacity: int,
        duplicate_window: float,
    ) -> None:
        self.outbox = Outbox(capacity)
        self.last_error: str | None = None
        self._connection = connection
        self._jetstream = jetstream
        self._ensure = ensure
        self._duplicate_window = duplicate_window
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._floor = 1  # the stream's sequence from which our next message can be
        self._said: set[str] = set()  # failures of the letter under way: each is logged once

    def put(self, letter: Letter) -> None:
        """Append to the outbox; a letter that had to make room is lost, and whoever waits for it is told."""
        dropped = self.outbox.put(letter)
        self._filled.set()
        self._emptied.clear()
        if dropped is not None:
            self._said.clear()
            self.last_error = f"buffer full: {dropped.envelope.type} was dropped"
            LOG.warning("bus %s", self.last_error)
            _fail(dropped, BusUnavailable(self.last_error))

    def withdraw(self, letter: Letter) -> bool:
        """Whether the letter could still be taken back: it is not and will not be in the stream."""
        withdrawn = self.outbox.withdraw(letter)
        self._note_empty()
        return withdrawn

    async def wait_empty(self) -> None:
        """Return when everything is in the stream."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Send for ever. Raises BusClosed when the connection has ended for good."""
        while True:
            await self._connection.wait_connected()
            letter = self.outbox.take()
            if letter is None:
                self._filled.clear()
                await self._filled.wait()
                continue
            try:
                await self._attempt(letter)
            except NoResponders as error:
                # Before the first event it is the ordinary start: the streams are made now, here or by somebody else.
                self._note_failure(error, level=logging.INFO if self._floor == 1 else logging.WARNING)
                await self._ensure_stream()
            except BusUnavailable as error:
                letter.uncertain |= error.maybe_stored
                self._note_failure(error)
            except ApiError as error:
                self._note_failure(error)
                if error.code in _CLIENT_ERRORS:
                    self._refuse(letter, error)
            else:
                self._note_empty()
                continue
            if self.outbox.take() is letter:
                await asyncio.sleep(_BACKOFF[min(letter.attempts, len(_BACKOFF)) - 1])

    async def _attempt(self, letter: Letter) -> None:
        envelope = msgspec.structs.replace(letter.envelope, sequence=self.outbox.number)
        loop = asyncio.get_running_loop()
        letter.attempts += 1
        letter.in_flight = True
        try:
            letter.first_sent = letter.first_sent or loop.time()
            age = loop.time() - letter.first_sent
            # After the duplicate window the stream has forgotten the id, and would store the event twice.
            forgotten = letter.uncertain and age > self._duplicate_window / 2
            if forgotten and (stored := await self._find(envelope)):
                self._settle(letter, envelope, stored.sequence, duplicate=False)
                return
            headers = {**to_headers(envelope), "Nats-Msg-Id": envelope.id, "Nats-Expected-Stream": STREAM}
            self._check_size(headers, letter)
            reply = await self._connection.request(envelope.subject, letter.data, headers=headers, timeout=_ACK_TIMEOUT)
            answer = checked(f"publish {envelope.subject}", reply.data)
            sequence = int(answer["seq"])
            duplicate = bool(answer.get("duplicate")) and not await self._is_ours(letter, envelope, sequence)
            self._settle(letter, envelope, sequence, duplicate=duplicate)
        finally:
            letter.in_flight = False

    def _check_size(self, headers: dict[str, str], letter: Letter) -> None:
        # The server closes the connection for good on a message that is too large.
        size = message_size(headers, letter.data)
        if size > self._connection.max_payload:
            what = f"publish {letter.envelope.subject}"
            problem = f"{size} bytes with headers, the server takes {self._connection.max_payload}"
            raise ApiError(what, code=_TOO_LARGE, err_code=0, description=problem)

    async def _is_ours(self, letter: Letter, envelope: Envelope, sequence: int) -> bool:
        """Whether the message that the stream took for a duplicate is the one of an earlier attempt."""
        if not letter.uncertain:
            return False
        stored = await self._jetstream.message(STREAM, sequence)
        # Gone already (limits): most likely ours, since the id came from here a moment ago.
        return stored is None or _same(stored, envelope)

    async def _find(self, envelope: Envelope) -> StoredMessage | None:
        sequence = self._floor
        while stored := await self._jetstream.message(STREAM, sequence, on=envelope.subject):
            if _same(stored, envelope):
                return stored
            sequence = stored.sequence + 1
        return None

    def _settle(self, letter: Letter, envelope: Envelope, sequence: int, *, duplicate: bool) -> None:
        self._floor = max(self._floor, sequence + 1)
        self.last_error = None
        self._said.clear()
        if duplicate:
            self.outbox.not_needed()
            envelope = letter.envelope
        else:
            self.outbox.stored()
        if letter.done is not None and not letter.done.done():
            stored = msgspec.structs.replace(envelope, stream_sequence=sequence)
            letter.done.set_result(Published(sequence=sequence, duplicate=duplicate, envelope=stored))

    def _refuse(self, letter: Letter, error: ApiError) -> None:
        self._said.clear()
        if letter.done is not None or letter.must_ack:
            self.outbox.not_needed()
            _fail(letter, error)
        else:
            self.outbox.refused()
        self._note_empty()

    async def _ensure_stream(self) -> None:
        try:
            await self._ensure()
        except (BusUnavailable, ApiError) as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception, *, level: int = logging.WARNING) -> None:
        self.last_error = str(error)
        if self.last_error not in self._said:
            self._said.add(self.last_error)
            LOG.log(level, "bus cannot publish: %s", error)

    def _note_empty(self) -> None:
        if not len(self.outbox):
            self._emptied.set()


def message_size(headers: dict[str, str], data: bytes) -> int:
    """Bytes that a message counts against the server's limit, which includes the headers."""
    return (
        len("NATS/1.0\r\n\r\n")
        + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        + len(data)
    )


def _same(stored: StoredMessage, envelope: Envelope) -> bool:
    try:
        found = from_headers(stored.headers, subject=stored.subject)
    except EventError:
        return False  # somebody else's message, not a CloudEvent of ours
    return (found.id, found.source, found.epoch, found.sequence) == (
        envelope.id,
        envelope.source,
        envelope.epoch,
        envelope.sequence,
    )


def _fail(letter: Letter, error: Exception) -> None:
    if letter.done is not None and not letter.done.done():
        letter.done.set_exception(error)
