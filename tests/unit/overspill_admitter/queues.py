"""Queues, Jobs and pods for the admitter's tests: objects as an API server would list them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from overspill_admitter.policy import Plan, Rules, Snapshot, decide
from overspill_admitter.room import seeks_devices
from overspill_admitter.workload import queue_of, read_workloads
from overspill_capacity.room import HomeSnapshot
from overspill_events.names import ADMISSION_GATE, QUEUE_LABEL, VIRTUAL_LABEL
from overspill_objects.batch import Job
from overspill_objects.core import Node, Pod
from overspill_objects.queues import ClusterQueue, LocalQueue, ResourceFlavor
from overspill_objects.scheduling import PriorityClass

GPU = "nvidia.com/gpu"
START = datetime(2030, 1, 1, 12, tzinfo=UTC)


def view(cls: type[Any], data: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(data), type=cls)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def home(name: str = "home-1", *, gpus: int = 8) -> Node:
    quantities = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    status = {"allocatable": quantities, "capacity": quantities, "conditions": [{"type": "Ready", "status": "True"}]}
    return view(Node, {"metadata": {"name": name, "uid": name}, "status": status})


def template(*, gpus: int, priority_class: str = "", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {GPU: str(gpus)} if gpus else {}}}
    return {"containers": [container], "priorityClassName": priority_class} | spec


def job(
    name: str,
    *,
    gpus: int = 1,
    queue: str | None = "research",
    suspend: bool = True,
    parallelism: int = 1,
    completions: int | None = None,
    created: float = 0,
    priority_class: str = "",
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    version: int = 1,
    namespace: str = "team",
    **spec: Any,
) -> Job:
    metadata = {
        "name": name, "namespace": namespace, "uid": f"j-{name}", "creationTimestamp": at(created), "resourceVersion": str(version),
        "labels": {QUEUE_LABEL: queue} if queue is not None else {}, "annotations": annotations or {},
    }  # fmt: skip
    body = {
        "suspend": suspend, "parallelism": parallelism, "completions": completions,
        "template": {"spec": template(gpus=gpus, priority_class=priority_class, **spec)},
    }  # fmt: skip
    return view(Job, {"metadata": metadata, "spec": body, "status": status or {}})


def pod(
    name: str,
    *,
    gpus: int = 1,
    queue: str | None = "research",
    gated: bool = False,
    node: str = "",
    phase: str = "",
    owner: tuple[str, str] | None = None,
    created: float = 0,
    leaving: bool = False,
    **spec: Any,
) -> Pod:
    metadata: dict[str, Any] = {
        "name": name, "namespace": "team", "uid": f"p-{name}", "creationTimestamp": at(created), "resourceVersion": "1",
        "labels": {QUEUE_LABEL: queue} if queue is not None else {},
    }  # fmt: skip
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}]
    if leaving:
        metadata["deletionTimestamp"] = at(created)
    gates = [{"name": ADMISSION_GATE}] if gated else []
    body = {**template(gpus=gpus), "nodeName": node, "schedulingGates": gates, **spec}
    return view(
        Pod, {"metadata": metadata, "spec": body, "status": {"phase": phase or ("Running" if node else "Pending")}}
    )


def flavor(name: str = "home", *, virtual: bool = False, **spec: Any) -> ResourceFlavor:
    labels = {VIRTUAL_LABEL: "true"} if virtual else {}
    return view(ResourceFlavor, {"metadata": {"name": name}, "spec": {"nodeLabels": labels, **spec}})


def cluster_queue(
    name: str = "training", *, quota: dict[str, int | str] | None = None, resource: str = GPU, **spec: Any
) -> ClusterQueue:
    """`quota`: flavor → nominal of `resource`, in order."""
    flavors = [
        {"name": f, "resources": [{"name": resource, "nominalQuota": n}]} for f, n in (quota or {"home": 8}).items()
    ]
    group = {"coveredResources": [resource], "flavors": flavors}
    return view(
        ClusterQueue, {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec}}
    )


def local_queue(name: str = "research", *, cluster_queue: str = "training", **spec: Any) -> LocalQueue:
    metadata = {"name": name, "namespace": "team"}
    return view(LocalQueue, {"metadata": metadata, "spec": {"clusterQueue": cluster_queue, **spec}})


def snapshot(*objects: Any, **more: Any) -> Snapshot:
    """`objects` sorted by kind. Without queue objects: LocalQueue research → ClusterQueue training, 8 GPUs of flavor home."""
    pods = tuple(one for one in objects if isinstance(one, Pod))
    nodes = tuple(one for one in objects if isinstance(one, Node)) or (home(),)
    locals_ = [one for one in objects if isinstance(one, LocalQueue)] or [local_queue()]
    queues = [one for one in objects if isinstance(one, ClusterQueue)] or [cluster_queue()]
    flavors = [one for one in objects if isinstance(one, ResourceFlavor)] or [flavor(), flavor("virtual", virtual=True)]
    jobs = tuple(one for one in objects if isinstance(one, Job))
    classes = tuple(one for one in objects if isinstance(one, PriorityClass))
    job_uids = {one.metadata.uid for one in jobs if queue_of(one.metadata)}
    under_way = tuple(
        one
        for one in pods
        if seeks_devices(one, resource=GPU)
        and not queue_of(one.metadata)
        and not any(owner.uid in job_uids for owner in one.metadata.owner_references)
    )
    return Snapshot(
        workloads=read_workloads(jobs, pods, classes),
        local_queues={(one.metadata.namespace, one.metadata.name): one for one in locals_},
        cluster_queues={one.metadata.name: one for one in queues},
        flavors={one.metadata.name: one for one in flavors},
        namespaces=more.pop("namespaces", {"team": {"kubernetes.io/metadata.name": "team"}}),
        home=HomeSnapshot.build(nodes, pods, resource=GPU, reservations=more.pop("reservations", ())),
        under_way=under_way,
        **more,
    )


def plan(*objects: Any, rules: Rules | None = None, **more: Any) -> Plan:
    return decide(snapshot(*objects, **more), rules or Rules())


def admitted(result: Plan) -> list[str]:
    return [one.workload.ref.name for one in result.admits]
