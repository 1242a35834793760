"""What the evictor remembers: returns under way, failed returns per owner, refusals, reasons told, gates closed.

A fold over the stream's own events, so that a restarted evictor knows what its predecessor knew. Recording an event
twice changes nothing. Pure; it must not know how events arrive.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from overspill_events.catalog import (
    Event,
    EvictionRefused,
    GateClosed,
    GateOpened,
    PodEvicted,
    PodHeld,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import HoldReason, Place

READ: Final = (ReturnIntended, PodEvicted, EvictionRefused, ReturnSettled, PodHeld, GateClosed, GateOpened)
RECENT: Final = 10_000  # what we published comes back from the stream long before that many others
FAILED_PLACES: Final = frozenset({Place.VIRTUAL, Place.PENDING, Place.EXPIRED})


class OpenReturn(Struct, frozen=True, kw_only=True):
    """A return whose end is not known yet; its room at home is booked until it is settled."""

    intent: ReturnIntended
    envelope: Envelope  # of the intent: the cause of everything that follows
    evicted_at: datetime | None = None
    siblings: frozenset[str] | None = None  # the owner's pods at that time; None: told by a predecessor

    @property
    def uid(self) -> str:
        """Of the pod that leaves."""
        return self.intent.pod.uid


class Failures(Struct, frozen=True, kw_only=True):
    """Returns of one owner that did not end at home, in a row."""

    count: int
    last: datetime


class Refusal(Struct, frozen=True, kw_only=True):
    """The last refused eviction of a pod and when it was last tried."""

    event: EvictionRefused
    at: datetime


class Memory:
    """The fold. Dictionaries by pod UID, owner UID or node name; read them, change them through `record` only."""

    def __init__(self) -> None:
        self.open: dict[str, OpenReturn] = {}
        self.failures: dict[str, Failures] = {}
        self.refusals: dict[str, Refusal] = {}
        self.told: dict[str, HoldReason] = {}
        self.gate_closed_at: dict[str, datetime] = {}
        self.gate_events: dict[str, Envelope] = {}  # virtual node → its gate's last opening or closing: a cause
        self.heirs: dict[str, str] = {}  # successor UID → UID of the pod it replaced
        self._owners: dict[str, str] = {}  # pod UID → owner UID, of every intent
        self._siblings: dict[str, frozenset[str]] = {}  # pod UID → its siblings, until its intent is recorded
        self._recorded: dict[str, None] = {}  # ids of the youngest events, oldest first

    def expect(self, uid: str, siblings: Collection[str]) -> None:
        """Before the intent to return this pod is published: the owner's pods that are there now, so no successors.

        Said beforehand, because the stream may hand the intent back before its publication has returned.
        """
        self._siblings[uid] = frozenset(siblings)

    def record(self, event: Event, envelope: Envelope) -> None:
        """Take an event in; events of other types and ones recorded before are ignored."""
        if not isinstance(event, READ) or envelope.id in self._recorded:
            return
        self._recorded[envelope.id] = None
        if len(self._recorded) > RECENT:
            del self._recorded[next(iter(self._recorded))]
        match event:
            case ReturnIntended():
                known = self._siblings.pop(event.pod.uid, None)
                self.open[event.pod.uid] = OpenReturn(intent=event, envelope=envelope, siblings=known)
                self._owners[event.pod.uid] = event.owner.uid
                self.told.pop(event.pod.uid, None)
            case PodEvicted():
                self._evicted(event, envelope.time)
            case EvictionRefused():
                self.refusals[event.pod.uid] = Refusal(event=event, at=envelope.time)
            case ReturnSettled():
                self._settled(event, envelope.time)
            case PodHeld():
                self.told[event.pod.uid] = event.reason
            case GateClosed():
                self.gate_closed_at[event.node] = envelope.time
                self.gate_events[event.node] = envelope
            case GateOpened():
                self.gate_closed_at.pop(event.node, None)
                self.gate_events[event.node] = envelope

    def refused_again(self, uid: str, at: datetime) -> None:
        """The same refusal once more: not worth an event, but the next try waits anew."""
        if uid in self.refusals:
            self.refusals[uid] = msgspec.structs.replace(self.refusals[uid], at=at)

    def open_of(self, owner_uid: str) -> tuple[OpenReturn, ...]:
        """The owner's returns under way."""
        return tuple(one for one in self.open.values() if one.intent.owner.uid == owner_uid)

    def forget(self, *, pods: Collection[str], owners: Collection[str]) -> None:
        """Drop what is about pods and owners that are gone and not part of an open return."""
        pods = set(pods) | self.open.keys()
        owners = set(owners) | {one.intent.owner.uid for one in self.open.values()}
        _keep(self.refusals, lambda uid: uid in pods)
        _keep(self.told, lambda uid: uid in pods)
        _keep(self._siblings, lambda uid: uid in pods)
        _keep(self.heirs, lambda uid: uid in pods)
        _keep(self._owners, lambda uid: uid in pods)
        _keep(self.failures, lambda uid: uid in owners)

    def _evicted(self, event: PodEvicted, at: datetime) -> None:
        if (one := self.open.get(event.pod.uid)) and one.evicted_at is None:
            self.open[event.pod.uid] = msgspec.structs.replace(one, evicted_at=at)
        self.refusals.pop(event.pod.uid, None)

    def _settled(self, event: ReturnSettled, at: datetime) -> None:
        self.open.pop(event.pod.uid, None)
        owner = self._owners.get(event.pod.uid)
        if event.successor is not None:
            self.heirs[event.successor.uid] = event.pod.uid
        if owner is None:
            return
        if event.place in FAILED_PLACES:
            before = self.failures.get(owner)
            self.failures[owner] = Failures(count=(before.count if before else 0) + 1, last=at)
        elif event.place is Place.HOME:
            self.failures.pop(owner, None)


def backoff_seconds(failures: Failures, *, first: float, longest: float) -> float:
    """How long an owner rests after its last failed return: doubling from `first` up to `longest`."""
    # 2^30 is past any sensible limit; without a bound the power would not fit a float.
    return float(min(longest, first * 2 ** min(failures.count - 1, 30)))


def _keep(entries: dict[str, object] | Mapping[str, object], wanted: Callable[[str], bool]) -> None:
    gone: Iterable[str] = [key for key in entries if not wanted(key)]
    for key in gone:
        del entries[key]  # type: ignore[union-attr]
