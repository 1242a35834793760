"""The nodes that a nodes file describes, as the objects and leases that their kubelets would write.

Pure. A nodes file is a JSON list of `{"name", "cpu", "memory", "gpus", "model"}`; quantities as in Kubernetes.
"""

from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from overspill_events.names import GPU_RESOURCE
from overspill_lab.stamps import micro_stamp, stamp
from overspill_objects.quantity import parse_quantity

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
PODS_PER_NODE: Final = 110
MADE_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MADE_BY: Final = "overspill-lab"
MODEL_LABEL: Final = "nvidia.com/gpu.product"
VERSION: Final = "v1.37.2"
CONDITIONS: Final = (  # type, status, reason, message: what a healthy kubelet says
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class NodesFileError(Exception):
    """The nodes file cannot be used; the message names the file, the entry and the field."""


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One home node."""

    name: str
    cpu: str | int
    memory: str | int
    gpus: int = 0
    model: str = ""


def read_machines(file: Path) -> tuple[Machine, ...]:
    """The machines of a nodes file. Raises NodesFileError."""
    try:
        machines = msgspec.json.decode(file.read_bytes(), type=tuple[Machine, ...])
        for machine in machines:
            for quantity in (machine.cpu, machine.memory):
                parse_quantity(quantity)
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors that name the path in the document
        raise NodesFileError(f"nodes file {file}: {error}") from error
    names = [machine.name for machine in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NodesFileError(f"nodes file {file}: named twice: {', '.join(twice)}")
    return machines


def node_object(machine: Machine, *, now: datetime) -> dict[str, Any]:
    """The Node as its kubelet registers it, status included."""
    labels = {
        MADE_BY_LABEL: MADE_BY,
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    if machine.model:
        labels[MODEL_LABEL] = machine.model
    return {"metadata": {"name": machine.name, "labels": labels}, "status": node_status(machine, now=now)}


def node_status(machine: Machine, *, now: datetime) -> dict[str, Any]:
    """The status of a healthy node."""
    offered: dict[str, str] = {"cpu": str(machine.cpu), "memory": str(machine.memory), "pods": str(PODS_PER_NODE)}
    if machine.gpus:
        offered[GPU_RESOURCE] = str(machine.gpus)
    return {
        "capacity": offered,
        "allocatable": offered,
        "conditions": [_condition(*condition, now=now) for condition in CONDITIONS],
        "addresses": [{"type": "Hostname", "address": machine.name}],
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": VERSION,
            "osImage": "overspill lab",
            "containerRuntimeVersion": "lab://1",
            "kernelVersion": "",
            "bootID": "",
            "machineID": "",
            "systemUUID": "",
            "kubeProxyVersion": "",
        },
    }


def lease_object(machine: Machine, *, owner_uid: str, now: datetime) -> dict[str, Any]:
    """The node's lease, owned by the node so that it goes with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": owner_uid}
    return {
        "metadata": {"name": machine.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": machine.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_stamp(now),
        },
    }


def _condition(kind: str, status: str, reason: str, message: str, *, now: datetime) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": stamp(now),
    }
