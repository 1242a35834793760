"""Messages of a pull consumer as they come.

nats-py's `fetch` returns when the batch is full or the time is up, sits out its timeout when the server restarts, takes
a deleted consumer for an idle one, and leaves unread messages behind that stall a drain. Here one request stays open,
whatever arrives is returned at once, and the end of connection or consumer ends the wait. This module must not know
what the messages mean.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from nats.aio.msg import Msg

from overspill_bus.connection import Connection
from overspill_bus.errors import BusUnavailable
from overspill_bus.recorded import Delivery, delivery_of

_NANOSECONDS: Final = 1_000_000_000
_ACK_PREFIX: Final = "$JS.ACK."
_REQUEST_OVER: Final = frozenset({"404", "408"})  # no messages; request expired
_HEARTBEAT: Final = "100"
_HEARTBEATS_PER_WAIT: Final = 3
_SILENT_HEARTBEATS: Final = 3  # missed in a row: nobody is there any more


class ConsumerLost(Exception):  # noqa: N818
    """The consumer, its server or the connection is gone: make the consumer anew and go on from where you were."""


class Pull:
    """One open request at a time; at most `batch` messages are on their way."""

    def __init__(self, connection: Connection, *, stream: str, consumer: str, batch: int, wait: float) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._batch = batch
        self._wait = wait
        self._heartbeat = wait / _HEARTBEATS_PER_WAIT
        self._inbox = ""
        self._arrived: deque[Delivery] = deque()
        self._something = asyncio.Event()
        self._asked = 0  # messages the open request may still bring
        self._requests = 0
        self._lost: str | None = None

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator["Pull"]:
        """Listen as long as the context lasts. Raises BusUnavailable when that cannot begin."""
        with self._connection.on_lost(self._on_connection):
            async with self._connection.subscribed(self._receive) as inbox:
                self._inbox = inbox
                yield self

    async def next(self, limit: int) -> list[Delivery]:
        """What has arrived, at most `limit`; an empty list when nothing came during `wait` seconds.

        Raises ConsumerLost once everything that arrived has been returned.
        """
        deadline = asyncio.get_running_loop().time() + self._wait
        while not self._arrived:
            if self._lost is not None:
                raise ConsumerLost(self._lost)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return []
            if self._asked <= 0:
                await self._ask()
            await self._hear(min(left, self._heartbeat * _SILENT_HEARTBEATS), final=left)
        return [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    async def _hear(self, seconds: float, *, final: float) -> None:
        self._something.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._something.wait()
        except TimeoutError:
            if seconds < final:
                self._lost = f"silent for {seconds:.1f} s"

    async def _ask(self) -> None:
        self._requests += 1
        self._asked = self._batch
        request = {
            "batch": self._batch,
            "expires": round(self._wait * _NANOSECONDS),
            "idle_heartbeat": round(self._heartbeat * _NANOSECONDS),
        }
        try:
            await self._connection.send(
                self._subject, msgspec.json.encode(request), reply=f"{self._inbox}.{self._requests}"
            )
        except BusUnavailable as error:
            raise ConsumerLost(str(error)) from None

    async def _receive(self, message: Msg) -> None:
        if message.reply.startswith(_ACK_PREFIX):
            self._arrived.append(delivery_of(message))
            self._asked -= 1
        else:
            self._note_status(message)
        self._something.set()

    def _note_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get("Status", "")
        current = message.subject.rsplit(".", 1)[-1] == str(self._requests)
        if status == _HEARTBEAT or not current:
            return
        if status in _REQUEST_OVER:
            self._asked = 0
        else:  # 409: consumer deleted, leader changed, server shuts down …; 503: nobody answers for the consumer
            self._lost = f"{status} {headers.get('Description', '')}".strip()

    def _on_connection(self) -> None:
        self._lost = self._lost or "connection lost"
        self._something.set()
