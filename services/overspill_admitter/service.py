"""The admitter's shell: watches queues and workloads, decides when something changed, releases and tells.

It holds still while bus or cluster cannot be heard: nothing new is admitted, what runs is untouched. While Kueue's
own controller works, it observes.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Final

from overspill_admitter.cluster import Cluster
from overspill_admitter.expectations import Expectations
from overspill_admitter.kueue import KueueWatch
from overspill_admitter.memory import READ, Known, Memory
from overspill_admitter.metrics import AdmitterMetrics
from overspill_admitter.notices import notice
from overspill_admitter.policy import Admit, Defer, Plan, decide
from overspill_admitter.releasing import COMPONENT, Releaser
from overspill_admitter.settings import Settings
from overspill_admitter.workload import State, Workload
from overspill_bus.recorded import Recorded
from overspill_events.catalog import AdmissionDeferred, Event, WorkloadFinished, WorkloadQueued
from overspill_events.envelope import Envelope, derived_id
from overspill_events.names import QUEUE_LABEL
from overspill_events.reasons import DeferReason
from overspill_events.subjects import subject_filter
from overspill_kube.effects import record_event
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_objects.meta import ObjectReference
from overspill_runtime.settings import Mode
from overspill_service import Context, metrics_of
from overspill_service.pausing import Control

SERVICE: Final = "admitter"
LEASE: Final = "overspill-admitter"
KUEUE_SECONDS: Final = 10.0  # between two looks for Kueue's controller
PREDECESSOR_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 10.0  # the longest time without a decision: reservations expire without a change in the cluster


async def run(context: Context[Settings]) -> None:
    """The body of the service, while it leads."""
    await Admitter(context).run()


class Admitter:
    """One leadership: what was said before is read back from the stream, what is admitted from the cluster."""

    def __init__(self, context: Context[Settings]) -> None:
        self._context = context
        self._settings = context.settings
        self._clock = context.clock
        self._log = context.log
        self._metrics = metrics_of(context.registry, AdmitterMetrics)
        self._memory = Memory()
        self._expectations = Expectations()
        self._cluster = Cluster(context.kube, context.clock, resource=context.settings.resource)
        self._control = Control(context.kube, context.clock, namespace=context.settings.namespace, service=SERVICE)
        self._caught_up = asyncio.Event()
        self._stands_back: str | None = "not looked for Kueue's controller yet"
        self._noticed: set[tuple[str, int]] = set()  # UID and generation of queue objects that were looked through
        self._retry_at: dict[str, float] = {}  # workload UID → monotonic time before which it is not released again
        self._releaser = Releaser(
            client=context.kube,
            bus=context.bus,
            memory=self._memory,
            expectations=self._expectations,
            clock=context.clock,
            metrics=self._metrics,
            log=context.log,
        )

    async def run(self) -> None:
        """Until cancelled."""
        context = self._context
        context.health.check("cluster", self._cluster.why_not_synced)
        context.health.check("control", self._control.problem)
        await self._cluster.find_queues()
        since = self._clock.now() - timedelta(seconds=self._settings.memory)
        filters = [subject_filter(event_type, cluster=self._settings.cluster) for event_type in READ]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cluster.run())
            group.create_task(self._control.run())
            group.create_task(context.bus.follow(filters, self._hear, since=since, on_caught_up=self._caught_up.set))
            group.create_task(self._watch_kueue())
            await self._cluster.wait_synced()
            await self._caught_up.wait()
            # A request that a predecessor sent last may still be on its way: its effect must be seen before we count.
            await self._clock.sleep(PREDECESSOR_SECONDS)
            self._log.info("ready-to-decide", known=len(self._memory.known))
            group.create_task(self._decide_for_ever())

    def _hear(self, recorded: Recorded) -> None:
        if recorded.event is not None:
            self._memory.record(recorded.event, recorded.envelope)

    async def _watch_kueue(self) -> None:
        watch = KueueWatch(self._context.kube)
        while True:
            try:
                alive = await watch.is_alive()
            except (KubeUnavailable, KubeError) as error:
                self._stands_back = f"cannot tell whether Kueue's controller runs: {error}"
            else:
                reason = "Kueue's controller runs in this cluster" if alive else None
                if reason != self._stands_back:
                    self._log.info("standing-back" if alive else "admitting", reason=reason)
                self._stands_back = reason
            self._metrics.standing_back.set(self._stands_back is not None)
            await self._clock.sleep(KUEUE_SECONDS)

    async def _decide_for_ever(self) -> None:
        while True:
            seen = self._revision()
            known = self._cluster.why_not_synced() is None and self._control.problem() is None
            if self._context.bus.connected and known:
                try:
                    await self._decide()
                except (KubeUnavailable, KubeError) as error:
                    self._log.warning("cannot-decide", error=str(error))
            await self._clock.sleep(self._settings.interval)
            await self._until_changed(seen)

    def _revision(self) -> int:
        return self._cluster.revision + self._control.revision + len(self._memory.returns)

    async def _until_changed(self, seen: int) -> None:
        """Changes within one interval are looked at together."""
        waited = 0.0
        while self._revision() == seen and waited < IDLE_SECONDS and not self._retry_is_due():
            await self._clock.sleep(self._settings.interval)
            waited += self._settings.interval

    def _retry_is_due(self) -> bool:
        now = self._clock.monotonic()
        return any(at <= now for at in self._retry_at.values())

    async def _decide(self) -> None:
        workloads = self._cluster.workloads()
        self._expectations.observe(workloads, self._cluster.heard_at())
        await self._say_what_is_new(workloads)
        await self._notice_queues()
        with self._metrics.cycle_seconds.time():
            snapshot = self._cluster.snapshot(workloads, self._memory, self._expectations.uids)
            plan = decide(snapshot, self._settings.rules)
        self._report(plan)
        hindrance = self._hindrance()
        if hindrance is None:
            await self._release(plan.admits)
        for defer in (*plan.defers, *(_not_released(one, *hindrance) for one in plan.admits if hindrance is not None)):
            self._defer(defer)
        self._say_what_ended(workloads)

    def _hindrance(self) -> tuple[DeferReason, str] | None:
        """Why nothing is released whatever the plan says."""
        if (paused := self._control.why_paused()) is not None:
            return DeferReason.PAUSED, paused
        why = "observing" if self._settings.mode is Mode.OBSERVE else self._stands_back
        return None if why is None else (DeferReason.UNKNOWN, why)

    async def _release(self, admits: tuple[Admit, ...]) -> None:
        now = self._clock.monotonic()
        pool = asyncio.Semaphore(self._settings.parallel)

        async def one(admit: Admit) -> None:
            uid = admit.workload.ref.uid
            async with pool:
                if self._control.problem() is not None or self._control.pause() is not None:
                    return  # since the plan was made; the next decision says so
                if await self._releaser.release(admit):
                    self._retry_at.pop(uid, None)
                else:
                    self._retry_at[uid] = self._clock.monotonic() + self._settings.retry

        due = [admit for admit in admits if self._retry_at.get(admit.workload.ref.uid, now) <= now]
        await asyncio.gather(*(one(admit) for admit in due))

    # --- the record -----------------------------------------------------------------------------------------------

    async def _say_what_is_new(self, workloads: tuple[Workload, ...]) -> None:
        for one in workloads:
            known = self._memory.known.get(one.ref.uid)
            if one.state is not State.WAITING or (known is not None and known.queued is not None):
                continue
            local = self._cluster.local_queues.get(one.ref.namespace, one.queue)
            event = WorkloadQueued(
                workload=one.ref,
                local_queue=one.queue,
                cluster_queue=local.spec.cluster_queue if local is not None else "",
                priority=one.priority,
                pods=one.pods,
                requests={name: float(amount) for name, amount in one.requests.items()},
            )
            self._tell(event, one.ref.uid, event_id=derived_id(one.ref.uid, event.spec.type))
            if one.named_by_annotation:
                await self._warn(one)

    async def _notice_queues(self) -> None:
        """Tell the owner of a new or changed queue object which of its fields are ignored: a note beside it, once."""
        for kind, one in self._cluster.queue_objects():
            meta = one.metadata
            if (meta.uid, meta.generation) in self._noticed:
                continue
            self._noticed.add((meta.uid, meta.generation))
            # The whole document: the views leave out what they do not know.
            document = await self._context.kube.get_document(kind, meta.name, meta.namespace or None)
            text = notice(kind.kind, (document or {}).get("spec") or {})
            if text:
                self._log.warning("queue-object", kind=kind.kind, name=meta.name, notice=text)
                about = ObjectReference(
                    api_version=kind.api_version, kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
                )
                await record_event(
                    self._context.kube, about, reason="FieldsIgnored", message=text, component=COMPONENT, type="Warning"
                )

    async def _warn(self, workload: Workload) -> None:
        ref = workload.ref
        self._log.warning("queue-named-by-annotation", workload=ref.name, namespace=ref.namespace)
        version = "batch/v1" if ref.kind == "Job" else "v1"
        about = ObjectReference(api_version=version, kind=ref.kind, namespace=ref.namespace, name=ref.name, uid=ref.uid)
        message = f"{QUEUE_LABEL} is a label; the annotation was accepted this time"
        reason = "QueueNamedByAnnotation"
        await record_event(
            self._context.kube, about, reason=reason, message=message, component=COMPONENT, type="Warning"
        )

    def _defer(self, defer: Defer) -> None:
        """Told when the reason changes."""
        ref = defer.workload.ref
        known = self._memory.known.get(ref.uid)
        if known is not None and known.deferred is defer.reason:
            return
        event = AdmissionDeferred(
            workload=ref,
            reason=defer.reason,
            cluster_queue=defer.cluster_queue,
            quota=defer.quota,
            home_room=defer.home_room,
            detail=defer.detail,
        )
        self._tell(event, ref.uid, cause=known.queued if known is not None else None)

    def _say_what_ended(self, workloads: tuple[Workload, ...]) -> None:
        present = {one.ref.uid: one for one in workloads}
        for uid, known in list(self._memory.known.items()):
            found = present.get(uid)
            if known.is_finished or (found is not None and found.state is not State.FINISHED):
                continue
            self._finish(known, found.outcome if found is not None else "deleted")
            self._retry_at.pop(uid, None)
        self._memory.forget(present.keys())

    def _finish(self, known: Known, outcome: str) -> None:
        event = WorkloadFinished(workload=known.ref, outcome=outcome, cluster_queue=known.cluster_queue)
        cause = known.admitted or known.queued
        self._tell(event, known.ref.uid, cause=cause, event_id=derived_id(known.ref.uid, event.spec.type))

    def _tell(self, event: Event, story: str, *, cause: Envelope | None = None, event_id: str | None = None) -> None:
        envelope = self._context.bus.emit(event, caused_by=cause, correlation_id=story, event_id=event_id)
        self._memory.record(event, envelope)

    def _report(self, plan: Plan) -> None:
        self._metrics.set_waiting(Counter(defer.reason for defer in plan.defers))
        for name, usage in plan.usage.items():
            for (flavor, resource), amount in usage.charged.items():
                self._metrics.used.labels(name, flavor, resource).set(float(amount))


def _not_released(admit: Admit, reason: DeferReason, hindrance: str) -> Defer:
    """A decision that is told and not carried out."""
    return Defer(
        workload=admit.workload,
        reason=reason,
        cluster_queue=admit.cluster_queue,
        detail=f"would be admitted: {hindrance}",
        quota=admit.quota,
        home_room=admit.home_room,
    )
