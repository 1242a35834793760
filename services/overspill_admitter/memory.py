"""What the admitter remembers of the stream: what it said of each workload, and the returns that are under way.

A fold, so that a restarted admitter says nothing twice and knows which flavor was given. Quota itself is not
remembered but read off the cluster. Pure; it must not know how events arrive.
"""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

import msgspec
from msgspec import Struct

from overspill_events.catalog import (
    AdmissionDeferred,
    Event,
    PodEvicted,
    ReturnIntended,
    ReturnSettled,
    WorkloadAdmitted,
    WorkloadFinished,
    WorkloadQueued,
    WorkloadRef,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import DeferReason, Place

RECENT: Final = 10_000  # what we published comes back from the stream long before that many others
READ: Final = (
    WorkloadQueued,
    WorkloadAdmitted,
    AdmissionDeferred,
    WorkloadFinished,
    ReturnIntended,
    PodEvicted,
    ReturnSettled,
)


class Given(Struct, frozen=True, kw_only=True):
    """What a workload was given when it was admitted."""

    cluster_queue: str
    flavors: Mapping[str, str]  # resource → flavor
    requests: Mapping[str, Decimal]


class Known(Struct, frozen=True, kw_only=True):
    """A workload that events have spoken of."""

    ref: WorkloadRef
    queued: Envelope | None = None
    admitted: Envelope | None = None
    deferred: DeferReason | None = None
    cluster_queue: str = ""
    given: Given | None = None
    inherited_from: str = ""  # UID of the returned pod whose quota it has
    is_finished: bool = False


class OpenReturn(Struct, frozen=True, kw_only=True):
    """A return under way, as far as the admitter cares."""

    intent: ReturnIntended
    envelope: Envelope
    is_evicted: bool = False


class Memory:
    """The fold: workloads by UID, open returns by the UID of the pod that leaves. Change it through `record` only."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.returns: dict[str, OpenReturn] = {}
        self._recorded: dict[str, None] = {}  # ids of the youngest events, oldest first

    def record(self, event: Event, envelope: Envelope) -> None:
        """Take an event in; others, and ones recorded before, are ignored."""
        if not isinstance(event, READ) or envelope.id in self._recorded:
            return
        self._recorded[envelope.id] = None
        if len(self._recorded) > RECENT:
            del self._recorded[next(iter(self._recorded))]
        match event:
            case WorkloadQueued():
                self._change(event.workload, queued=envelope, cluster_queue=event.cluster_queue)
            case WorkloadAdmitted():
                self._change(
                    event.workload,
                    admitted=envelope,
                    deferred=None,
                    cluster_queue=event.cluster_queue,
                    given=_given(event),
                    inherited_from=event.inherited_from.uid if event.inherited_from is not None else "",
                )
            case AdmissionDeferred():
                self._change(event.workload, deferred=event.reason)
            case WorkloadFinished():
                self._change(event.workload, is_finished=True)
            case ReturnIntended():
                self.returns[event.pod.uid] = OpenReturn(intent=event, envelope=envelope)
            case PodEvicted():
                self._evicted(event.pod.uid)
            case ReturnSettled():
                self._settled(event)

    def forget(self, present: Collection[str]) -> None:
        """Drop finished workloads that are not in the cluster any more, and have no successor to come."""
        needed = set(present) | self.returns.keys()
        for uid in [uid for uid, known in self.known.items() if known.is_finished and uid not in needed]:
            del self.known[uid]

    def _change(self, ref: WorkloadRef, **changes: object) -> None:
        known = self.known.get(ref.uid) or Known(ref=ref)
        self.known[ref.uid] = msgspec.structs.replace(known, **changes)

    def _evicted(self, uid: str) -> None:
        if (found := self.returns.get(uid)) is not None:
            self.returns[uid] = msgspec.structs.replace(found, is_evicted=True)

    def _settled(self, event: ReturnSettled) -> None:
        self.returns.pop(event.pod.uid, None)
        if event.place is Place.NOT_EVICTED:
            return
        # The successor may have been seen by the evictor only: it has the quota all the same.
        if event.successor is not None and (heir := self.known.get(event.successor.uid)) is not None:
            self.known[event.successor.uid] = msgspec.structs.replace(heir, inherited_from=event.pod.uid)


def _given(event: WorkloadAdmitted) -> Given:
    return Given(
        cluster_queue=event.cluster_queue,
        flavors={use.resource: use.flavor for use in event.quota},
        requests={use.resource: Decimal(str(use.asked)) for use in event.quota},
    )
