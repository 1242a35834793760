"""Garbage collection: instances of ours whose pod this process has never seen.

Four guards, all of which must hold: our tags, an age, two consecutive passes in which the pod was absent from a live
read, and a cap per pass. What is condemned here is ended by the reconciler, which reads the pod live once more.
"""

from collections.abc import Callable
from typing import Any, Never

from overspill_bridge.book import key_of
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.record import Record
from overspill_bridge.sighting import Sighting
from overspill_bridge.world import World, ref_in_tags
from overspill_events.catalog import OrphanFound
from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.resources import PODS

PASSES = 2


class Collector:
    """Looks for orphans for ever."""

    def __init__(
        self,
        world: World,
        kube: Client,
        *,
        record: Record,
        metrics: BridgeMetrics,
        log: Any,
        api_is_fresh: Callable[[], bool],
        on_condemned: Callable[[str], None],
    ) -> None:
        self._world = world
        self._kube = kube
        self._record = record
        self._metrics = metrics
        self._log = log
        self._api_is_fresh = api_is_fresh
        self._on_condemned = on_condemned
        self._strikes: dict[str, int] = {}

    async def run(self) -> Never:
        """Pass after pass until cancelled; a pass that cannot read the API condemns nobody and forgets its strikes."""
        while True:
            await self._world.clock.sleep(self._world.settings.gc_interval)
            try:
                await self.look()
            except (KubeUnavailable, KubeError) as error:
                self._strikes.clear()
                self._log.warning("collection-skipped", error=str(error))

    async def look(self) -> None:
        """One pass. Raises KubeUnavailable or KubeError when the API cannot be read."""
        if not self._api_is_fresh():
            self._strikes.clear()
            return
        suspects = {uid: old for uid in self._world.book.pods() if (old := self._suspect(uid)) is not None}
        if not suspects:
            self._strikes.clear()
            return
        listing = await self._kube.list(PODS, fields=f"spec.nodeName={self._world.identity.node}")
        present = {pod.metadata.uid for pod in listing.items}
        absent = {uid: sighting for uid, sighting in suspects.items() if uid not in present}
        self._strikes = {uid: self._strikes.get(uid, 0) + 1 for uid in absent}
        ripe = [uid for uid, strikes in self._strikes.items() if strikes >= PASSES]
        cap = self._world.settings.gc_max_per_pass
        if len(ripe) > cap:
            self._log.warning("collection-capped", orphans=len(ripe), cap=cap)
        for uid in ripe[:cap]:
            self._condemn(uid, absent[uid])

    def _suspect(self, uid: str) -> Sighting | None:
        """The oldest instance of a pod that we have never seen, if it is old enough and not being ended already."""
        world = self._world
        if world.pods.get(uid) is not None or world.pods.was_watched(uid) or uid in world.condemned:
            return None
        now, grace = world.clock.now(), world.settings.gc_grace
        old = [s for s in world.book.of(uid) if (now - s.instance.created_at).total_seconds() >= grace]
        return min(old, key=lambda s: s.instance.created_at, default=None)

    def _condemn(self, uid: str, sighting: Sighting) -> None:
        self._world.condemned.add(uid)
        self._metrics.orphans.inc()
        age = (self._world.clock.now() - sighting.instance.created_at).total_seconds()
        event = OrphanFound(
            key=key_of(uid),
            pod=ref_in_tags(sighting),
            provider=sighting.provider,
            instance=sighting.instance.id,
            age_seconds=age,
        )
        self._record.tell(event, uid)
        self._on_condemned(uid)
