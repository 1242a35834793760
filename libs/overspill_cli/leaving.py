"""What has to go when Overspill leaves a cluster, read off it. Pure: objects in, what is to be done out."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from overspill_capacity.nodes import is_virtual
from overspill_capacity.room import TERMINAL
from overspill_events.names import (
    ADMISSION_GATE,
    BASE_TAINT,
    PREFERENCE_TAINT,
    PROVIDER_ANNOTATION,
    PROVIDER_CONDITION,
    QUEUE_LABEL,
    SPILLABLE_LABEL,
    SWITCH_TAINT,
)
from overspill_objects.apps import Deployment
from overspill_objects.batch import Job
from overspill_objects.coordination import Lease
from overspill_objects.core import Node, Pod, Taint
from overspill_objects.meta import ObjectMeta, condition_of

OUR_TAINTS: Final = frozenset({BASE_TAINT, PREFERENCE_TAINT, SWITCH_TAINT})
JOB_CONTROLLERS: Final = frozenset({"", "kubernetes.io/job-controller"})


class Remains(Struct, frozen=True, kw_only=True):
    """Everything of ours in a cluster, but for what `kubectl delete -k deploy/` removes."""

    nodes: tuple[Node, ...] = ()  # virtual ones
    spilled: tuple[Pod, ...] = ()  # on them, with or without an instance
    gated: tuple[Pod, ...] = ()  # waiting for our gate
    held: tuple[Job, ...] = ()  # suspended Jobs of queues
    tainted: tuple[Node, ...] = ()  # home nodes with a taint of ours
    services: tuple[Deployment, ...] = ()  # that run
    leases: tuple[Lease, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not any(getattr(self, field) for field in self.__struct_fields__)

    def lines(self) -> Iterator[str]:
        """The plan for people, in the order in which it is carried out."""
        closed = [node.metadata.name for node in self.nodes if gate_is_closed(node)]
        for node in self.nodes:
            name = node.metadata.name
            yield f"close the gate of {name}" + (" (it is closed)" if name in closed else "")
        for pod in self.spilled:
            yield f"bring pod {name_of(pod.metadata)} away from {pod.spec.node_name}"
        for deployment in self.services:
            yield f"stop deployment {name_of(deployment.metadata)}"
        for pod in self.gated:
            yield f"remove the gate of pod {name_of(pod.metadata)}"
        for job in self.held:
            yield f"unsuspend job {name_of(job.metadata)}"
        for node in self.tainted:
            yield f"remove our taints from node {node.metadata.name}"
        for node in self.nodes:
            yield f"delete virtual node {node.metadata.name}"
        for lease in self.leases:
            yield f"delete lease {name_of(lease.metadata)}"


def remains(
    *,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    jobs: Iterable[Job],
    services: Iterable[Deployment],
    leases: Iterable[Lease],
    kueue_admits: bool,
) -> Remains:
    """`kueue_admits`: Kueue's own controller works here, so suspended Jobs are its business."""
    nodes, pods = tuple(nodes), tuple(pods)
    virtual = tuple(node for node in nodes if is_virtual(node))
    names = {node.metadata.name for node in virtual}
    return Remains(
        nodes=virtual,
        spilled=tuple(pod for pod in pods if pod.spec.node_name in names and has_spilled(pod)),
        gated=tuple(pod for pod in pods if any(gate.name == ADMISSION_GATE for gate in pod.spec.scheduling_gates)),
        held=() if kueue_admits else tuple(job for job in jobs if is_held(job)),
        tainted=tuple(node for node in nodes if not is_virtual(node) and taints_of_ours(node)),
        services=tuple(one for one in services if one.spec.replicas > 0),
        leases=tuple(leases),
    )


def has_spilled(pod: Pod) -> bool:
    """Whether a pod on a virtual node may have an instance; others (DaemonSets' pods) are ignored and cost nothing."""
    return pod.metadata.labels.get(SPILLABLE_LABEL) == "true" and pod.status.phase not in TERMINAL


def is_held(job: Job) -> bool:
    """Whether it waits for a queue that nobody will look after any more. Who suspended it cannot be seen."""
    over = any(
        (found := condition_of(job.status.conditions, kind)) is not None and found.status == "True"
        for kind in ("Complete", "Failed")
    )
    return (
        job.spec.suspend
        and QUEUE_LABEL in job.metadata.labels
        and job.spec.managed_by in JOB_CONTROLLERS
        and job.metadata.deletion_timestamp is None
        and not over
    )


def gate_is_closed(node: Node) -> bool:
    """Whether the switch taint is on the node."""
    return any(taint.key == SWITCH_TAINT and taint.effect == "NoSchedule" for taint in node.spec.taints)


def taints_of_ours(node: Node) -> tuple[Taint, ...]:
    """Our taints, where a home node has any."""
    return tuple(taint for taint in node.spec.taints if taint.key in OUR_TAINTS)


def providers_named(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, str]:
    """Providers at which something may live, each with what names it: a virtual node's conditions, and what the bridge
    has written on pods, ended ones and those of nodes that are gone among them.
    """
    nodes = tuple(nodes)
    home = {"", *(node.metadata.name for node in nodes if not is_virtual(node))}
    named = {
        pod.metadata.annotations[PROVIDER_ANNOTATION]: f"pod {name_of(pod.metadata)}"
        for pod in pods
        if PROVIDER_ANNOTATION in pod.metadata.annotations and pod.spec.node_name not in home
    }
    for node in filter(is_virtual, nodes):
        kinds = [one.type for one in node.status.conditions if one.type.startswith(PROVIDER_CONDITION)]
        named |= {kind.removeprefix(PROVIDER_CONDITION): f"node {node.metadata.name}" for kind in kinds}
    return named


def name_of(meta: ObjectMeta) -> str:
    """namespace/name."""
    return f"{meta.namespace}/{meta.name}"
