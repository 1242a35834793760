"""The evictor's shell: watches, reads back the stream, and in every cycle decides, acts and tells.

Two loops: returns are settled as soon as the cluster shows their end; new ones are decided once per interval. Both
hold still while the bus or the cluster cannot be heard.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from overspill_bus.errors import BusUnavailable
from overspill_bus.recorded import Recorded
from overspill_events.catalog import PodEvicted, PodHeld
from overspill_events.reasons import HoldReason
from overspill_events.subjects import subject_filter
from overspill_evictor.cluster import Cluster
from overspill_evictor.floor import owner_uid_of
from overspill_evictor.memory import READ, Memory, OpenReturn
from overspill_evictor.metrics import EvictorMetrics
from overspill_evictor.policy import Hold, Plan, Return, decide
from overspill_evictor.returning import Journal, Outcome, Returner
from overspill_evictor.settings import Settings
from overspill_evictor.settling import Settlement, not_evicted, pod_ref, rests_on_absence, settle, successors
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.resources import PODS
from overspill_objects.core import Pod
from overspill_service import Context, metrics_of
from overspill_service.pausing import Control

SERVICE: Final = "evictor"
LEASE: Final = "overspill-evictor"
SETTLE_PAUSE: Final = 0.2  # seconds: many changes of pods are looked at together
LOOK_AGAIN: Final = 2.0  # seconds: how long the answer to an eviction may take before the pod is looked at
LONGEST_THROTTLE: Final = 300.0
# A pod that only waits its turn changes between these in every cycle: that is one reason, told once.
TURN: Final = frozenset({HoldReason.CYCLE_LIMIT, HoldReason.OWNER_IN_FLIGHT})


async def run(context: Context[Settings]) -> None:
    """The body of the service, while it leads."""
    await Evictor(context).run()


class Evictor:
    """One leadership: its memory is read back from the stream."""

    def __init__(self, context: Context[Settings]) -> None:
        self._context = context
        self._settings = context.settings
        self._clock = context.clock
        self._log = context.log
        self._metrics = metrics_of(context.registry, EvictorMetrics)
        self._memory = Memory()
        self._journal = Journal(context.bus, self._memory)
        self._cluster = Cluster(context.kube, context.clock)
        self._control = Control(context.kube, context.clock, namespace=context.settings.namespace, service=SERVICE)
        self._caught_up = asyncio.Event()
        self._paused_until = 0.0
        self._throttles = 0
        self._returner = Returner(
            client=context.kube,
            journal=self._journal,
            settings=context.settings,
            clock=context.clock,
            metrics=self._metrics,
            log=context.log,
            judge=self._judge,
            siblings=self._siblings,
        )

    async def run(self) -> None:
        """Until cancelled."""
        context = self._context
        context.health.check("cluster", self._cluster.why_not_synced)
        context.health.check("control", self._control.problem)
        since = self._clock.now() - timedelta(seconds=self._settings.memory)
        filters = [subject_filter(event_type, cluster=self._settings.cluster) for event_type in READ]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cluster.run())
            group.create_task(self._control.run())
            group.create_task(
                context.bus.follow(filters, self._remember, since=since, on_caught_up=self._caught_up.set)
            )
            await self._cluster.wait_synced()
            await self._caught_up.wait()
            self._log.info("ready-to-decide", open_returns=len(self._memory.open))
            group.create_task(self._settle_for_ever())
            group.create_task(self._cycle_for_ever())

    def _remember(self, recorded: Recorded) -> None:
        if recorded.event is not None:
            self._memory.record(recorded.event, recorded.envelope)

    # --- the end of returns ---------------------------------------------------------------------------------------

    async def _settle_for_ever(self) -> None:
        while True:
            revision = self._cluster.pods.revision
            try:
                await self._settle()
            except (KubeUnavailable, KubeError) as error:
                self._log.warning("cannot-settle", error=str(error))
            await self._clock.sleep(SETTLE_PAUSE)
            # Without a change the time alone may end a return, and the answer to an eviction may be overdue.
            await self._cluster.pods.next_change(timeout=1.0, after=revision)

    async def _settle(self) -> None:
        if self._cluster.why_not_synced() is not None:
            return
        for one in self._dangling():
            await self._find_out(one)
        ends = self._ends(self._cluster.pods.items.values())
        if rests_on_absence(ends):
            live = self._ends((await self._context.kube.list(PODS)).items)
            # A successor that only the live list shows is not counted in the copy yet: its place stays booked.
            ends = tuple(end for end in ends if end in live)
        for end in ends:
            self._journal.tell(end.event, story=end.open_return.uid, cause=end.open_return.envelope)
            self._metrics.settled.labels(end.event.place.value).inc()
            self._log.info("settled", pod=end.event.pod.name, place=end.event.place.value, node=end.event.node)
        self._metrics.open_returns.set(len(self._memory.open))

    def _ends(self, pods: Iterable[Pod]) -> tuple[Settlement, ...]:
        opened = tuple(self._memory.open.values())
        heirs = successors(opened, pods, taken=self._memory.heirs)
        return settle(opened, heirs, self._cluster.nodes.items.values(), now=self._clock.now())

    def _dangling(self) -> list[OpenReturn]:
        """Intents that nobody is carrying out: of a predecessor, or whose answer got lost."""
        now = self._clock.now()
        return [
            one
            for one in self._memory.open.values()
            if one.evicted_at is None
            and one.uid not in self._returner.under_way
            and (now - one.envelope.time).total_seconds() >= LOOK_AGAIN
        ]

    async def _find_out(self, one: OpenReturn) -> None:
        """The cluster tells whether the eviction happened: a pod that is still there was not evicted."""
        intent = one.intent
        pod = await self._context.kube.get(PODS, intent.pod.name, intent.pod.namespace)
        stays = pod is not None and pod.metadata.uid == one.uid and pod.metadata.deletion_timestamp is None
        if stays:
            event = not_evicted(one, detail="the intent was not carried out")
            self._journal.tell(event, story=one.uid, cause=one.envelope)
            self._metrics.settled.labels(event.place.value).inc()
            return
        adopted = PodEvicted(pod=intent.pod, node=intent.node, home_node=intent.home_node, gpus=intent.gpus)
        self._journal.tell(adopted, story=one.uid, cause=one.envelope)
        self._log.info("eviction-adopted", pod=intent.pod.name)

    # --- new returns ----------------------------------------------------------------------------------------------

    async def _cycle_for_ever(self) -> None:
        while True:
            cause = self._why_idle()
            if cause is None:
                with self._metrics.cycle_seconds.time():
                    cause = await self._cycle()
            if cause is not None:
                self._metrics.idle.labels(cause).inc()
            await self._clock.sleep(self._settings.interval)

    def _why_idle(self) -> str | None:
        if not self._context.bus.connected:
            return "bus"
        if self._cluster.why_not_synced() is not None:
            return "cache"
        if self._control.problem() is not None:
            return "control"
        return "throttled" if self._clock.monotonic() < self._paused_until else None

    async def _cycle(self) -> str | None:
        """Decide and act until the slots are used up or nobody is left; the cause when it had to stop early."""
        slots = self._settings.max_per_cycle
        tried: set[str] = set()
        while True:
            plan = self._plan(slots=slots)
            returns = tuple(one for one in plan.returns if one.pod.metadata.uid not in tried)
            if not returns:
                break
            tried |= {one.pod.metadata.uid for one in returns}
            outcomes = await self._carry_out(returns)
            slots -= outcomes[Outcome.EVICTED]
            if outcomes[Outcome.THROTTLED]:
                return "throttled"
            if outcomes[None]:
                return "paused" if self._control.pause() is not None else "unavailable"
            if not outcomes[Outcome.NOT_SENT]:
                break  # every slot that was asked for is used
        self._throttles = 0
        self._tell(plan)
        return None

    def _plan(self, *, slots: int) -> Plan:
        snapshot = self._cluster.snapshot(self._memory, paused=self._control.why_paused())
        return decide(snapshot, self._clock.now(), self._settings.rules, slots=slots)

    def _judge(self, pod: Pod) -> Return | Hold:
        """What is decided about one pod from what is known this moment; needs no request.

        With all slots: the returns that this cycle has begun are counted in the book, and those that it has not are
        judged again beside this one, each in its turn.
        """
        problem = self._cluster.why_not_synced() or self._control.problem()
        if problem is not None:
            return Hold(pod=pod, reason=HoldReason.NOT_SYNCED, detail=problem)
        return self._plan(slots=self._settings.max_per_cycle).about(pod)

    async def _carry_out(self, returns: tuple[Return, ...]) -> "Counter[Outcome | None]":
        """`parallel` owners at a time, the pods of one owner one after the other.

        A budget that has allowed one must have counted it before it is asked about the next. None counts those that
        were not tried or lost their answer.
        """
        together = frozenset(one.pod.metadata.uid for one in returns)
        owners: dict[str, list[Return]] = {}
        for planned in returns:
            owners.setdefault(planned.owner.uid, []).append(planned)
        pool = asyncio.Semaphore(self._settings.parallel)

        async def owned(planned: list[Return]) -> list[Outcome | None]:
            async with pool:
                return [await self._attempt(one, together) for one in planned]

        done = await asyncio.gather(*(owned(planned) for planned in owners.values()))
        return Counter(outcome for outcomes in done for outcome in outcomes)

    async def _attempt(self, planned: Return, together: frozenset[str]) -> Outcome | None:
        # Throttled, cut off or paused since the plan was made.
        if self._why_idle() is not None or self._control.pause() is not None:
            return None
        try:
            outcome = await self._returner.carry_out(planned, together=together)
        except (KubeUnavailable, KubeError, BusUnavailable) as error:
            self._log.warning("return-interrupted", pod=planned.pod.metadata.name, error=str(error))
            return None
        if outcome is Outcome.THROTTLED:
            self._slow_down()
        return outcome

    def _slow_down(self) -> None:
        """The whole loop, as long as the server asked, longer each time in a row."""
        wait = min(LONGEST_THROTTLE, self._returner.retry_after * 2**self._throttles)
        self._throttles += 1
        self._paused_until = self._clock.monotonic() + wait
        self._log.warning("throttled", seconds=wait)

    def _tell(self, plan: Plan) -> None:
        """Why pods stay, where the reason is a new one; and forget what is gone."""
        for hold in plan.holds:
            told = self._memory.told.get(hold.pod.metadata.uid)
            if told is not hold.reason and not (told in TURN and hold.reason in TURN):
                self._hold(hold)
        self._metrics.set_held(Counter(hold.reason for hold in plan.holds))
        pods, owners = self._cluster.pods.items.values(), self._cluster.replica_sets.items.values()
        self._memory.forget(pods={p.metadata.uid for p in pods}, owners={o.metadata.uid for o in owners})

    def _hold(self, hold: Hold) -> None:
        event = PodHeld(
            pod=pod_ref(hold.pod),
            node=hold.pod.spec.node_name,
            reason=hold.reason,
            detail=hold.detail,
            needed=hold.needed,
            available=hold.available,
        )
        cause = self._memory.gate_events.get(event.node)
        self._journal.tell(event, story=event.pod.uid, cause=cause)

    def _siblings(self, owner_uid: str) -> frozenset[str]:
        pods = self._cluster.pods.items.values()
        return frozenset(pod.metadata.uid for pod in pods if owner_uid_of(pod) == owner_uid)
