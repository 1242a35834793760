"""Leadership on a Lease: at most one body runs, and it has stopped before anybody else may start one.

Compare-and-swap by resourceVersion. Whether another holder is alive is judged as client-go does: by how long *we* have
not seen its record change, never by its clock. Our own time counts from the moment a successful renewal was *sent*;
when no renewal has succeeded within the renew time, the body is cancelled and awaited while nobody else can yet judge
us dead. From that moment the body's client sends no write, also when nobody could cancel it in time: the process was
stopped, its loop was held up, or the body does not end. A write that was sent before is fenced by its preconditions.
"""

import asyncio
import contextlib
import inspect
import math
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Never

from msgspec import Struct

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.fence import fenced
from overspill_kube.outcomes import AlreadyExists, Conflict, Done, Forbidden, Invalid, NotFound, Throttled
from overspill_kube.resources import LEASES
from overspill_kube.rules import Rule
from overspill_objects.coordination import Lease
from overspill_runtime.clock import Clock

RULES: Final[tuple[Rule, ...]] = (LEASES.rule("get", "create", "patch"),)

RENEW_SHARE: Final = 2 / 3  # of the duration: client-go's 15 s, 10 s and 2 s
RETRY_SHARE: Final = 2 / 15
_SHORTEST_REQUEST: Final = 0.05
RELEASE_SECONDS: Final = 3.0  # how long a goodbye may take; without one the lease simply expires


class LeaseTiming(Struct, frozen=True, kw_only=True):
    """Seconds: others may take the lease after `duration`; the body stops after `renew` without success; try every
    `retry`.
    """

    duration: float
    renew: float
    retry: float

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.duration:
            raise ValueError(f"lease times must be 0 < retry < renew < duration, not {self}")


class _Lost(Exception):  # noqa: N818  leadership ends; nobody has erred
    """Leadership is over; the message says why."""


async def run_as_leader(
    client: Client,
    *,
    name: str,
    namespace: str,
    identity: str,
    body: Callable[[Client], Awaitable[None]],
    on_taken: Callable[[], Awaitable[None] | None] | None = None,
    on_lost: Callable[[str], Awaitable[None] | None] | None = None,
    on_trouble: Callable[[str | None], None] | None = None,
    clock: Clock | None = None,
    duration: float = 15.0,
    renew: float | None = None,
    retry: float | None = None,
) -> None:
    """Wait for leadership, run `body`, and begin again when leadership is lost; return when the body returns.

    The body is given the client to write with, which refuses to (KubeUnavailable) once leadership is in doubt.
    Two living processes must not share an `identity`: a holder of our own name is taken for our former self. Whatever
    ends the body (return, error, cancellation), it has ended and the lease is released before this returns or raises;
    `on_lost` hears why. While leadership cannot even be asked for, `on_trouble` hears why after each attempt, and None
    after one that was answered. Raises what the body raises, and KubeError when leases may not be read or written.
    Times are in seconds (`LeaseTiming`); `renew` and `retry` follow from `duration` when not given.
    """
    timing = LeaseTiming(
        duration=duration,
        renew=duration * RENEW_SHARE if renew is None else renew,
        retry=duration * RETRY_SHARE if retry is None else retry,
    )
    seat = _Seat(client, (namespace, name), identity, clock=clock or client.clock, timing=timing)
    while True:
        await seat.acquire(on_trouble or _nobody)
        try:
            if on_taken is not None:
                await _call(on_taken)
            await _lead(seat, lambda: body(fenced(client, seat.doubt)))
        except _Lost as lost:
            reason = str(lost)
        except BaseException as error:
            await _leave(seat, on_lost, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        else:
            await _leave(seat, on_lost, "done")
            return
        if on_lost is not None:
            await _call(on_lost, reason)


def _nobody(_: str | None) -> None:
    """Whoever gives no `on_trouble` does not want to hear of it."""


async def _leave(seat: "_Seat", on_lost: Callable[[str], Awaitable[None] | None] | None, reason: str) -> None:
    await seat.release()
    if on_lost is not None:
        await _call(on_lost, reason)


async def _call(callback: Callable[..., Awaitable[None] | None], *arguments: str) -> None:
    result = callback(*arguments)
    if inspect.isawaitable(result):
        await result


async def _lead(seat: "_Seat", body: Callable[[], Awaitable[None]]) -> None:
    """Run the body while the seat is kept; whichever ends first stops the other. Raises _Lost or the body's error."""
    work: asyncio.Task[None] = asyncio.ensure_future(_awaited(body))
    keeping: asyncio.Task[Never] = asyncio.ensure_future(seat.keep())
    try:
        await asyncio.wait((work, keeping), return_when=asyncio.FIRST_COMPLETED)
        by_itself = work.done()
    finally:
        try:
            await _end(work)
        finally:
            await _end(keeping)  # the seat is kept while the body winds up
    if by_itself or not work.cancelled():
        await work  # also a body that crashed while it was being stopped must be heard
    if not by_itself:
        await keeping


async def _awaited(body: Callable[[], Awaitable[None]]) -> None:
    await body()


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, however it ends and however often we are cancelled meanwhile."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # looked at: whoever is interested reads it again
    if cancelled is not None:
        raise cancelled


class _Seat:
    """Our view of one Lease object, and our right to it."""

    def __init__(
        self, client: Client, key: tuple[str, str], identity: str, *, clock: Clock, timing: LeaseTiming
    ) -> None:
        self._client = client
        self._namespace, self._name = key
        self._identity = identity
        self._clock = clock
        self._timing = timing
        self._version = ""  # of the record that we wrote last
        self._sent_at = -math.inf  # when the last successful write was sent
        self._observed = ""
        self._observed_at = -math.inf

    # --- getting it --------------------------------------------------------------------------------------------------

    async def acquire(self, on_trouble: Callable[[str | None], None]) -> None:
        """Wait until the lease is ours."""
        while True:
            pause = self._timing.retry
            try:
                ours = await self._try_acquire()
                on_trouble(None)
                if ours:
                    return
            except KubeUnavailable as error:
                on_trouble(str(error))
                pause = max(pause, error.retry_after or 0.0)
            await self._clock.sleep(pause)

    async def _try_acquire(self) -> bool:
        lease = await self._client.get(LEASES, self._name, self._namespace, seconds=self._timing.renew)
        if lease is None:
            return await self._create()
        if lease.metadata.resource_version != self._observed:
            self._observed, self._observed_at = lease.metadata.resource_version, self._clock.monotonic()
        if not self._may_take(lease):
            return False
        changes = lease.spec.holder_identity != self._identity
        spec = self._record(acquired=True) | {"leaseTransitions": lease.spec.lease_transitions + changes}
        return await self._write(lease.metadata.resource_version, spec, seconds=self._timing.retry)

    def _may_take(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if holder in {"", self._identity}:
            return True
        return self._clock.monotonic() - self._observed_at > lease.spec.lease_duration_seconds

    async def _create(self) -> bool:
        sent = self._clock.monotonic()
        body = {
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._record(acquired=True) | {"leaseTransitions": 0},
        }
        outcome = await self._client.create(LEASES, body, self._namespace)
        match outcome:
            case Done(lease):
                self._sent_at, self._version = sent, lease.metadata.resource_version
                return True
            case AlreadyExists() | Conflict() | Throttled():
                return False
        raise _refused(f"create lease {self._namespace}/{self._name}", outcome)

    # --- keeping it --------------------------------------------------------------------------------------------------

    async def keep(self) -> Never:
        """Renew until that fails. Raises _Lost."""
        while True:
            await self._clock.sleep(min(self._timing.retry, max(0.0, self._time_left())))
            if self._time_left() <= 0:
                raise self._lost(f"no renewal for {self._timing.renew:g} s")
            try:
                await self._renew()
            except KubeUnavailable as error:
                if error.retry_after:
                    await self._clock.sleep(min(error.retry_after, max(0.0, self._time_left())))

    async def _renew(self) -> None:
        if await self._write(self._version, self._record(acquired=False), seconds=self._patience()):
            return
        lease = await self._client.get(LEASES, self._name, self._namespace, seconds=self._patience())
        if lease is None:
            raise self._lost("the lease was deleted")
        if lease.spec.holder_identity != self._identity:
            raise self._lost(f"taken by {lease.spec.holder_identity or 'nobody'}")
        # A label was edited, or an answer of ours got lost: still ours, but only a write of ours prolongs it.
        await self._write(lease.metadata.resource_version, self._record(acquired=False), seconds=self._patience())

    def doubt(self) -> str | None:
        """Why nothing may be done in the leader's name now; None while the lease is certainly ours."""
        if self._time_left() > 0:
            return None
        return f"the lease {self._namespace}/{self._name} was lost, or not renewed for {self._timing.renew:g} s"

    def _lost(self, why: str) -> _Lost:
        self._sent_at = -math.inf
        return _Lost(why)

    def _time_left(self) -> float:
        return self._sent_at + self._timing.renew - self._clock.monotonic()

    def _patience(self) -> float:
        """Seconds for one request, so that none outlives the time in which the body must be stopped."""
        return max(_SHORTEST_REQUEST, min(self._timing.retry, self._time_left()))

    async def _write(self, version: str, spec: dict[str, Any], *, seconds: float) -> bool:
        """Compare-and-swap. False: somebody was faster, or it is gone. Raises KubeUnavailable and KubeError."""
        sent = self._clock.monotonic()
        outcome = await self._client.patch(
            LEASES,
            self._name,
            {"metadata": {"resourceVersion": version}, "spec": spec},
            kind=PatchKind.MERGE,
            namespace=self._namespace,
            seconds=seconds,
        )
        match outcome:
            case Done(lease):
                self._sent_at, self._version = sent, lease.metadata.resource_version
                return True
            case Conflict() | NotFound():
                return False
            case Throttled(retry_after, message):
                raise KubeUnavailable(message, status=429, retry_after=retry_after)
        raise _refused(f"write lease {self._namespace}/{self._name}", outcome)

    def _record(self, *, acquired: bool) -> dict[str, Any]:
        now = _micro_time(self._clock.now())
        record = {
            "holderIdentity": self._identity,
            # Whole seconds on the wire; rounded up, so that others wait at least as long as we count on.
            "leaseDurationSeconds": max(1, math.ceil(self._timing.duration)),
            "renewTime": now,
        }
        return record | {"acquireTime": now} if acquired else record

    # --- giving it back ----------------------------------------------------------------------------------------------

    async def release(self) -> None:
        """Say that nobody leads, if we still do. Best effort: without it the lease expires by itself."""
        # Absent, because API servers refuse an empty name.
        spec = {"holderIdentity": None, "renewTime": _micro_time(self._clock.now()), "leaseDurationSeconds": 1}
        with contextlib.suppress(KubeUnavailable, KubeError):
            await self._write(self._version, spec, seconds=RELEASE_SECONDS)
        self._sent_at = -math.inf


def _refused(what: str, outcome: object) -> Exception:
    message = outcome.message if isinstance(outcome, Forbidden | Invalid | NotFound) else repr(outcome)
    return KubeError(f"{what}: {message}", status=403 if isinstance(outcome, Forbidden) else 422)


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
