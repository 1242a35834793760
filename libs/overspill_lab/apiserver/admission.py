"""What Overspill's MutatingAdmissionPolicies do on a real cluster, applied by the lab itself.

Pure: takes an object that the built-in plugins have completed, changes it in place. The lab has no policy engine
(it does not serve those kinds); this is the same outcome, so that demo and tests see pods as a cluster with the
policies would make them. Only objects that carry our labels are touched.
"""

from collections.abc import Callable

from overspill_events.names import (
    ADMISSION_GATE,
    BASE_TAINT,
    GPU_PRIORITY_CLASS_PREFIX,
    GPU_RESOURCE,
    NO_SCHEDULE,
    QUEUE_LABEL,
    SPILLABLE_LABEL,
    VIRTUAL_LABEL,
)
from overspill_lab.apiserver.documents import JsonObject

# The PriorityClass of a name, or None where there is none.
ClassOf = Callable[[str], JsonObject | None]

_HOME_WEIGHT = 100
_HOME_TERM = {"key": VIRTUAL_LABEL, "operator": "DoesNotExist"}


def admit_pod(pod: JsonObject, class_of: ClassOf) -> None:
    """Make a new pod spillable, gated and prioritised, as its labels ask."""
    labels = pod["metadata"].get("labels") or {}
    spec = pod["spec"]
    if labels.get(SPILLABLE_LABEL) == "true":
        _tolerate_base_taint(spec)
        _prefer_home(spec)
    if QUEUE_LABEL in labels:
        if not _has_controller(pod):
            _gate(spec)
        if found := _class_by_gpus(spec, class_of):
            spec["priorityClassName"] = found["metadata"]["name"]
            # The Priority plugin has already computed these for "no class": all must change together.
            spec["priority"], spec["preemptionPolicy"] = found["value"], found["preemptionPolicy"]


def admit_job(job: JsonObject, class_of: ClassOf) -> None:
    """Hold a new Job that belongs to a queue, and give its pods a class where none was chosen."""
    if QUEUE_LABEL not in (job["metadata"].get("labels") or {}):
        return
    spec = job["spec"]
    spec["suspend"] = True
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    if found := _class_by_gpus(pod_spec, class_of):
        pod_spec["priorityClassName"] = found["metadata"]["name"]


def _tolerate_base_taint(spec: JsonObject) -> None:
    tolerations = spec.setdefault("tolerations", [])
    if not any(toleration.get("key") == BASE_TAINT for toleration in tolerations):
        tolerations.append({"key": BASE_TAINT, "operator": "Exists", "effect": NO_SCHEDULE})


def _prefer_home(spec: JsonObject) -> None:
    node_affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    preferences = node_affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    mentioned = any(
        expression.get("key") == VIRTUAL_LABEL
        for term in preferences
        for expression in (term.get("preference") or {}).get("matchExpressions") or ()
    )
    if not mentioned:
        preferences.append({"weight": _HOME_WEIGHT, "preference": {"matchExpressions": [dict(_HOME_TERM)]}})


def _has_controller(pod: JsonObject) -> bool:
    return any(reference.get("controller") for reference in pod["metadata"].get("ownerReferences") or ())


def _gate(spec: JsonObject) -> None:
    gates = spec.setdefault("schedulingGates", [])
    if not any(gate.get("name") == ADMISSION_GATE for gate in gates):
        gates.append({"name": ADMISSION_GATE})


def _class_by_gpus(spec: JsonObject, class_of: ClassOf) -> JsonObject | None:
    if spec.get("priorityClassName"):
        return None
    limits = [(container.get("resources") or {}).get("limits") or {} for container in spec.get("containers") or ()]
    gpus = sum(int(limit.get(GPU_RESOURCE, 0)) for limit in limits)
    return class_of(f"{GPU_PRIORITY_CLASS_PREFIX}{gpus}") if gpus else None
