"""What the parts of the bridge share while it leads: pods as the informer shows them, the book, the desks, one clock.

All of it is memory of this leadership and begins empty; nothing is read back from disk. This module must not know how
anything is carried out.
"""

from collections.abc import Callable

from msgspec import Struct

from overspill_bridge.book import Book, Identity
from overspill_bridge.desk import Desk
from overspill_bridge.nodeobject import NodeShape
from overspill_bridge.offers import Market
from overspill_bridge.policy import Case, Rules
from overspill_bridge.settings import Settings
from overspill_bridge.sighting import Sighting
from overspill_events.catalog import PodRef
from overspill_events.names import INSTANCE_ANNOTATION, POD_TAG, PROVIDER_ANNOTATION
from overspill_kube.informer import Change, ChangeKind
from overspill_objects.core import Pod
from overspill_providers.protocol import Provider
from overspill_runtime.clock import Clock


def rules_of(settings: Settings) -> Rules:
    """The part of the settings that decisions depend on."""
    return Rules(
        resource=settings.resource,
        max_external_gpus=settings.max_external_gpus,
        list_lag=settings.list_lag,
        start_deadline=settings.start_deadline,
        terminate_again=settings.terminate_again,
    )


def shape_of(settings: Settings) -> NodeShape:
    """What the node offers."""
    return NodeShape(
        name=settings.node_name,
        resource=settings.resource,
        gpus=settings.max_external_gpus,
        cpus=settings.max_external_gpus * settings.cpus_per_gpu,
        memory_gib=settings.max_external_gpus * settings.memory_gib_per_gpu,
    )


class Pods:
    """The pods of the node by UID: names come again, UIDs do not."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Pod] = {}
        self._old: set[str] = set()
        self._watched: set[str] = set()
        self._ahead: dict[str, list[str]] = {}  # versions that we wrote and the informer has not told yet, in order
        self.are_synced = False

    def take(self, change: Change[Pod]) -> str:
        """Take in a change of the informer; returns the pod's UID."""
        pod = change.object
        uid = pod.metadata.uid
        if change.kind is ChangeKind.DELETED:
            self._by_uid.pop(uid, None)
            self._old.discard(uid)
            self._ahead.pop(uid, None)
        else:
            if not self._is_outdated(uid, pod.metadata.resource_version):
                self._by_uid[uid] = pod
            self._watched.add(uid)
            if not self.are_synced:
                self._old.add(uid)
        return uid

    def wrote(self, before: Pod, after: Pod) -> None:
        """The API server has answered a write of ours, judged from `before`, with `after`.

        The informer brings the same, later. Whatever it has brought since `before` stays.
        """
        uid, old, new = before.metadata.uid, before.metadata.resource_version, after.metadata.resource_version
        known = self._by_uid.get(uid)
        if known is not None and known.metadata.resource_version == old != new:
            self._by_uid[uid] = after
            self._ahead.setdefault(uid, []).append(new)

    def _is_outdated(self, uid: str, version: str) -> bool:
        """Whether the informer tells a write of ours that another write of ours has followed; anything else is news."""
        ahead = self._ahead.pop(uid, [])
        if version not in ahead[:-1]:
            return False
        self._ahead[uid] = ahead[ahead.index(version) + 1 :]
        return True

    def get(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def uids(self) -> tuple[str, ...]:
        return tuple(self._by_uid)

    def is_new(self, uid: str) -> bool:
        """Whether it was bound while this process led, so that nobody else can have made an instance for it."""
        return uid not in self._old

    def was_watched(self, uid: str) -> bool:
        """Whether this process has seen it alive: its absence is then a deletion and not a gap in our knowledge."""
        return uid in self._watched

    def forget(self, uid: str) -> None:
        """It is gone and so is everything outside."""
        if uid not in self._by_uid:
            self._watched.discard(uid)


class RightInDoubt(Exception):  # noqa: N818 -- the name says what is wrong
    """This process may not lead any more: a call to a provider was not sent."""


class World(Struct, frozen=True, kw_only=True):
    """Everything known, and the settings it is judged by."""

    settings: Settings
    rules: Rules
    clock: Clock
    identity: Identity
    pods: Pods
    book: Book
    providers: dict[str, Provider]
    desks: dict[str, Desk]
    lost: set[str]  # UIDs of pods whose instance vanished
    released: dict[str, set[str]]  # pod UID → ids of instances whose marks were taken off it
    ended: dict[str, set[str]]  # pod UID → ids of instances that this process has seen to their end
    condemned: set[str]  # UIDs of pods that the collector has found gone twice
    attempts: dict[str, int]  # pod UID → creates asked for since the last that was answered well
    why_paused: Callable[[], str | None] = lambda: None  # an operator's pause in words; None: go on
    doubt: Callable[[], str | None] = lambda: None  # why this process may not lead any more; None: it does

    def case(self, pod: Pod, *, api_is_fresh: bool) -> Case:
        """Everything known about one pod now."""
        uid = pod.metadata.uid
        return Case(
            pod=pod,
            now=self.clock.now(),
            moment=self.clock.monotonic(),
            sightings=self.book.of(uid),
            flight=self.book.flight(uid),
            knows_enough=self.book.knows_enough(new_pod=self.pods.is_new(uid)),
            api_is_fresh=api_is_fresh,
            paused=self.why_paused(),
            provider_is_down=any(desk.is_down for desk in self.desks.values()),
            missing_provider=self._missing_provider(pod),
            was_lost=uid in self.lost,
            released=frozenset(self.released.get(uid, ())),
        )

    def _missing_provider(self, pod: Pod) -> str | None:
        """The provider in the pod's marks when the settings do not name it, unless the marked instance is over.

        A provider that was only renamed shows the instance under its new name: its end is then seen like any other's.
        """
        uid, annotations = pod.metadata.uid, pod.metadata.annotations
        provider, instance = annotations.get(PROVIDER_ANNOTATION), annotations.get(INSTANCE_ANNOTATION)
        is_over = instance in self.ended.get(uid, ()) or instance in self.released.get(uid, ())
        return None if provider is None or provider in self.providers or is_over else provider

    def claim_right(self) -> None:
        """To be asked right before a call that changes something at a provider. Raises RightInDoubt.

        A process that was stopped and goes on does not know yet that another one leads.
        """
        if (why := self.doubt()) is not None:
            raise RightInDoubt(f"not sent: {why}")

    def markets(self) -> tuple[Market, ...]:
        now = self.clock.monotonic()
        return tuple(desk.market(now) for desk in self.desks.values())

    def gpus_left(self) -> int:
        """What max_external_gpus leaves; below zero when the setting was lowered."""
        in_use = self.book.gpus_in_use(now=self.clock.monotonic(), list_lag=self.rules.list_lag)
        return self.rules.max_external_gpus - in_use

    def forget(self, uid: str) -> None:
        """Nothing of this pod is left, here or outside."""
        self.pods.forget(uid)
        self.lost.discard(uid)
        self.condemned.discard(uid)
        self.released.pop(uid, None)
        self.ended.pop(uid, None)
        self.attempts.pop(uid, None)


def ref_of(pod: Pod) -> PodRef:
    """A pod's identity in events."""
    return PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)


def ref_in_tags(sighting: Sighting) -> PodRef:
    """The pod that an instance's tags name; empty names when somebody has damaged the tag."""
    namespace, _, name = sighting.instance.tags.get(POD_TAG, "").partition("/")
    return PodRef(namespace=namespace, name=name, uid=sighting.pod_uid)
