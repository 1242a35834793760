"""Pods and nodes for the tests of the lab's moving parts, in as few words as a test needs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from overspill_objects.core import Node, Pod

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def time(seconds: float = 0) -> str:
    """NOW plus some seconds, as objects have it."""
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def pod(
    name: str = "p",
    *,
    requests: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Pod:
    """A pod with one container; its uid is its name."""
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": time(), **(metadata or {})},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests or {}}}],
            **(spec or {}),
        },
        "status": {"phase": "Pending", **(status or {})},
    }
    return msgspec.convert(document, type=Pod)


def running(name: str = "p", *, ready_for: float = 60, **more: Any) -> Pod:
    """A pod that runs on node n and has been ready for some seconds."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": time(-ready_for)}
    return pod(
        name,
        metadata={"creationTimestamp": time(-ready_for), **more.pop("metadata", {})},
        spec={"nodeName": "n", **more.pop("spec", {})},
        status={"phase": "Running", "conditions": [ready], **more.pop("status", {})},
        **more,
    )


def node(
    name: str = "n",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    gpus: int = 8,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    conditions: Mapping[str, str] | None = None,
) -> Node:
    """A node that is ready, unless its conditions say otherwise."""
    document = {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": str(pods), GPU: str(gpus)},
            "conditions": [
                {"type": kind, "status": status} for kind, status in (conditions or {"Ready": "True"}).items()
            ],
        },
    }
    return msgspec.convert(document, type=Node)
