"""Rows for people: the Table form of every kind, so that a plain `kubectl get` shows what it shows on a real cluster.

Pure. Columns follow `pkg/printers/internalversion`; kinds without columns of their own show name and age.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from overspill_lab.apiserver.documents import JsonObject, parse_timestamp
from overspill_lab.apiserver.pod_rows import pod_cells
from overspill_lab.apiserver.resources import (
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    Resource,
)

Cells = Callable[[JsonObject, datetime], list[Any]]


class _Layout(Struct, frozen=True):
    """Columns as "Name", or "Name:type"; a trailing "*" shows the column only with `-o wide`."""

    columns: tuple[str, ...]
    cells: Cells


def age(obj: JsonObject, now: datetime) -> str:
    """Return how old an object is, as kubectl writes it."""
    created = obj["metadata"].get("creationTimestamp")
    return duration((now - parse_timestamp(created)).total_seconds()) if created else "<unknown>"


def duration(seconds: float) -> str:
    """Write a span as `duration.HumanDuration` does: the shorter, the finer."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 2:  # noqa: PLR2004  the steps are kubectl's
        return f"{whole}s"
    if minutes < 10:  # noqa: PLR2004
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:  # noqa: PLR2004
        return f"{minutes}m"
    if hours < 8:  # noqa: PLR2004
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:  # noqa: PLR2004
        return f"{hours}h"
    return f"{days}d"


def _node(node: JsonObject, now: datetime) -> list[Any]:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    ready = next((c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"), "Unknown")
    shown = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if spec.get("unschedulable"):
        shown += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    info = status.get("nodeInfo") or {}
    address = next((a["address"] for a in status.get("addresses") or () if a["type"] == "InternalIP"), "<none>")
    wide = [info.get(field) or "<unknown>" for field in ("osImage", "kernelVersion", "containerRuntimeVersion")]
    version = info.get("kubeletVersion", "")
    return [shown, ",".join(roles) or "<none>", age(node, now), version, address, "<none>", *wide]


def _namespace(namespace: JsonObject, now: datetime) -> list[Any]:
    return [(namespace.get("status") or {}).get("phase", ""), age(namespace, now)]


def _deployment(deployment: JsonObject, now: datetime) -> list[Any]:
    spec, status = deployment["spec"], deployment.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec['replicas']}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [ready, *counts, age(deployment, now), *_template_columns(spec)]


def _replica_set(replica_set: JsonObject, now: datetime) -> list[Any]:
    spec, status = replica_set["spec"], replica_set.get("status") or {}
    counts = [spec["replicas"], status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [*counts, age(replica_set, now), *_template_columns(spec)]


def _template_columns(spec: JsonObject) -> list[str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    labels = ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    names, images = (",".join(container.get(field, "") for container in containers) for field in ("name", "image"))
    return [names, images, ",".join(f"{key}={value}" for key, value in sorted(labels)) or "<none>"]


def _job(job: JsonObject, now: datetime) -> list[Any]:
    spec, status = job["spec"], job.get("status") or {}
    started, ended = status.get("startTime"), status.get("completionTime")
    took = ""
    if started:
        took = duration(((parse_timestamp(ended) if ended else now) - parse_timestamp(started)).total_seconds())
    wanted = spec.get("completions", spec.get("parallelism", 1))
    completions = f"{status.get('succeeded', 0)}/{wanted}"
    return [_job_status(spec, status), completions, took, age(job, now), *_template_columns(spec)]


def _job_status(spec: JsonObject, status: JsonObject) -> str:
    true = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    for condition in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition in true:
            return condition
    return "Suspended" if spec.get("suspend") else "Running"


def _budget(budget: JsonObject, now: datetime) -> list[Any]:
    spec, status = budget["spec"], budget.get("status") or {}
    bounds = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [*bounds, status.get("disruptionsAllowed", 0), age(budget, now)]


def _lease(lease: JsonObject, now: datetime) -> list[Any]:
    return [(lease.get("spec") or {}).get("holderIdentity", ""), age(lease, now)]


def _event(event: JsonObject, now: datetime) -> list[Any]:
    involved = event.get("involvedObject") or {}
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    seen = duration((now - parse_timestamp(last)).total_seconds())
    what = f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"
    return [seen, event.get("type", ""), event.get("reason", ""), what, event.get("message", "").strip()]


def _priority_class(priority_class: JsonObject, now: datetime) -> list[Any]:
    is_default = bool(priority_class.get("globalDefault"))
    return [priority_class["value"], is_default, age(priority_class, now), priority_class["preemptionPolicy"]]


def _cluster_queue(queue: JsonObject, now: datetime) -> list[Any]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    cohort = spec.get("cohortName", spec.get("cohort", ""))
    return [cohort, status.get("pendingWorkloads", 0), status.get("admittedWorkloads", 0), age(queue, now)]


def _local_queue(queue: JsonObject, now: datetime) -> list[Any]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    counts = [status.get("pendingWorkloads", 0), status.get("admittedWorkloads", 0)]
    return [spec.get("clusterQueue", ""), *counts, age(queue, now)]


_TEMPLATE_COLUMNS = ("Containers*", "Images*", "Selector*")
_LAYOUTS: dict[Resource, _Layout] = {
    PODS: _Layout(
        ("Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"),
        lambda pod, now: pod_cells(pod, now, age=age(pod, now), since=duration),
    ),
    NODES: _Layout(
        (
            "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*", "Kernel-Version*",
            "Container-Runtime*",
        ),
        _node,
    ),
    NAMESPACES: _Layout(("Status", "Age"), _namespace),
    DEPLOYMENTS: _Layout(("Ready", "Up-to-date:integer", "Available:integer", "Age", *_TEMPLATE_COLUMNS), _deployment),
    REPLICA_SETS: _Layout(
        ("Desired:integer", "Current:integer", "Ready:integer", "Age", *_TEMPLATE_COLUMNS), _replica_set
    ),
    JOBS: _Layout(("Status", "Completions", "Duration", "Age", *_TEMPLATE_COLUMNS), _job),
    DISRUPTION_BUDGETS: _Layout(
        ("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _budget
    ),
    LEASES: _Layout(("Holder", "Age"), _lease),
    PRIORITY_CLASSES: _Layout(("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"), _priority_class),
    CLUSTER_QUEUES: _Layout(
        ("Cohort", "Pending Workloads:integer", "Admitted Workloads*:integer", "Age"), _cluster_queue
    ),
    LOCAL_QUEUES: _Layout(
        ("ClusterQueue", "Pending Workloads:integer", "Admitted Workloads:integer", "Age"), _local_queue
    ),
}  # fmt: skip
_PLAIN = _Layout(("Age",), lambda obj, now: [age(obj, now)])
_EVENT_LAYOUT = _Layout(("Last Seen", "Type", "Reason", "Object", "Message"), _event)


def columns(resource: Resource) -> list[JsonObject]:
    """Return the column definitions of a kind; Events have no name column, as their names say nothing."""
    names = _EVENT_LAYOUT.columns if resource is EVENTS else ("Name:name", *_LAYOUTS.get(resource, _PLAIN).columns)
    return [_column(text) for text in names]


def _column(text: str) -> JsonObject:
    name, _, kind = text.partition(":")
    wide = name.endswith("*")
    is_name = kind == "name"
    return {
        "name": name.rstrip("*"),
        "type": "string" if is_name or not kind else kind,
        "format": "name" if is_name else "",
        "description": "",
        "priority": 1 if wide else 0,
    }


def cells(resource: Resource, obj: JsonObject, now: datetime) -> list[Any]:
    """Return one object's row, in the order of `columns`."""
    if resource is EVENTS:
        return _event(obj, now)
    return [obj["metadata"]["name"], *_LAYOUTS.get(resource, _PLAIN).cells(obj, now)]
