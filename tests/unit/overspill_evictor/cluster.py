"""A small made-up cluster for the evictor's tests: objects as an API server would list them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from overspill_events.names import SWITCH_TAINT, VIRTUAL_LABEL
from overspill_evictor.snapshot import Rules, Snapshot
from overspill_objects.apps import ReplicaSet
from overspill_objects.core import Node, Pod, ResourceQuota

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
RULES = Rules(
    resource=GPU,
    gate_settle=60,
    min_pod_age=300,
    max_per_cycle=5,
    max_in_flight=10,
    max_in_flight_per_owner=1,
    default_floor=1,
    refusal_retry=30,
    backoff=600,
    backoff_max=3600,
)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def view(cls: type[Any], data: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(data), type=cls)


def home(name: str = "home-1", *, gpus: int = 8, **spec: Any) -> Node:
    quantities = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    status = {"allocatable": quantities, "capacity": quantities, "conditions": [{"type": "Ready", "status": "True"}]}
    return view(Node, {"metadata": {"name": name, "uid": f"n-{name}"}, "spec": spec, "status": status})


def virtual(name: str = "virtual-1", *, closed: bool = True, ready: bool = True) -> Node:
    taints = [{"key": "overspill.dev/external", "effect": "NoSchedule"}]
    if closed:
        taints.append({"key": SWITCH_TAINT, "effect": "NoSchedule"})
    quantities = {"cpu": "10k", "memory": "100Ti", "pods": "10k", GPU: "1000"}
    ready_condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return view(
        Node,
        {
            "metadata": {"name": name, "uid": f"n-{name}", "labels": {VIRTUAL_LABEL: "true"}},
            "spec": {"taints": taints},
            "status": {"allocatable": quantities, "capacity": quantities, "conditions": [ready_condition]},
        },
    )


def replica_set(name: str = "web", *, replicas: int = 3, annotations: dict[str, str] | None = None) -> ReplicaSet:
    metadata = {"name": name, "namespace": "team", "uid": f"rs-{name}", "annotations": annotations or {}}
    container = {"name": "c", "resources": {"requests": {GPU: "1"}}}
    template = {"spec": {"containers": [container]}}
    return view(ReplicaSet, {"metadata": metadata, "spec": {"replicas": replicas, "template": template}})


def pod(
    name: str,
    *,
    node: str = "virtual-1",
    owner: str | None = "web",
    owner_kind: str = "ReplicaSet",
    gpus: int = 1,
    phase: str = "Running",
    ready: bool | None = None,
    age: float | None = 1000,
    priority: int | None = None,
    spillable: bool = True,
    leaving: bool = False,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    is_ready = phase == "Running" if ready is None else ready
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": f"p-{name}",
        "creationTimestamp": ago(age or 0),
        "labels": {"overspill.dev/spillable": "true"} if spillable else {},
        "annotations": annotations or {},
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": owner_kind, "name": owner, "uid": f"rs-{owner}", "controller": True}]
    if leaving:
        metadata["deletionTimestamp"] = ago(1)
    container = {"name": "c", "resources": {"requests": {GPU: str(gpus), "cpu": "1"}}}
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
    }
    if age is not None and node:
        status["startTime"] = ago(age)
    return view(
        Pod,
        {
            "metadata": metadata,
            "spec": {"containers": [container], "nodeName": node, "priority": priority, **spec},
            "status": status,
        },
    )


def quota(name: str = "gpus", *, hard: dict[str, str], used: dict[str, str]) -> ResourceQuota:
    return view(
        ResourceQuota,
        {
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"hard": hard},
            "status": {"hard": hard, "used": used},
        },
    )


def snapshot(*objects: Any, closed_for: float = 600, **more: Any) -> Snapshot:
    """`objects` sorted by kind; the gates of virtual nodes have been closed for `closed_for` seconds."""
    nodes = tuple(one for one in objects if isinstance(one, Node))
    owners = [one for one in objects if isinstance(one, ReplicaSet)] or [replica_set()]
    return Snapshot(
        nodes=nodes,
        pods=tuple(one for one in objects if isinstance(one, Pod)),
        replica_sets={one.metadata.uid: one for one in owners},
        quotas=tuple(one for one in objects if isinstance(one, ResourceQuota)),
        gate_closed_for=more.pop("gate_closed_for", {node.metadata.name: closed_for for node in nodes}),
        **more,
    )
