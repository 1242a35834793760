"""The last look before an eviction: what was decided from copies must still hold in a live read.

Copies may be seconds old, and seconds are enough for a budget, a floor or a gate to change. Only reading; the
judgement of what was read is pure and stands beside it.
"""

from collections.abc import Iterable

from msgspec import Struct

from overspill_capacity.nodes import is_ready, untolerated
from overspill_events.reasons import HoldReason
from overspill_evictor.floor import FloorError, floor_of, owner_uid_of, ready_replicas, stays_above
from overspill_evictor.policy import Hold, Return, gate_is_closed
from overspill_kube.client import Client
from overspill_kube.resources import NODES, PODS, REPLICA_SETS
from overspill_objects.apps import ReplicaSet
from overspill_objects.core import Node, Pod
from overspill_objects.meta import LabelSelector


class Seen(Struct, frozen=True, kw_only=True):
    """What the live read found; None: not there."""

    pods: tuple[Pod, ...]  # of the owner
    owner: ReplicaSet | None
    virtual_node: Node | None
    home_node: Node | None


async def look(client: Client, planned: Return) -> Seen:
    """Read the owner with its pods and both nodes. Raises KubeUnavailable."""
    namespace = planned.pod.metadata.namespace
    owner = await client.get(REPLICA_SETS, planned.owner.name, namespace)
    selector = selector_text(owner.spec.selector) if owner is not None else ""
    # Without a selector there is no owner to speak of, and the pods of a whole namespace would say nothing.
    pods = (await client.list(PODS, namespace=namespace, labels=selector)).items if selector else ()
    virtual_node = await client.get(NODES, planned.pod.spec.node_name)
    home_node = await client.get(NODES, planned.home_node)
    return Seen(pods=pods, owner=owner, virtual_node=virtual_node, home_node=home_node)


def objection(planned: Return, seen: Seen, *, leaving: frozenset[str], default_floor: int) -> Hold | None:
    """Why the eviction must not be sent after all. `leaving` are UIDs of other pods that are being returned now."""
    pod = next((one for one in seen.pods if one.metadata.uid == planned.pod.metadata.uid), None)
    if seen.owner is None or seen.owner.metadata.uid != planned.owner.uid:
        return Hold(pod=planned.pod, reason=HoldReason.OWNER_UNKNOWN, detail=f"{planned.owner.name} is gone")
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return Hold(pod=planned.pod, reason=HoldReason.UNKNOWN, detail="it is gone or leaving already")
    if pod.spec.node_name != planned.pod.spec.node_name:
        return Hold(pod=planned.pod, reason=HoldReason.UNKNOWN, detail=f"it is on node {pod.spec.node_name} now")
    if seen.virtual_node is None or not gate_is_closed(seen.virtual_node):
        return Hold(pod=pod, reason=HoldReason.GATE_OPEN)
    if (why := _no_target(pod, seen.home_node)) is not None:
        return Hold(pod=pod, reason=HoldReason.NO_HOME_FIT, detail=f"{planned.home_node} {why}")
    return _below_floor(pod, seen.owner, seen.pods, leaving=leaving, default_floor=default_floor)


def _no_target(pod: Pod, node: Node | None) -> str | None:
    if node is None:
        return "is gone"
    if not is_ready(node) or node.spec.unschedulable:
        return "is cordoned or not ready now"
    taint = untolerated(node.spec.taints, pod.spec.tolerations)
    return f"has the taint {taint.key}:{taint.effect} now" if taint is not None else None


def _below_floor(
    pod: Pod, owner: ReplicaSet, pods: Iterable[Pod], *, leaving: frozenset[str], default_floor: int
) -> Hold | None:
    owned = [one for one in pods if owner_uid_of(one) == owner.metadata.uid]
    ready = ready_replicas(owned)
    try:
        floor = floor_of((owner.metadata.annotations, pod.metadata.annotations), default=default_floor)
    except FloorError as error:
        return Hold(pod=pod, reason=HoldReason.BAD_ANNOTATION, detail=str(error))
    if stays_above(ready=ready, leaving=leaving, pod=pod, floor=floor):
        return None
    return Hold(pod=pod, reason=HoldReason.AT_FLOOR, needed=floor + 1, available=len(ready - leaving))


def selector_text(selector: LabelSelector | None) -> str:
    """A label selector in the form that a list request takes; empty for one that selects nothing or everything."""
    if selector is None:
        return ""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for one in selector.match_expressions:
        match one.operator:
            case "In" | "NotIn":
                parts.append(f"{one.key} {one.operator.lower()} ({','.join(one.values)})")
            case "Exists":
                parts.append(one.key)
            case "DoesNotExist":
                parts.append(f"!{one.key}")
            case unknown:
                raise ValueError(f"label selector on {one.key!r}: operator {unknown!r} is not defined")
    return ",".join(parts)
