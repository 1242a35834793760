"""A client that sends no write once the right to write is in doubt.

A process that was stopped and goes on, or whose loop was held up, has a body that does not know yet that it lost its
lease: the write it was about to send would be a second leader's. It must not know where the right comes from.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from overspill_kube.client import Client
from overspill_kube.errors import KubeUnavailable
from overspill_kube.settings import KubeSettings
from overspill_kube.transport import Reply, Requests, Stream

READS: Final = frozenset({"GET"})

Doubt = Callable[[], str | None]  # why nothing may be written now; None while it may


def fenced(client: Client, doubt: Doubt) -> Client:
    """The same connection; every write asks first and, in doubt, raises KubeUnavailable with nothing sent."""
    return Client(_Fenced(client.transport, doubt), clock=client.clock, note_limits=client.note_limits)


def doubt_of(client: Client) -> str | None:
    """Why a write by this client would not be sent now; None while it would. For effects elsewhere than here."""
    return client.transport.doubt() if isinstance(client.transport, _Fenced) else None


class _Fenced:
    def __init__(self, transport: Requests, doubt: Doubt) -> None:
        self._transport = transport
        self._doubt = doubt

    def doubt(self) -> str | None:
        inner = self._transport.doubt() if isinstance(self._transport, _Fenced) else None
        return self._doubt() or inner

    @property
    def settings(self) -> KubeSettings:
        return self._transport.settings

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        if method not in READS and (why := self._doubt()) is not None:
            raise KubeUnavailable(f"{method} {path}: not sent: {why}")
        return await self._transport.request(method, path, **options)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[Stream]:
        async with self._transport.stream(path, **options) as stream:
            yield stream
