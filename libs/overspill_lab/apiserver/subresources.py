"""Binding and scale: writes that are shaped differently from the object they change."""

import msgspec

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import JsonObject, member, timestamp
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.resources import PODS, Resource
from overspill_lab.apiserver.store import Entry

_SCALES = Resource(group="autoscaling", kind="Scale", plural="scales", singular="scale")


def bind(registry: Registry, namespace: str, name: str, binding: JsonObject, *, dry_run: bool) -> None:
    """Assign a pod to a node. Raises 404, 409 (bound already, gated, ending, another UID) and 500 (no target)."""
    node = member(binding, "target", "name")
    metadata = binding.get("metadata") or {}
    if metadata.get("name", name) != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    if (kind := member(binding, "target", "kind")) not in (None, "", "Node"):
        raise errors.invalid(PODS, name, [FieldError.unsupported("target.kind", kind, ("Node", "<empty>"))])
    if not node:
        raise errors.server_error("target.name: Required value")
    pod = registry.read(PODS, namespace, name)
    _check_meant(pod, metadata)
    if why := _not_bindable(pod.obj, name):
        raise errors.conflict(PODS, name, why, subresource="binding")
    moment = timestamp(registry.now())

    def assign(obj: JsonObject) -> JsonObject:
        obj["spec"]["nodeName"] = node
        obj["status"].pop("nominatedNodeName", None)
        annotations = {**(obj["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
        labels = {**(obj["metadata"].get("labels") or {}), **(metadata.get("labels") or {})}
        obj["metadata"] |= {"annotations": annotations, "labels": labels}
        set_condition(obj, "PodScheduled", moment, status="True")
        return obj

    registry.rewrite(PODS, pod, assign, dry_run=dry_run)


def _check_meant(pod: Entry, metadata: JsonObject) -> None:
    for field, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        meant, known = metadata.get(field), pod.obj["metadata"][field]
        if meant and meant != known:
            why = f"Precondition failed: {what} in precondition: {meant}, {what} in object meta: {known}"
            raise errors.conflict(PODS, pod.name, why)


def _not_bindable(pod: JsonObject, name: str) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def set_condition(pod: JsonObject, kind: str, moment: str, **members: str) -> None:
    """Set one condition of a pod; its transition time moves only when the status does."""
    status = pod["status"]
    conditions = [condition for condition in status.get("conditions") or () if condition["type"] != kind]
    before = next((condition for condition in status.get("conditions") or () if condition["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == members["status"] else moment
    condition = {"type": kind, "lastProbeTime": None, "lastTransitionTime": since, **members}
    status["conditions"] = [*conditions, condition]


def read_scale(entry: Entry) -> JsonObject:
    """Return the `autoscaling/v1` Scale of a Deployment or ReplicaSet."""
    metadata, spec, status = entry.obj["metadata"], entry.obj["spec"], entry.obj.get("status") or {}
    selector = spec.get("selector") or {}
    shown = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in metadata
        },
        "spec": {"replicas": spec["replicas"]} if spec["replicas"] else {},
        "status": {"replicas": status.get("replicas", 0), "selector": ",".join(shown)},
    }


class _ScaleSpec(msgspec.Struct):
    replicas: int = 0


def scaled(name: str, scale: JsonObject) -> int:
    """Return the replicas that a Scale asks for; raises UndecodableError and 422."""
    try:
        replicas = msgspec.convert(scale.get("spec") or {}, _ScaleSpec).replicas
    except msgspec.ValidationError as problem:
        raise errors.UndecodableError(f'Scale in version "v1" cannot be handled as a Scale: {problem}') from problem
    if replicas < 0:
        negative = FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(_SCALES, name, [negative])
    return replicas
