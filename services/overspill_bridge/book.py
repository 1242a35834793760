"""What this process knows about instances: the last lists, what it created or ended since, and what is in flight. Pure.

A fold over answers of providers; time comes in with each of them. Nothing in it outlives the process: after a restart
the next complete lists say the same. The book never concludes from an incomplete list.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from overspill_bridge.sighting import Flight, Sighting
from overspill_bridge.tally import Tally
from overspill_events.names import CLUSTER_TAG, NODE_TAG, POD_TAG, POD_UID_TAG
from overspill_events.reasons import InstanceEnd
from overspill_providers.protocol import Instance, Inventory

PASSES_BEFORE_OLD_PODS = 2  # complete lists before absence is believed of a pod bound under an earlier leader


class Identity(Struct, frozen=True, kw_only=True):
    """Whose instances are ours: this cluster's UID and this virtual node."""

    cluster_uid: str
    node: str

    def owns(self, instance: Instance) -> bool:
        """Whether an instance carries our tags. Everything else is foreign and is never touched."""
        tags = instance.tags
        return (
            bool(tags.get(POD_UID_TAG))
            and tags.get(CLUSTER_TAG) == self.cluster_uid
            and tags.get(NODE_TAG) == self.node
        )

    def tags(self, *, pod_uid: str, pod_name: str) -> dict[str, str]:
        """The tags of an instance for this pod; `pod_name` is namespace/name."""
        return {CLUSTER_TAG: self.cluster_uid, NODE_TAG: self.node, POD_UID_TAG: pod_uid, POD_TAG: pod_name}


def key_of(pod_uid: str) -> str:
    """The name an instance is created under, minted from the pod's UID: at most 63 characters, the same at each try."""
    return f"overspill-{pod_uid}"


class Book:
    """All sightings and flights, by pod UID.

    `all_shown_at`: lists begun before that moment may still lack what an earlier leader created last.
    """

    def __init__(self, *, identity: Identity, providers: Iterable[str], all_shown_at: float) -> None:
        self.identity = identity
        self.passes: dict[str, int] = dict.fromkeys(providers, 0)  # complete lists begun since then, per provider
        self._all_shown_at = all_shown_at
        self._sightings: dict[str, dict[tuple[str, str], Sighting]] = {}
        self._flights: dict[str, Flight] = {}
        self._tally = Tally()

    def of(self, pod_uid: str) -> tuple[Sighting, ...]:
        """All sightings for one pod."""
        return tuple(self._sightings.get(pod_uid, {}).values())

    def pods(self) -> tuple[str, ...]:
        """UIDs with at least one sighting."""
        return tuple(self._sightings)

    def flight(self, pod_uid: str) -> Flight | None:
        return self._flights.get(pod_uid)

    def flights(self) -> Mapping[str, Flight]:
        return self._flights

    def knows_enough(self, *, new_pod: bool) -> bool:
        """Whether an unseen instance for a pod can be ruled out.

        A pod bound while this process led has no instance that it did not make; for an older one every provider must
        have listed completely twice since its lists no longer lag behind our predecessor, whose last create may even
        have arrived after the first.
        """
        return new_pod or all(count >= PASSES_BEFORE_OLD_PODS for count in self.passes.values())

    def gpus_in_use(self, *, now: float, list_lag: float) -> int:
        """GPUs of all living instances and of creates in flight."""
        return self._tally.gpus(now=now, list_lag=list_lag)

    # --- what this process does ---

    def asked(self, pod_uid: str, flight: Flight) -> None:
        """A create is about to be sent; its GPUs count from here on."""
        self._tally.remove(self._flights.get(pod_uid))
        self._flights[pod_uid] = flight
        self._tally.add(flight)

    def refused(self, pod_uid: str) -> None:
        """The create certainly had no effect."""
        self._tally.remove(self._flights.pop(pod_uid, None))

    def left_open(self, pod_uid: str, *, now: float) -> None:
        """The create's answer leaves open whether an instance exists."""
        flight = self._flights[pod_uid]
        self._flights[pod_uid] = msgspec.structs.replace(flight, is_ambiguous=True, since=now, misses=0)

    def created(self, pod_uid: str, *, provider: str, instance: Instance, now: float) -> None:
        """The create was answered. A list may have shown the instance before that."""
        known = self._sightings.get(pod_uid, {}).get((provider, instance.id))
        sighting = Sighting(provider=provider, instance=instance, noted_at=now) if known is None else known
        self._put(msgspec.structs.replace(sighting, created_here=True))
        self._tally.remove(self._flights.pop(pod_uid, None))

    def adopted(self, sighting: Sighting) -> None:
        """It has been announced: from here on it is like one that this process made."""
        self._put(msgspec.structs.replace(sighting, created_here=True))

    def ending(self, sighting: Sighting, end: InstanceEnd, *, now: float) -> None:
        """Its termination was accepted. The first reason stays."""
        self._put(msgspec.structs.replace(sighting, ending=sighting.ending or end, ended_at=now, misses=0))

    def forget(self, sighting: Sighting) -> None:
        """Nothing more will be said about it."""
        sightings = self._sightings.get(sighting.pod_uid, {})
        self._tally.remove(sightings.pop((sighting.provider, sighting.instance.id), None))
        if not sightings:
            self._sightings.pop(sighting.pod_uid, None)

    # --- what providers say ---

    def merge(self, provider: str, inventory: Inventory, *, started_at: float) -> set[str]:
        """Take in a list that was begun at `started_at`; returns the pod UIDs whose picture changed."""
        changed: set[str] = set()
        seen: set[str] = set()
        for instance in inventory.instances:
            if self.identity.owns(instance):
                seen.add(instance.id)
                if self._see(provider, instance, started_at):
                    changed.add(instance.tags[POD_UID_TAG])
        if inventory.complete:
            self.passes[provider] += started_at >= self._all_shown_at
            changed |= self._miss(provider, seen, started_at)
        return changed

    def _see(self, provider: str, instance: Instance, at: float) -> bool:
        uid = instance.tags[POD_UID_TAG]
        known = self._sightings.get(uid, {}).get((provider, instance.id))
        if known is None:
            self._put(Sighting(provider=provider, instance=instance, noted_at=at, listed=True))
        else:
            self._put(msgspec.structs.replace(known, instance=instance, listed=True, misses=0))
        return known is None or known.instance.state is not instance.state or known.misses > 0

    def _miss(self, provider: str, seen: set[str], started_at: float) -> set[str]:
        changed: set[str] = set()
        for uid, sightings in tuple(self._sightings.items()):
            for sighting in tuple(sightings.values()):
                # A list that began before our own last step says nothing about that step.
                at = sighting.noted_at if sighting.ended_at is None else sighting.ended_at
                if sighting.provider == provider and sighting.instance.id not in seen and started_at > at:
                    self._put(msgspec.structs.replace(sighting, misses=sighting.misses + 1))
                    changed.add(uid)
        for uid, flight in tuple(self._flights.items()):
            if flight.provider == provider and flight.is_ambiguous and started_at > flight.since:
                self._flights[uid] = msgspec.structs.replace(flight, misses=flight.misses + 1)
                changed.add(uid)
        return changed

    def _put(self, sighting: Sighting) -> None:
        sightings = self._sightings.setdefault(sighting.pod_uid, {})
        key = sighting.provider, sighting.instance.id
        self._tally.remove(sightings.get(key))
        sightings[key] = sighting
        self._tally.add(sighting)
