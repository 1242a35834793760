"""Small, valid Kubernetes objects for the contract suite, and the parts that tests play themselves (a kubelet's status)."""

from __future__ import annotations

import itertools
import os
from typing import Any

from tests.contract.kubernetes.client import MERGE_PATCH, STRATEGIC_PATCH, Api, Object

PODS = "/api/v1/namespaces/{}/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
REPLICA_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
CLUSTER_QUEUES = "/apis/kueue.x-k8s.io/{version}/clusterqueues"
FLAVORS = "/apis/kueue.x-k8s.io/{version}/resourceflavors"
LOCAL_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"

# A scheduler that nobody runs: pods that ask for it stay where a test puts them.
NOBODY = "nobody"
READY = {"type": "Ready", "status": "True"}

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """A name that no other test of this run uses, for what has no namespace."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def nowhere() -> str:
    """A node that does not exist, for a pod that need not run, under a name of its own: pods on a name that was missed
    before are collected as orphans, whichever test they are of.
    """
    return unique("nowhere")


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    """The simplest object there is; it has no spec and so no generation."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod_spec(*, gpus: int = 0, cpu: str = "10m", **spec: Any) -> Object:
    """One container, which asks for this much."""
    resources: Object = {"requests": {"cpu": cpu}}
    if gpus:
        resources = {"requests": {"cpu": cpu, "nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}], **spec}


def pod(name: str, *, labels: dict[str, str] | None = None, gpus: int = 0, cpu: str = "10m", **spec: Any) -> Object:
    """A pod that no scheduler looks at, unless the test names one."""
    spec = {"schedulerName": NOBODY, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": pod_spec(gpus=gpus, cpu=cpu, **spec),
    }


def template(labels: dict[str, str], **spec: Any) -> Object:
    """A pod template whose pods no scheduler looks at."""
    return {"metadata": {"labels": labels}, "spec": pod_spec(**{"schedulerName": NOBODY, **spec})}


def replica_set(name: str, replicas: int, **spec: Any) -> Object:
    """A ReplicaSet of pods labelled app=<name>."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels, **spec)},
    }


def deployment(name: str, replicas: int) -> Object:
    """A Deployment of pods labelled app=<name>."""
    return {**replica_set(name, replicas), "kind": "Deployment"}


def job(name: str, **spec: Any) -> Object:
    """A Job of one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template({"job": name}, restartPolicy="Never"), **spec},
    }


def budget(name: str, labels: dict[str, str], **spec: Any) -> Object:
    """A PodDisruptionBudget over the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, **spec},
    }


def lease(name: str, holder: str, **spec: Any) -> Object:
    """A Lease held by somebody."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, **spec},
    }


def node(name: str, *, labels: dict[str, str] | None = None, taints: list[Object] | None = None) -> Object:
    """A node that nobody has reported ready yet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints} if taints else {},
    }


async def bind(api: Api, namespace: str, name: str, node_name: str) -> None:
    """Assign a pod to a node as a scheduler does."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
    (await api.post(f"{PODS.format(namespace)}/{name}/binding", body)).ok()


async def run(api: Api, namespace: str, name: str, node_name: str | None = None) -> Object:
    """Play scheduler and kubelet: bind the pod when a node is given, then report it Running and Ready."""
    if node_name is not None:
        await bind(api, namespace, name, node_name)
    return await report(api, namespace, name, phase="Running", conditions=[READY])


async def report(api: Api, namespace: str, name: str, **status: Any) -> Object:
    """Play kubelet: write these fields of the pod's status."""
    path = f"{PODS.format(namespace)}/{name}/status"
    return (await api.patch(path, {"status": status}, STRATEGIC_PATCH)).ok()


async def make_ready(api: Api, name: str, *, gpus: int = 0, cpu: str = "100") -> Object:
    """Play kubelet: report the node Ready with this capacity, and wait until its not-ready taint is gone."""
    amounts = {"cpu": cpu, "memory": "100Gi", "pods": "1000", "nvidia.com/gpu": str(gpus)}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
    (await api.patch(f"{NODES}/{name}/status", {"status": status}, STRATEGIC_PATCH)).ok()
    return await api.eventually(
        f"{NODES}/{name}",
        lambda seen: not [taint for taint in seen["spec"].get("taints", []) if "not-ready" in taint["key"]],
        f"node {name} loses its not-ready taint",
    )


async def scheduler_knows(api: Api, namespace: str, node_name: str) -> None:
    """Wait until the scheduler has heard of the node as it is now.

    It hears of nodes and of pods by two watches, so a pod may be judged by what a node was before the pod was made. A
    label that is put on the node now comes after every earlier change: nobody places a pod that asks for it before.
    """
    mark, name = {"contract.test/mark": unique("mark")}, unique("probe")
    (await api.patch(f"{NODES}/{node_name}", {"metadata": {"labels": mark}})).ok()
    probe = pod(name, schedulerName="default-scheduler", nodeSelector=mark, tolerations=[{"operator": "Exists"}])
    del probe["spec"]["containers"][0]["resources"]  # it fits everywhere
    (await api.post(PODS.format(namespace), probe)).ok()
    path = f"{PODS.format(namespace)}/{name}"
    await api.eventually(path, lambda seen: seen["spec"].get("nodeName"), f"the scheduler knows {node_name}")
    await kill(api, path)


async def kill(api: Api, path: str) -> None:
    """Take an object away at once, finalizers and grace set aside; nothing happens when it is not there."""
    await api.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    await api.delete(path, gracePeriodSeconds="0")
