"""One pod brought closer to what it should be: gather, decide, carry out. Only here do decisions become effects.

Everything is derived anew each time from the informer, the last complete lists and this process's own creates, so that
a pass that is cut off anywhere is made good by the next one, in this process or another.
"""

from collections.abc import Callable
from typing import Any

from overspill_bridge import podstatus
from overspill_bridge.adoption import Mark
from overspill_bridge.book import key_of
from overspill_bridge.creating import Acquired, Creator
from overspill_bridge.ending import Ender
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.podeffects import PodEffects
from overspill_bridge.policy import Acquire, Conclude, Decision, Defer, End, Finish, Keep, Leave, Wait, decide
from overspill_bridge.record import Record
from overspill_bridge.sighting import Sighting
from overspill_bridge.work import WorkQueue
from overspill_bridge.world import World, ref_of
from overspill_events.catalog import InstanceAdopted, InstanceFailed, InstanceRunning
from overspill_events.names import INSTANCE_ANNOTATION, PROVIDER_ANNOTATION
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_objects.core import Pod
from overspill_providers.protocol import InstanceState
from overspill_runtime.settings import Mode

AT_ONCE = 0.0
# Only a change of the pod itself can help these; the informer tells.
LASTING = frozenset({SpillReason.NOT_OPTED_IN, SpillReason.BAD_ANNOTATION})


class Reconciler:
    """Handles one key of the work queue: a pod's UID."""

    def __init__(
        self,
        world: World,
        *,
        creator: Creator,
        ender: Ender,
        effects: PodEffects,
        record: Record,
        metrics: BridgeMetrics,
        log: Any,
        api_is_fresh: Callable[[], bool],
    ) -> None:
        self._world = world
        self._creator = creator
        self._ender = ender
        self._effects = effects
        self._record = record
        self._metrics = metrics
        self._log = log
        self._api_is_fresh = api_is_fresh
        # Monotonic seconds; None: its instance was taken over, and how long it waited for that is not known.
        self._first_seen: dict[str, float | None] = {}

    async def handle(self, uid: str, queue: WorkQueue) -> float | None:
        """One pass. Returns when to look again (seconds), None: when something changes."""
        await self._ender.close(uid)
        self._settle_flight(uid)
        pod = self._world.pods.get(uid)
        if pod is None:
            self._first_seen.pop(uid, None)
            again = await self._ender.reap(uid)
            if again is None:
                queue.succeeded(uid)
            return again
        self._first_seen.setdefault(uid, self._world.clock.monotonic())
        decision = decide(self._world.case(pod, api_is_fresh=self._api_is_fresh()), self._world.rules)
        result: Decision | Acquired = decision
        if isinstance(decision, Acquire):
            result = await self._creator.acquire(pod, decision)
        return await self._carry_out(pod, result, queue)

    async def _carry_out(self, pod: Pod, decision: Decision | Acquired, queue: WorkQueue) -> float | None:
        uid = pod.metadata.uid
        match decision:
            case Acquired():
                queue.succeeded(uid)
                self._record.went_on(uid)
                return AT_ONCE
            case Wait(reason=reason, detail=detail):
                if reason is not None:
                    await self._defer(pod, Defer(reason=reason, detail=detail))
                return self._world.settings.poll_interval
            case Defer():
                await self._defer(pod, decision)
                return None if decision.reason in LASTING else queue.backoff(uid)
            case End():
                return await self._end(pod, decision)
            case Keep():
                again = await self._keep(pod, decision)
                queue.succeeded(uid)
                return again
            case Conclude():
                await self._conclude(pod, decision)
            case Finish():
                await self._ender.settle(pod)
                await self._effects.remove(pod)
            case Leave() | Acquire():
                queue.succeeded(uid)
        return None

    async def _defer(self, pod: Pod, decision: Defer) -> None:
        """Say why, in the status too; a pod that has run, or never asked to leave, keeps the status it has."""
        await self._record.defer(pod, decision.reason, decision.detail, tried=decision.tried)
        if decision.reason is not SpillReason.NOT_OPTED_IN and not podstatus.is_started(pod):
            await self._effects.say(pod, podstatus.waiting(pod, decision.reason, decision.detail))

    async def _end(self, pod: Pod, decision: End) -> float | None:
        if decision.release:
            await self._give_up(pod, decision.targets[0])
        done = await self._ender.end(decision.targets, decision.end)
        return None if done else self._world.settings.poll_interval

    async def _give_up(self, pod: Pod, sighting: Sighting) -> None:
        """Its instance did not start in time: the pod loses its marks first, so that any process tries another."""
        instance = sighting.instance
        released = self._world.released.setdefault(pod.metadata.uid, set())
        if instance.id in released or self._world.settings.mode is Mode.OBSERVE:
            return
        await self._effects.release(pod)
        released.add(instance.id)
        self._world.desks[sighting.provider].cool(instance.offering, now=self._world.clock.monotonic())
        message = f"not running {self._world.rules.start_deadline:g} s after its creation"
        self._record.tell(_failure(pod, sighting, InstanceEnd.START_DEADLINE, message), pod.metadata.uid)

    async def _keep(self, pod: Pod, decision: Keep) -> float | None:
        sighting = decision.sighting
        instance, uid = sighting.instance, pod.metadata.uid
        if not sighting.created_here:
            await self._adopt(pod, sighting)
        mark = Mark(provider=sighting.provider, instance=instance.id, price_per_hour=instance.price_per_hour)
        wrote = await self._effects.adopt(pod, mark)
        if wrote and sighting.created_here:
            bought = f"{instance.offering} at ${instance.price_per_hour:g} an hour"
            await self._record.note_instance(pod, f"{instance.id} at {sighting.provider}: {bought}")
        if decision.desired is None:
            return None
        if wrote:
            return AT_ONCE  # this pass's view of the pod is out of date: its status is judged from what was written
        was_running = pod.status.phase == "Running"
        said = await self._effects.say(pod, decision.desired)
        if said and not was_running and instance.state is InstanceState.RUNNING:
            since = self._first_seen[uid]
            seconds = None if since is None else self._world.clock.monotonic() - since
            if seconds is not None:
                self._metrics.to_running.observe(seconds)
            self._record.tell(
                InstanceRunning(
                    key=key_of(uid),
                    pod=ref_of(pod),
                    provider=sighting.provider,
                    instance=instance.id,
                    seconds_to_running=seconds,
                ),
                uid,
            )
        return None

    async def _adopt(self, pod: Pod, sighting: Sighting) -> None:
        """Say once that it was found; this process did not make it."""
        event = InstanceAdopted(
            key=key_of(pod.metadata.uid),
            pod=ref_of(pod),
            provider=sighting.provider,
            instance=sighting.instance.id,
            state=sighting.instance.state.value,
        )
        self._world.book.adopted(sighting)
        if pod.metadata.uid not in self._world.attempts:  # else it is ours after all, and its answer was lost
            self._first_seen[pod.metadata.uid] = None
        self._record.tell(event, pod.metadata.uid)

    async def _conclude(self, pod: Pod, decision: Conclude) -> None:
        sighting = decision.sighting
        if sighting is not None and not sighting.created_here:
            await self._adopt(pod, sighting)
        said = await self._effects.say(pod, decision.desired)
        if not said or decision.desired.phase != "Failed":
            return
        uid = pod.metadata.uid
        if sighting is not None:
            self._record.tell(_failure(pod, sighting, decision.end, sighting.instance.message), uid)
        elif decision.end is InstanceEnd.LOST and uid not in self._world.lost:
            self._record.tell(_missing(pod, decision.desired.message), uid)

    def _settle_flight(self, uid: str) -> None:
        """An ambiguous create is settled by the lists: found (it is then a sighting) or disproved."""
        world = self._world
        flight = world.book.flight(uid)
        if flight is None or not flight.is_ambiguous:
            return
        now = world.clock.monotonic()
        found = any(s.provider == flight.provider and not s.created_here for s in world.book.of(uid))
        if found or flight.is_disproved(now=now, list_lag=world.rules.list_lag):
            self._log.info("create-settled", pod_uid=uid, provider=flight.provider, found=found)
            world.book.refused(uid)


def _missing(pod: Pod, message: str) -> InstanceFailed:
    """An instance that vanished before this process could see it; the pod's marks tell which it was."""
    annotations = pod.metadata.annotations
    return InstanceFailed(
        key=key_of(pod.metadata.uid),
        pod=ref_of(pod),
        provider=annotations.get(PROVIDER_ANNOTATION, ""),
        instance=annotations.get(INSTANCE_ANNOTATION, ""),
        end=InstanceEnd.LOST,
        message=message,
    )


def _failure(pod: Pod, sighting: Sighting, end: InstanceEnd, message: str) -> InstanceFailed:
    return InstanceFailed(
        key=key_of(pod.metadata.uid),
        pod=ref_of(pod),
        provider=sighting.provider,
        instance=sighting.instance.id,
        end=end,
        exit_code=sighting.instance.exit_code,
        message=message,
    )
