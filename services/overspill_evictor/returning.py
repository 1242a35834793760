"""Carries out one planned return: last look, dry run, last judgement, intent on record, eviction, result on record.

The order is the promise: no eviction without an acknowledged intent, no intent without an end. An eviction whose
answer got lost leaves the intent open; `settle_dangling` of the service finds out what became of it.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from enum import Enum
from typing import Any

from overspill_bus.bus import Bus
from overspill_events.catalog import Event, EvictionRefused, PodEvicted, ReturnIntended
from overspill_events.envelope import Envelope, derived_id
from overspill_events.reasons import HoldReason, RefusalReason
from overspill_evictor.live import look, objection
from overspill_evictor.memory import Memory, OpenReturn
from overspill_evictor.metrics import EvictorMetrics
from overspill_evictor.policy import Hold, Return
from overspill_evictor.settings import Settings
from overspill_evictor.settling import not_evicted, pod_ref
from overspill_kube.client import Client
from overspill_kube.effects import Evicted, EvictionOutcome, Gone, Refused, evict, record_event
from overspill_kube.outcomes import Blocked, Replaced, SeveralPdbs, Throttled
from overspill_kube.resources import PDBS
from overspill_objects.core import Pod
from overspill_objects.meta import ObjectReference
from overspill_runtime.clock import Clock
from overspill_runtime.settings import Mode

COMPONENT = "overspill-evictor"


class Outcome(Enum):
    """What became of a planned return."""

    EVICTED = "evicted"
    NOT_SENT = "not-sent"  # held back or refused: its slot is free for another
    THROTTLED = "throttled"  # the whole loop must slow down


class Journal:
    """Puts the evictor's events on record and into its memory at once."""

    def __init__(self, bus: Bus, memory: Memory) -> None:
        self.bus = bus
        self.memory = memory

    def tell(self, event: Event, *, story: str, cause: Envelope | None = None) -> None:
        """A result or a reason: kept in the buffer while the bus is away. `story` is the pod's UID."""
        event_id = derived_id(cause.id, event.spec.type) if cause is not None and event.spec.name in ONCE else None
        envelope = self.bus.emit(event, caused_by=cause, correlation_id=story, event_id=event_id)
        self.memory.record(event, envelope)

    async def intend(self, event: ReturnIntended, *, cause: Envelope | None, siblings: Collection[str]) -> None:
        """An intent: on record before this returns. Raises BusUnavailable; then nothing may be done."""
        self.memory.expect(event.pod.uid, siblings)
        published = await self.bus.publish(event, caused_by=cause, correlation_id=event.pod.uid, must_ack=True)
        self.memory.record(event, published.envelope)


# Each intent has at most one of these, also when a restarted evictor tells it again.
ONCE = frozenset({"PodEvicted", "ReturnSettled"})


class Returner:
    """Carries out returns.

    `judge` says what a plan made this moment decides about a pod; `siblings` gives the UIDs of an owner's pods that
    are known now.
    """

    def __init__(
        self,
        *,
        client: Client,
        journal: Journal,
        settings: Settings,
        clock: Clock,
        metrics: EvictorMetrics,
        log: Any,
        judge: Callable[[Pod], Return | Hold],
        siblings: Callable[[str], frozenset[str]],
    ) -> None:
        self._client, self._journal, self._settings = client, journal, settings
        self._clock, self._metrics, self._log = clock, metrics, log
        self._judge, self._siblings = judge, siblings
        self._booking = asyncio.Lock()
        self.under_way: set[str] = set()  # UIDs of pods whose return is being carried out here
        self.retry_after: float = 0.0  # seconds, of the last throttling

    async def carry_out(self, planned: Return, *, together: frozenset[str]) -> Outcome:
        """Return one pod. `together` are the UIDs of all pods returned at the same time. Raises KubeUnavailable and
        BusUnavailable: the intent may be open then.
        """
        uid = planned.pod.metadata.uid
        self.under_way.add(uid)
        try:
            return await self._carry_out(planned, together - {uid})
        finally:
            self.under_way.discard(uid)

    async def _carry_out(self, planned: Return, others: frozenset[str]) -> Outcome:
        if self._settings.mode is Mode.OBSERVE:
            detail = f"would evict {planned.pod.metadata.name} for {planned.home_node}"
            return self._refuse(planned, RefusalReason.OBSERVING, message=detail)
        # The plan may be many slow requests old, and it is the node that has room now that must be looked at.
        planned_now = self._judge(planned.pod)
        if isinstance(planned_now, Hold):
            return self._hold_back(planned_now)
        planned = planned_now
        seen = await look(self._client, planned)
        leaving = others | {one.uid for one in self._journal.memory.open_of(planned.owner.uid)}
        hold = objection(planned, seen, leaving=leaving, default_floor=self._settings.default_floor)
        if hold is not None:
            return self._hold_back(hold)
        trial = await evict(self._client, pod_ref(planned.pod), dry_run=True)
        if not isinstance(trial, Evicted):
            return await self._refused(planned, trial)
        opened = await self._book(planned)
        if isinstance(opened, Hold):
            return self._hold_back(opened)
        outcome = await evict(self._client, pod_ref(planned.pod))
        if isinstance(outcome, Evicted):
            await self._evicted(planned, opened)
            return Outcome.EVICTED
        result = await self._refused(planned, outcome)
        settled = not_evicted(opened, detail="the API server refused the eviction after a trial that passed")
        self._journal.tell(settled, story=opened.uid, cause=opened.envelope)
        self._metrics.settled.labels(settled.place.value).inc()
        return result

    def _hold_back(self, hold: Hold) -> Outcome:
        """Only logged: the cycle plans anew and puts on record why the pod stays."""
        self._log.info("return-held-back", pod=hold.pod.metadata.name, reason=hold.reason, detail=hold.detail)
        return Outcome.NOT_SENT

    async def _book(self, planned: Return) -> OpenReturn | Hold:
        """Judge once more and intend. One at a time: room that is found free is booked before the next one looks."""
        async with self._booking:
            last = self._judge(planned.pod)
            if isinstance(last, Hold):
                return last
            if last.home_node != planned.home_node:
                detail = f"the room is on {last.home_node} now, and {planned.home_node} was looked at"
                return Hold(pod=last.pod, reason=HoldReason.NO_HOME_FIT, detail=detail)
            return await self._intend(last)

    async def _intend(self, planned: Return) -> OpenReturn:
        intent = ReturnIntended(
            pod=pod_ref(planned.pod),
            owner=planned.owner,
            node=planned.pod.spec.node_name,
            home_node=planned.home_node,
            gpus=planned.gpus,
            expires_at=self._clock.now() + timedelta(seconds=self._settings.return_timeout),
            priority=planned.pod.spec.priority or 0,
            age_seconds=planned.age_seconds,
            ready_replicas=planned.ready_replicas,
            floor=planned.floor,
            home_free_gpus=planned.home_free_gpus,
            was_running=planned.is_running,
        )
        memory = self._journal.memory
        siblings = self._siblings(planned.owner.uid) | {intent.pod.uid}
        await self._journal.intend(intent, cause=memory.gate_events.get(intent.node), siblings=siblings)
        return memory.open[intent.pod.uid]

    async def _evicted(self, planned: Return, opened: OpenReturn) -> None:
        intent = opened.intent
        event = PodEvicted(pod=intent.pod, node=intent.node, home_node=intent.home_node, gpus=intent.gpus)
        self._journal.tell(event, story=opened.uid, cause=opened.envelope)
        self._metrics.evicted.inc()
        self._log.info("evicted", pod=intent.pod.name, namespace=intent.pod.namespace, home_node=intent.home_node)
        note = f"There is room at home again: evicted so that its successor can run on {intent.home_node}"
        await self._note(planned, reason="ReturningHome", message=note)

    async def _refused(self, planned: Return, outcome: EvictionOutcome) -> Outcome:
        match outcome:
            case Throttled(retry_after=seconds, message=message):
                self.retry_after = seconds
                self._refuse(planned, RefusalReason.THROTTLED, message=message, retry_after_seconds=seconds)
                return Outcome.THROTTLED
            case Blocked():
                return await self._blocked(planned, outcome)
            case SeveralPdbs(message=message):
                return self._refuse(planned, RefusalReason.SEVERAL_PDBS, message=message)
            case Replaced(message=message):
                return self._refuse(planned, RefusalReason.REPLACED, message=message)
            case Gone():
                return self._refuse(planned, RefusalReason.GONE)
            case Refused(message=message, forbidden=forbidden):
                reason = RefusalReason.FORBIDDEN if forbidden else RefusalReason.FAILED
                return self._refuse(planned, reason, message=message)
            case Evicted():
                raise ValueError("an accepted eviction is no refusal")

    async def _blocked(self, planned: Return, blocked: Blocked) -> Outcome:
        """The budget's own numbers go into the event: they answer why the eviction was refused."""
        namespace = planned.pod.metadata.namespace
        status = None
        if blocked.pdb:
            budget = await self._client.get(PDBS, blocked.pdb, namespace)
            status = budget.status if budget is not None else None
        outcome = self._refuse(
            planned,
            RefusalReason.PDB,
            message=blocked.message,
            pdb=blocked.pdb,
            disruptions_allowed=status.disruptions_allowed if status else None,
            current_healthy=status.current_healthy if status else None,
            desired_healthy=status.desired_healthy if status else None,
            retry_after_seconds=blocked.retry_after,
        )
        await self._note(planned, reason="ReturnBlocked", message=blocked.message, type_="Warning")
        return outcome

    def _refuse(
        self, planned: Return, reason: RefusalReason, *, message: str = "", pdb: str = "", **numbers: Any
    ) -> Outcome:
        """Told when it changes; the same refusal again only moves the time of the next try."""
        uid = planned.pod.metadata.uid
        memory = self._journal.memory
        before = memory.refusals.get(uid)
        self._metrics.refused.labels(reason.value).inc()
        if before is not None and (before.event.reason, before.event.pdb) == (reason, pdb):
            memory.refused_again(uid, self._clock.now())
            return Outcome.NOT_SENT
        node = planned.pod.spec.node_name
        event = EvictionRefused(
            pod=pod_ref(planned.pod),
            node=node,
            reason=reason,
            message=message,
            pdb=pdb,
            **numbers,
        )
        opened = memory.open.get(uid)
        cause = opened.envelope if opened is not None else memory.gate_events.get(node)
        self._journal.tell(event, story=uid, cause=cause)
        self._log.info("eviction-refused", pod=planned.pod.metadata.name, reason=reason.value, message=message)
        return Outcome.NOT_SENT

    async def _note(self, planned: Return, *, reason: str, message: str, type_: Any = "Normal") -> None:
        meta = planned.pod.metadata
        about = ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
        await record_event(self._client, about, reason=reason, message=message, component=COMPONENT, type=type_)
