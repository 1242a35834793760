"""From nodes and pods to one reading of home. Must not know where they come from."""

from collections.abc import Collection, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec
from msgspec import Struct

from overspill_capacity.fit import DoesNotFit, find_home, fits
from overspill_capacity.nodes import is_virtual
from overspill_capacity.requests import effective_requests
from overspill_capacity.room import TERMINAL, HomeSnapshot, NodeRoom
from overspill_events.catalog import Reading
from overspill_events.names import SPILLABLE_LABEL, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_events.reasons import Source, UnknownCause
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of

BLOCKS: Final = (1, 2, 4, 8)  # GPUs per pod for which room is told


class Cluster(Struct, frozen=True, kw_only=True):
    """What was seen of the cluster at one moment; `unknown` says why it may not be counted."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    device_nodes: frozenset[str] = frozenset()  # with GPUs through DRA
    unknown: UnknownCause | None = None
    detail: str = ""


def unknown(source: Source, cause: UnknownCause, *, now: datetime, detail: str = "") -> Reading:
    """A reading without a number."""
    return Reading(source=source, observed_at=now, unknown=cause, detail=detail)


def count(cluster: Cluster, *, resource: str, now: datetime) -> Reading:
    """Home capacity as the cluster's own objects have it."""
    if cluster.unknown is not None:
        return unknown(Source.CLUSTER, cluster.unknown, now=now, detail=cluster.detail)
    home = HomeSnapshot.build(cluster.nodes, cluster.pods, resource=resource, device_nodes=cluster.device_nodes)
    if home.unknown is not None:
        return unknown(Source.CLUSTER, home.unknown, now=now, detail=home.detail)
    waiting = [pod for pod in cluster.pods if waits(pod)]
    return Reading(
        source=Source.CLUSTER,
        observed_at=now,
        free=float(home.free_gpus),
        total=float(home.total_gpus),
        used=float(home.used_gpus),
        largest_block=home.largest_block,
        room={str(size): home.room_for(size) for size in BLOCKS},
        waiting_pods=len(waiting),
        waiting_gpus=_devices(waiting, resource),
        stuck_pods=_stuck(waiting, home, cluster),
        detail=_detail(home),
    )


def waits(pod: Pod) -> bool:
    """Whether a pod waits for a place and may overflow: spillable, released by its queue, not bound, not ending."""
    return (
        pod.metadata.labels.get(SPILLABLE_LABEL) == "true"
        and not pod.spec.node_name
        and not pod.spec.scheduling_gates
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL
    )


def behind_gate(pod: Pod, home: HomeSnapshot, virtual: Collection[NodeRoom]) -> bool:
    """Whether an open gate could help: the scheduler found no place, home has none, and a virtual node might.

    A pod that no virtual node would take even with its gate open is not the gate's fault. Without any virtual node
    nothing is known of that, and the pod counts.
    """
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return False
    if find_home(pod, home) is not None:
        return False
    return not virtual or any(not isinstance(fits(pod, room), DoesNotFit) for room in virtual)


def _stuck(waiting: Iterable[Pod], home: HomeSnapshot, cluster: Cluster) -> int:
    virtual = _opened(cluster, resource=home.resource)
    return sum(behind_gate(pod, home, virtual) for pod in waiting)


def _opened(cluster: Cluster, *, resource: str) -> tuple[NodeRoom, ...]:
    """Room on the virtual nodes as if their gates were open.

    Counted like home: without the label that tells them apart, and without the switch taint.
    """
    nodes = [_as_home(node) for node in cluster.nodes if is_virtual(node)]
    rooms = HomeSnapshot.build(nodes, cluster.pods, resource=resource).rooms
    labels = {node.metadata.name: node.metadata.labels for node in cluster.nodes}
    return tuple(msgspec.structs.replace(room, labels=labels[name]) for name, room in rooms.items())


def _as_home(node: Node) -> Node:
    meta = node.metadata
    labels = {key: value for key, value in meta.labels.items() if key != VIRTUAL_LABEL}
    taints = tuple(taint for taint in node.spec.taints if taint.key != SWITCH_TAINT)
    return msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(meta, labels=labels),
        spec=msgspec.structs.replace(node.spec, taints=taints),
    )


def _devices(pods: Iterable[Pod], resource: str) -> int | None:
    """What the pods ask for together; unknown when one of them cannot be read."""
    try:
        return sum(int(effective_requests(pod).get(resource, Decimal(0))) for pod in pods)
    except ValueError:
        return None


def _detail(home: HomeSnapshot) -> str:
    """What is neither free nor used, for people."""
    parts = [f"{amount} {why}" for why, amount in sorted(home.ineligible.items())]
    if home.releasing_gpus:
        parts.append(f"{home.releasing_gpus} being released")
    return ", ".join(parts)
