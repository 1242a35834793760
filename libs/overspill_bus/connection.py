"""One connection to NATS that never gives up, and says at any time how it is.

It connects in the background, so that a process starts and works with the bus away. Messages are sent only while
connected: nats-py would otherwise keep them and send them later, when the caller has long been told of a failure.
This module must not know JetStream or events.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from overspill_bus.errors import BusClosed, BusUnavailable, NoResponders
from overspill_bus.settings import BusSettings
from overspill_runtime.settings import without_passwords

LOG: Final = logging.getLogger("overspill_bus")
_RECONNECT_WAIT: Final = 0.25  # seconds
_CLOSE_WAIT: Final = 1.0
_CANCEL_AGAIN: Final = 0.1
_NO_RESPONDERS: Final = "503"


class Connection:
    """Holds the client, its state and what interrupts whom."""

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._client = Client()
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._closing = False
        self._scopes: set[asyncio.Timeout] = set()
        self._inbox = ""
        self._tokens = itertools.count()
        self._awaited: dict[str, asyncio.Future[Msg]] = {}  # answers, by the token that ends their subject
        self._lost_callbacks: set[Callable[[], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._denied: dict[str, None] = {}
        self.last_error: str | None = None
        self.reconnects = 0

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""
        return self._connected.is_set() and self._client.is_connected

    @property
    def denied(self) -> tuple[str, ...]:
        """What the server has refused on this connection for lack of permission, in its own words."""
        return tuple(self._denied)

    @property
    def max_payload(self) -> int:
        """Bytes of payload and headers that one message may have."""
        return int(self._client.max_payload)

    def start(self) -> None:
        """Begin to connect. The task ends when connected; nats-py reconnects by itself afterwards."""
        self._task = asyncio.create_task(self._connect(), name="bus connect")

    async def wait_connected(self) -> None:
        """Return once connected. Raises BusClosed if the connection has ended for good."""
        while not self.connected:
            self._check_open()
            self._connected.clear()
            await self._first_of(self._connected.wait(), self._closed.wait())
        self._check_open()

    async def wait_closed(self) -> None:
        """Return when the connection has ended for good, wanted or not."""
        await self._closed.wait()

    async def request(
        self, subject: str, payload: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Send and wait for one answer.

        Raises NoResponders when nobody serves the subject, BusUnavailable otherwise; its `maybe_stored` tells whether
        the message may have arrived (an answer was lost or late).
        """
        self._check_open()
        if not self.connected:
            raise BusUnavailable(f"not connected to {without_passwords(self._settings.nats_url)}: {self.last_error}")
        token = str(next(self._tokens))
        self._awaited[token] = asyncio.get_running_loop().create_future()
        try:
            async with self._until_lost(timeout):
                # Not nats-py's own request: its wait_for can swallow a cancellation (Python 3.11). It also changes the
                # headers it is given.
                reply = f"{self._inbox}.{token}"
                await self._client.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None)
                answer = await self._awaited[token]
        except TimeoutError:
            why = "connection lost" if not self.connected else self._denial_of(subject) or f"no answer in {timeout} s"
            raise BusUnavailable(f"{subject}: {why}", maybe_stored=True) from None
        except nats.errors.OutboundBufferLimitError:
            raise BusUnavailable(f"{subject}: not connected") from None
        except (nats.errors.ConnectionClosedError, OSError) as error:
            raise BusUnavailable(f"{subject}: {error}", maybe_stored=True) from None
        finally:
            del self._awaited[token]
        if not answer.data and (answer.headers or {}).get("Status") == _NO_RESPONDERS:
            raise NoResponders(f"nobody serves {subject}")
        return answer

    async def send(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        """Send without an answer. Raises BusUnavailable when not connected."""
        self._check_open()
        try:
            await self._client.publish(subject, payload, reply=reply)
        except nats.errors.Error as error:
            raise BusUnavailable(f"{subject}: {error}") from None

    @contextlib.asynccontextmanager
    async def subscribed(self, receive: Callable[[Msg], Awaitable[None]]) -> AsyncIterator[str]:
        """An inbox whose messages are given to `receive` one by one; yields its subject, to extend by a token.

        It is unsubscribed on leaving: a drain would wait for whatever is unread.
        """
        await self.wait_connected()
        inbox = self._client.new_inbox()
        try:
            subscription: Subscription = await self._client.subscribe(f"{inbox}.*", cb=receive)
        except nats.errors.Error as error:
            raise BusUnavailable(f"cannot subscribe: {error}") from None
        try:
            yield inbox
        finally:
            # Closed or reconnecting: the subscription is gone or goes with the connection.
            with contextlib.suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    @contextlib.contextmanager
    def on_lost(self, callback: Callable[[], None]) -> Any:
        """Call `callback` whenever the connection is lost or comes back, as long as the context lasts."""
        self._lost_callbacks.add(callback)
        try:
            yield
        finally:
            self._lost_callbacks.discard(callback)

    def fail(self, why: str) -> None:
        """Give up for good: everybody who waits gets BusClosed."""
        self.last_error = f"closed for good: {why}"
        LOG.error("bus %s", self.last_error)
        self._connected.clear()
        self._closed.set()
        self._interrupt()

    async def close(self) -> None:
        """End the connection, in about a second at most even when the server does not answer."""
        self._closing = True
        while self._task is not None and not self._task.done():
            # nats-py's wait_for (Python 3.11) swallows a cancellation that comes as an attempt fails, and it tries on.
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CANCEL_AGAIN)
        if self._client.options:  # else it has never begun to connect, and there is nothing to end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WAIT):
                    await self._client.close()
        self._connected.clear()
        self._closed.set()

    async def _connect(self) -> None:
        try:
            await self._connect_client()
        except Exception as error:  # noqa: BLE001 (a URL that is none: it will never connect)
            self.fail(
                f"cannot connect to {without_passwords(self._settings.nats_url)}: {type(error).__name__}: {error}"
            )
        else:
            self._up()

    async def _on_answer(self, message: Msg) -> None:
        awaited = self._awaited.get(message.subject.rsplit(".", 1)[-1])
        if awaited is not None and not awaited.done():
            awaited.set_result(message)

    async def _connect_client(self) -> None:
        settings = self._settings
        await self._client.connect(
            servers=[url.strip() for url in settings.nats_url.split(",")],
            name=settings.name or settings.service,
            allow_reconnect=True,
            max_reconnect_attempts=-1,  # the default ends the client for good after two minutes
            reconnect_time_wait=_RECONNECT_WAIT,
            connect_timeout=5,
            ping_interval=10,
            max_outstanding_pings=2,
            drain_timeout=2,
            pending_size=-1,  # nothing is kept for later by nats-py; the outbox does that
            inbox_prefix=f"_INBOX_{settings.service}",
            user_credentials=settings.credentials_file,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def _on_error(self, error: Exception) -> None:
        said, self.last_error = self.last_error, _text(error)
        if "permissions violation" in self.last_error.lower():
            self._denied[str(error)] = None
        if self.last_error != said:  # a server that is away is asked several times a second: once is enough
            LOG.warning("bus error: %s", self.last_error)
        if not self._client.is_connected and (transport := self._client._transport) is not None:  # noqa: SLF001
            # nats-py forgets the socket of a handshake that failed (wrong credentials: four a second).
            transport.close()

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        if not self._closing:
            LOG.warning("bus disconnected")
        self._interrupt()

    async def _on_reconnected(self) -> None:
        # Runs inside nats-py's reconnect task, which the next disconnect cancels: only flags are set here.
        self.reconnects += 1
        self._denied.clear()
        self._up()

    async def _on_closed(self) -> None:
        if not self._closing:
            self.fail(str(self._client.last_error or self.last_error))

    def _up(self) -> None:
        LOG.info("bus connected")
        self._connected.set()
        self._interrupt()

    def _interrupt(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in tuple(self._scopes):
            if not scope.expired():
                scope.reschedule(now)
        for callback in tuple(self._lost_callbacks):
            callback()

    def _denial_of(self, subject: str) -> str | None:
        return next((text for text in self._denied if f'"{subject}"' in text), None)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise BusClosed(self.last_error or "closed")

    @contextlib.asynccontextmanager
    async def _until_lost(self, timeout: float) -> AsyncIterator[None]:
        """Like asyncio.timeout, and also ended by a lost connection: an answer will not come any more."""
        async with asyncio.timeout(timeout) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    @staticmethod
    async def _first_of(*waits: Any) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
