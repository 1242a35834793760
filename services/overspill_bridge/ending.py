"""Ending instances: the pod read live first, the intent on record, then the provider; and saying when it is over.

A termination that is accepted is not yet done: it is over when a complete list shows it. What cannot be ended now is
tried again for ever; it is never dropped from memory, and the pod is not removed from the API before.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from overspill_bridge.book import key_of
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.podstatus import TERMINAL, end_of
from overspill_bridge.policy import is_untold, may_end, to_end
from overspill_bridge.record import Record
from overspill_bridge.sighting import Sighting
from overspill_bridge.world import World, ref_in_tags, ref_of
from overspill_events.catalog import (
    InstanceFailed,
    InstanceTerminated,
    InstanceTerminating,
    PodRef,
    TerminationDeferred,
)
from overspill_events.names import INSTANCE_ANNOTATION, PROVIDER_ANNOTATION
from overspill_events.reasons import InstanceEnd
from overspill_kube.client import Client
from overspill_kube.resources import PODS
from overspill_objects.core import Pod
from overspill_providers.errors import ProviderError
from overspill_runtime.settings import Mode

LOOK_AGAIN = 1.0  # seconds, when the informer is behind what was just read live


class Ender:
    """Ends instances, each provider's calls bounded on their own."""

    def __init__(
        self,
        world: World,
        kube: Client,
        *,
        record: Record,
        metrics: BridgeMetrics,
        log: Any,
        on_freed: Callable[[], None],
    ) -> None:
        self._world = world
        self._kube = kube
        self._record = record
        self._metrics = metrics
        self._log = log
        self._on_freed = on_freed
        width = world.settings.delete_concurrency
        self._slots = {name: asyncio.Semaphore(width) for name in world.providers}
        self._intended: set[tuple[str, str]] = set()
        self._withheld: set[tuple[str, str, InstanceEnd]] = set()

    async def end(self, targets: tuple[Sighting, ...], why: InstanceEnd) -> bool:
        """Terminate instances of one pod. False when the live pod does not justify it (the cache was behind).

        In observe mode it is only said. Raises ProviderError, KubeUnavailable, KubeError or RightInDoubt; the caller
        tries again.
        """
        ref = ref_in_tags(targets[0])
        live = await self._live(ref)
        if not may_end(why, live, uid=ref.uid):
            self._log.info("termination-not-justified", pod=f"{ref.namespace}/{ref.name}", end=why.value)
            return False
        for target in targets:
            if self._world.settings.mode is Mode.OBSERVE:
                self._withhold(target, why)
            else:
                await self._terminate(target, why)
        return True

    async def close(self, uid: str) -> None:
        """Say what has ended, and forget it. An unwritten end of its own waits until the pod's status tells it."""
        world = self._world
        pod = world.pods.get(uid)
        is_told = pod is None or pod.status.phase in TERMINAL
        for sighting in world.book.of(uid):
            if not sighting.is_gone(now=world.clock.monotonic(), list_lag=world.rules.list_lag):
                continue
            if is_untold(sighting) and not is_told:
                continue
            if sighting.ending is None and not is_untold(sighting):
                self._lost(sighting)
            else:
                await self._record.intend(self._terminated(sighting), uid)
            self._intended.discard((sighting.provider, sighting.instance.id))
            world.book.forget(sighting)
            world.ended.setdefault(uid, set()).add(sighting.instance.id)
            self._on_freed()

    async def reap(self, uid: str) -> float | None:
        """End what is left of a pod that is not in the API any more. Returns when to look again."""
        world = self._world
        sightings = world.book.of(uid)
        if not sightings and world.book.flight(uid) is None:
            world.forget(uid)
            self._record.forget(uid)
            return None
        watched = world.pods.was_watched(uid)
        if not watched and uid not in world.condemned:
            return None  # the collector's to judge
        targets = to_end(sightings, world.rules, moment=world.clock.monotonic())
        if not targets:
            return world.settings.poll_interval
        done = await self.end(targets, InstanceEnd.POD_GONE if watched else InstanceEnd.ORPHAN)
        return None if done else LOOK_AGAIN

    async def settle(self, pod: Pod) -> None:
        """An intent of a process that died is settled by the one that finds its effect; what it cost is not known."""
        uid, annotations = pod.metadata.uid, pod.metadata.annotations
        instance, provider = annotations.get(INSTANCE_ANNOTATION), annotations.get(PROVIDER_ANNOTATION)
        is_settled = (
            pod.status.phase in TERMINAL or self._record.knows(uid) or instance in self._world.released.get(uid, ())
        )
        if instance and provider and not is_settled:
            event = InstanceTerminated(
                key=key_of(uid), pod=ref_of(pod), provider=provider, instance=instance, end=InstanceEnd.POD_DELETED
            )
            await self._record.intend(event, uid)

    async def _live(self, ref: PodRef) -> Pod | None:
        """The pod as it is now; looked up by UID when the instance's tag does not tell its name."""
        if ref.name and ref.namespace:
            return await self._kube.get(PODS, ref.name, ref.namespace)
        listing = await self._kube.list(PODS, fields=f"spec.nodeName={self._world.identity.node}")
        return next((pod for pod in listing.items if pod.metadata.uid == ref.uid), None)

    async def _terminate(self, target: Sighting, why: InstanceEnd) -> None:
        world, instance = self._world, target.instance
        async with self._slots[target.provider]:
            if (target.provider, instance.id) not in self._intended:
                self._intended.add((target.provider, instance.id))
                intent = InstanceTerminating(
                    key=key_of(target.pod_uid),
                    pod=ref_in_tags(target),
                    provider=target.provider,
                    instance=instance.id,
                    end=why,
                )
                await self._record.intend(intent, target.pod_uid)
            world.claim_right()
            try:
                await world.providers[target.provider].terminate(instance.id)
            except ProviderError as error:
                self._metrics.calls.labels(target.provider, "terminate", error.kind.value).inc()
                raise
        self._metrics.calls.labels(target.provider, "terminate", "ok").inc()
        latest = next((s for s in world.book.of(target.pod_uid) if _same(s, target)), target)
        world.book.ending(latest, why, now=world.clock.monotonic())

    def _withhold(self, target: Sighting, why: InstanceEnd) -> None:
        """What would be ended, told once for each cause."""
        instance = target.instance.id
        if (target.provider, instance, why) in self._withheld:
            return
        self._withheld.add((target.provider, instance, why))
        self._record.tell(
            TerminationDeferred(
                key=key_of(target.pod_uid),
                pod=ref_in_tags(target),
                provider=target.provider,
                instance=instance,
                end=why,
                detail="observing",
            ),
            target.pod_uid,
        )

    def _lost(self, sighting: Sighting) -> None:
        """Complete lists say that it vanished, and nobody here ended it."""
        self._world.lost.add(sighting.pod_uid)
        self._record.tell(
            InstanceFailed(
                key=key_of(sighting.pod_uid),
                pod=ref_in_tags(sighting),
                provider=sighting.provider,
                instance=sighting.instance.id,
                end=InstanceEnd.LOST,
                message="not in the provider's complete lists any more",
            ),
            sighting.pod_uid,
        )

    def _terminated(self, sighting: Sighting) -> InstanceTerminated:
        instance = sighting.instance
        hours = instance.billed_hours
        if hours is None:
            hours = max(0.0, (self._world.clock.now() - instance.created_at).total_seconds() / 3600)
        return InstanceTerminated(
            key=key_of(sighting.pod_uid),
            pod=ref_in_tags(sighting),
            provider=sighting.provider,
            instance=instance.id,
            end=sighting.ending or end_of(instance),
            hours=hours,
            cost=hours * instance.price_per_hour,
        )


def _same(one: Sighting, other: Sighting) -> bool:
    return (one.provider, one.instance.id) == (other.provider, other.instance.id)
