"""What the state of a node means for its taints, and what its taints mean for the pods on it.

(pkg/controller/nodelifecycle and tainteviction)
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from overspill_capacity.nodes import tolerates
from overspill_lab.stamps import stamp
from overspill_objects.core import Node, Pod, Taint
from overspill_objects.meta import condition_of

PREFIX: Final = "node.kubernetes.io/"
NOT_READY: Final = f"{PREFIX}not-ready"
UNREACHABLE: Final = f"{PREFIX}unreachable"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
# Condition type and status → the taint it means.
CONDITION_TAINTS: Final = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): f"{PREFIX}memory-pressure",
    ("DiskPressure", "True"): f"{PREFIX}disk-pressure",
    ("PIDPressure", "True"): f"{PREFIX}pid-pressure",
    ("NetworkUnavailable", "True"): f"{PREFIX}network-unavailable",
}
UNSCHEDULABLE: Final = f"{PREFIX}unschedulable"
OURS: Final = frozenset({*CONDITION_TAINTS.values(), UNSCHEDULABLE})
KUBELET_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def wanted_taints(node: Node, *, deaf: bool, now: datetime) -> tuple[Taint, ...]:
    """The node's whole taint list as it should be; equal to the present one when nothing is to be done.

    `deaf`: see `is_deaf`. Then no taint of ours sends pods away.
    """
    wanted = [one for one in _meant(node) if not (deaf and one[1] == NO_EXECUTE)]
    kept = [taint for taint in node.spec.taints if taint.key not in OURS or (taint.key, taint.effect) in wanted]
    present = {(taint.key, taint.effect) for taint in kept}
    added = [
        Taint(key=key, effect=effect, time_added=now if effect == NO_EXECUTE else None)
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return (*kept, *added)


def is_deaf(nodes: Iterable[Node]) -> bool:
    """Whether no node at all is ready: then it is more likely the controllers that hear nothing.

    (`handleDisruption` of the original, for a cluster of one zone)
    """
    ready = [condition_of(node.status.conditions, "Ready") for node in nodes]
    return bool(ready) and not any(one is not None and one.status == "True" for one in ready)


def _meant(node: Node) -> list[tuple[str, str]]:
    """Key and effect of every taint that the node's state means."""
    met = [
        key
        for (kind, status), key in CONDITION_TAINTS.items()
        if (condition := condition_of(node.status.conditions, kind)) is not None and condition.status == status
    ]
    if node.spec.unschedulable:
        met.append(UNSCHEDULABLE)
    return [
        *((key, NO_SCHEDULE) for key in met),
        *((key, NO_EXECUTE) for key in met if key in (NOT_READY, UNREACHABLE)),
    ]


def stay_seconds(pod: Pod, taints: Sequence[Taint]) -> float | None:
    """How long the pod may stay on a node with these taints: None for ever, 0 not at all.

    Only NoExecute taints count. The shortest `tolerationSeconds` among the tolerations in use decides.
    """
    limits: list[float] = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        using = [toleration for toleration in pod.spec.tolerations if tolerates(toleration, taint)]
        if not using:
            return 0
        limits += [max(0, one.toleration_seconds) for one in using if one.toleration_seconds is not None]
    return min(limits, default=None)


def silent_conditions(node: Node, *, now: datetime) -> list[dict[str, Any]]:
    """What the conditions of a node say whose kubelet is silent; empty when they say it already."""
    conditions = []
    for kind in KUBELET_CONDITIONS:
        before = condition_of(node.status.conditions, kind)
        if before is not None and before.status == "Unknown":
            continue
        never = before is None
        conditions.append(
            {
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                "message": f"Kubelet {'never posted' if never else 'stopped posting'} node status.",
                "lastTransitionTime": stamp(now),
            }
        )
    return conditions


def disruption(reason: str, message: str, *, now: datetime) -> dict[str, Any]:
    """The condition that tells a pod's owner why somebody else deletes it."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(now),
    }
