"""The virtual node as an API object: its body when created, and what has to be repaired later. Pure.

The switch taint is written once, in the body: a new node takes nothing until somebody decides so. Afterwards it is the
decider's alone, and nothing here may bring it back.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from overspill_events.names import (
    BASE_TAINT,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    PREFERENCE_TAINT,
    PROVIDER_CONDITION,
    SWITCH_TAINT,
    VIRTUAL_LABEL,
)
from overspill_objects.core import Node, Taint
from overspill_objects.meta import condition_of

SPARE_PODS = 110  # besides one per GPU: DaemonSets that tolerate everything land here and must not use up the places
VERSION_SUFFIX = "-overspill"  # of every version; the admission policies know a virtual node by it too
VERSION = f"v0.1.0{VERSION_SUFFIX}"
PERMANENT_TAINTS = (
    Taint(key=BASE_TAINT, value="true", effect=NO_SCHEDULE),
    Taint(key=PREFERENCE_TAINT, value="true", effect=PREFER_NO_SCHEDULE),
)
# No kubernetes.io/hostname and no zone: an extra, empty domain would stall pods that must spread over home's.
LABELS = {
    VIRTUAL_LABEL: "true",
    "type": "virtual-kubelet",  # cluster-autoscaler and others leave such nodes out of their sums
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}


class NodeShape(Struct, frozen=True, kw_only=True):
    """What the node is to offer."""

    name: str
    resource: str
    gpus: int
    cpus: int
    memory_gib: int


def node_body(shape: NodeShape, *, health: Mapping[str, str | None], now: datetime) -> dict[str, Any]:
    """The whole object for a create, gate closed."""
    switch = Taint(key=SWITCH_TAINT, value="true", effect=NO_SCHEDULE)
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in (*PERMANENT_TAINTS, switch)]
    return {
        "metadata": {"name": shape.name, "labels": dict(LABELS)},
        "spec": {"taints": taints},
        "status": _static_status(shape) | {"conditions": _conditions(None, health, now=now)},
    }


def is_virtual_kubelet(node: Node) -> bool:
    """Whether a node of our name is one that a bridge made; a real node is never taken over.

    The label may have been taken off; the version in the status is written by a bridge alone.
    """
    version = str((node.status.node_info or {}).get("kubeletVersion", ""))
    return node.metadata.labels.get(VIRTUAL_LABEL) == "true" or version.endswith(VERSION_SUFFIX)


def missing_taints(node: Node) -> tuple[Taint, ...]:
    """The permanent taints that somebody has removed or weakened."""
    present = {(taint.key, taint.effect) for taint in node.spec.taints}
    return tuple(taint for taint in PERMANENT_TAINTS if (taint.key, taint.effect) not in present)


def label_patch(node: Node) -> dict[str, Any] | None:
    """A merge patch of metadata that restores our labels; others' stay."""
    missing = {key: value for key, value in LABELS.items() if node.metadata.labels.get(key) != value}
    return {"metadata": {"uid": node.metadata.uid, "labels": missing}} if missing else None


def status_patch(
    node: Node, shape: NodeShape, *, health: Mapping[str, str | None], now: datetime, heartbeat: bool
) -> dict[str, Any] | None:
    """A strategic merge patch of status: what differs, and on a heartbeat all our conditions with a new time.

    `health` is one entry per provider: None, or why it does not answer.
    """
    conditions = _conditions(node, health, now=now)
    if not heartbeat:
        conditions = [entry for entry in conditions if not _says(node, entry)]
    static = _static_status(shape)
    patch: dict[str, Any] = {"conditions": conditions} if conditions else {}
    for field, current in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        if any(str(current.get(name)) != value for name, value in static[field].items()):
            patch[field] = static[field]
    if (node.status.node_info or {}).get("kubeletVersion") != VERSION:
        patch["nodeInfo"] = static["nodeInfo"]
    return {"metadata": {"uid": node.metadata.uid}, "status": patch} if patch else None


def _static_status(shape: NodeShape) -> dict[str, Any]:
    capacity = {
        shape.resource: str(shape.gpus),
        "cpu": str(shape.cpus),
        "memory": f"{shape.memory_gib}Gi",
        "ephemeral-storage": f"{shape.memory_gib}Gi",
        "pods": str(shape.gpus + SPARE_PODS),
    }
    info = {
        "kubeletVersion": VERSION,
        "kubeProxyVersion": VERSION,
        "operatingSystem": "linux",
        "architecture": "amd64",
        "osImage": "Overspill virtual node",
        "kernelVersion": "none",
        "containerRuntimeVersion": "overspill://0",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
    return {"capacity": capacity, "allocatable": dict(capacity), "nodeInfo": info}


def _conditions(node: Node | None, health: Mapping[str, str | None], *, now: datetime) -> list[dict[str, Any]]:
    """Ready stays True whatever a provider does: NotReady would have running pods evicted and paid for twice."""
    wanted = [
        ("Ready", "True", "BridgeReady", "the bridge is running"),
        ("MemoryPressure", "False", "NoPressure", ""),
        ("DiskPressure", "False", "NoPressure", ""),
        ("PIDPressure", "False", "NoPressure", ""),
        ("NetworkUnavailable", "False", "NoRoutesNeeded", ""),
    ]
    for provider, problem in health.items():
        name = f"{PROVIDER_CONDITION}{provider}"
        if problem is None:
            wanted.append((name, "True", "Answers", ""))
        else:
            wanted.append((name, "False", "DoesNotAnswer", problem[:1000]))
    return [_condition(node, *entry, now=now) for entry in wanted]


def _condition(
    node: Node | None, type_: str, status: str, reason: str, message: str, *, now: datetime
) -> dict[str, Any]:
    current = None if node is None else condition_of(node.status.conditions, type_)
    changed = now
    if current is not None and current.status == status and current.last_transition_time is not None:
        changed = current.last_transition_time
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": _time(now),
        "lastTransitionTime": _time(changed),
    }


def _says(node: Node, entry: Mapping[str, Any]) -> bool:
    current = condition_of(node.status.conditions, entry["type"])
    return current is not None and (current.status, current.reason) == (entry["status"], entry["reason"])


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
