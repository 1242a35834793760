"""What all controllers see: one watch per kind, shared, with pods and ReplicaSets at hand by their owner.

Objects that controllers make others from are kept as plain data below their metadata: a view would lose the fields of a
pod template that it does not know. It must not know what any controller decides.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from msgspec import field

from overspill_kube import resources
from overspill_kube.client import Client
from overspill_kube.informer import Change, ChangeKind, HasMeta, Informer, Key
from overspill_kube.resources import Resource
from overspill_objects.coordination import Lease
from overspill_objects.core import Node, Pod
from overspill_objects.disruption import PodDisruptionBudget
from overspill_objects.meta import ObjectMeta, controller_of
from overspill_objects.view import RawObject, View

T = TypeVar("T", bound=HasMeta)


class Workload(View, frozen=True, kw_only=True):
    """A Deployment, ReplicaSet or Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RawObject = field(default_factory=dict)
    status: RawObject = field(default_factory=dict)


def _workloads(group: str, plural: str, kind: str) -> Resource[Workload]:
    return Resource(group=group, version="v1", plural=plural, kind=kind, namespaced=True, view=Workload)


DEPLOYMENTS: Final = _workloads("apps", "deployments", "Deployment")
REPLICA_SETS: Final = _workloads("apps", "replicasets", "ReplicaSet")
JOBS: Final = _workloads("batch", "jobs", "Job")


class Watched(Generic[T]):
    """One kind of objects, and whoever wants to hear of its changes."""

    def __init__(self, client: Client, resource: Resource[T]) -> None:
        self.resource = resource
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self.informer = Informer(client, resource, on_change=self._tell)

    def subscribe(self, subscriber: Callable[[Change[T]], None]) -> None:
        """Call this with every change, after those who subscribed before."""
        self._subscribers.append(subscriber)

    def get(self, namespace: str, name: str) -> T | None:
        """The object as last seen."""
        return self.informer.get(namespace, name)

    def all(self) -> list[T]:
        """Every object, as last seen."""
        return list(self.informer.items.values())

    def _tell(self, change: Change[T]) -> None:
        for subscriber in self._subscribers:
            subscriber(change)


class Owned(Generic[T]):
    """Objects by the uid of the controller that owns them."""

    def __init__(self, watched: Watched[T]) -> None:
        self._by_owner: dict[str, dict[Key, T]] = {}
        watched.subscribe(self._note)

    def of(self, owner_uid: str) -> list[T]:
        """What this owner controls."""
        return list(self._by_owner.get(owner_uid, {}).values())

    def _note(self, change: Change[T]) -> None:
        for known in (change.old, change.object):
            if known is not None and (owner := controller_of(known.metadata)) is not None:
                self._by_owner.get(owner.uid, {}).pop(key_of(known), None)
        owner = controller_of(change.object.metadata)
        if owner is not None and change.kind is not ChangeKind.DELETED:
            self._by_owner.setdefault(owner.uid, {})[key_of(change.object)] = change.object


class Cluster:
    """The kinds that the controllers watch."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods: Watched[Pod] = Watched(client, resources.PODS)
        self.nodes: Watched[Node] = Watched(client, resources.NODES)
        self.leases: Watched[Lease] = Watched(client, resources.LEASES)
        self.budgets: Watched[PodDisruptionBudget] = Watched(client, resources.PDBS)
        self.deployments = Watched(client, DEPLOYMENTS)
        self.replica_sets = Watched(client, REPLICA_SETS)
        self.jobs = Watched(client, JOBS)
        self.pods_of = Owned(self.pods)
        self.replica_sets_of = Owned(self.replica_sets)

    def informers(self) -> list[Informer[Any]]:
        """All of them, to be run."""
        return [watched.informer for watched in self._watched()]

    def shared(self) -> dict[tuple[str, str], Watched[Any]]:
        """All watches by group and plural."""
        return {(one.resource.group, one.resource.plural): one for one in self._watched()}

    def _watched(self) -> list[Watched[Any]]:
        return [
            self.nodes,
            self.leases,
            self.deployments,
            self.replica_sets,
            self.jobs,
            self.budgets,
            self.pods,
        ]


def key_of(thing: HasMeta) -> Key:
    """Namespace and name."""
    return thing.metadata.namespace, thing.metadata.name
