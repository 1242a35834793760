"""What the series are about: a cluster's nodes and pods, counted. Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from msgspec import Struct

from overspill_capacity.nodes import is_ready, is_virtual
from overspill_capacity.requests import effective_requests
from overspill_events.names import GPU_RESOURCE
from overspill_objects.core import Node, Pod
from overspill_objects.quantity import parse_quantity
from overspill_objects.scheduling import PriorityClass

OVER: Final = frozenset({"Succeeded", "Failed"})
SYSTEM_PRIORITY: Final = 2_000_000_000  # classes from here on are Kubernetes' own


class HomeNode(Struct, frozen=True, kw_only=True):
    """One home node and its GPUs."""

    name: str
    model: str
    ready: bool
    unschedulable: bool
    allocatable: Mapping[str, Decimal]
    requested_lowest: int  # GPUs held by pods of the lowest priority class
    requested_other: int

    @property
    def gpus(self) -> int:
        """Allocatable GPUs."""
        return int(self.allocatable.get(GPU_RESOURCE, 0))


class Held(Struct, frozen=True, kw_only=True):
    """What one living pod's container asks for."""

    namespace: str
    pod: str
    uid: str
    container: str
    node: str
    requests: Mapping[str, Decimal]


class Measured(Struct, frozen=True, kw_only=True):
    """A cluster at one moment."""

    nodes: tuple[HomeNode, ...]
    held: tuple[Held, ...]
    phases: tuple[tuple[str, str, str, str], ...]  # namespace, pod, uid, phase

    @property
    def allocatable(self) -> int:
        """All GPUs of home."""
        return sum(node.gpus for node in self.nodes)

    def requested(self, *, with_lowest: bool) -> int:
        """GPUs of home that pods hold."""
        return sum(node.requested_other + (node.requested_lowest if with_lowest else 0) for node in self.nodes)


def measure(nodes: Iterable[Node], pods: Iterable[Pod], classes: Iterable[PriorityClass]) -> Measured:
    """Home's GPUs and who holds them: terminating pods still do, ended ones do not. Virtual nodes are not home."""
    living = [pod for pod in pods if pod.status.phase not in OVER]
    lowest = lowest_priority(classes)
    held: dict[tuple[str, bool], int] = {}
    for pod in living:
        gpus = int(effective_requests(pod).get(GPU_RESOURCE, 0))
        is_lowest = lowest is not None and (pod.spec.priority or 0) <= lowest
        place = (pod.spec.node_name, is_lowest)
        held[place] = held.get(place, 0) + gpus
    return Measured(
        nodes=tuple(_home_node(node, held) for node in nodes if not is_virtual(node)),
        held=tuple(one for pod in living for one in _containers(pod)),
        phases=tuple(
            (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, pod.status.phase or "Pending")
            for pod in living
        ),
    )


def lowest_priority(classes: Iterable[PriorityClass]) -> int | None:
    """The value of the lowest priority class; None when there is no class, or nothing to be lower than."""
    values = {one.value for one in classes if one.value < SYSTEM_PRIORITY}
    return min(values) if len(values) > 1 else None


def _home_node(node: Node, held: Mapping[tuple[str, bool], int]) -> HomeNode:
    name = node.metadata.name
    return HomeNode(
        name=name,
        model=node.metadata.labels.get("nvidia.com/gpu.product", ""),
        ready=is_ready(node),
        unschedulable=node.spec.unschedulable,
        allocatable={resource: parse_quantity(text) for resource, text in node.status.allocatable.items()},
        requested_lowest=held.get((name, True), 0),
        requested_other=held.get((name, False), 0),
    )


def _containers(pod: Pod) -> list[Held]:
    return [
        Held(
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid=pod.metadata.uid,
            container=container.name,
            node=pod.spec.node_name,
            requests={name: parse_quantity(text) for name, text in container.resources.requests.items()},
        )
        for container in pod.spec.containers
    ]
