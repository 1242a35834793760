"""Kubernetes' own admission plugins that clients depend on: NamespaceLifecycle, Priority, DefaultTolerationSeconds,
TaintNodesByCondition.

They read the store and complete or refuse a new object. Overspill's own mutations are in `admission` and run after
these.
"""

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from overspill_lab.apiserver.store import Store

_NOT_READY = "node.kubernetes.io/not-ready"
_OUTAGE_TAINTS = (_NOT_READY, "node.kubernetes.io/unreachable")
_OUTAGE_SECONDS = 300


def admit_create(resource: Resource, namespace: str, obj: JsonObject, store: Store) -> None:
    """Run the plugins on a new object. Raises 404 for a missing namespace, 403 for what a plugin refuses."""
    if resource.namespaced:
        _namespace_lifecycle(resource, namespace, obj, store)
    if resource is PODS:
        _priority(obj, store)
        _default_toleration_seconds(obj["spec"])
    elif resource is NODES:
        _taint_not_ready(obj)
    elif resource is PRIORITY_CLASSES:
        _only_default(obj, store)


def admit_update(resource: Resource, obj: JsonObject, store: Store) -> None:
    """Run the plugins on a new state: a default toleration that was dropped comes back."""
    if resource is PODS:
        _default_toleration_seconds(obj["spec"])
    elif resource is PRIORITY_CLASSES:
        _only_default(obj, store)


def _only_default(priority_class: JsonObject, store: Store) -> None:
    """Priority: at most one class is the default of the cluster."""
    if not priority_class.get("globalDefault"):
        return
    name = priority_class["metadata"]["name"]
    for entry in store.collection(PRIORITY_CLASSES).entries.values():
        if entry.name != name and entry.obj.get("globalDefault"):
            why = f"PriorityClass {entry.name} is already marked as default. Only one default can exist"
            raise errors.forbidden(PRIORITY_CLASSES, name, why)


def _taint_not_ready(node: JsonObject) -> None:
    """TaintNodesByCondition: a new node is not ready until the node lifecycle controller has seen that it is."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any((taint.get("key"), taint.get("effect")) == (_NOT_READY, "NoSchedule") for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


def _namespace_lifecycle(resource: Resource, namespace: str, obj: JsonObject, store: Store) -> None:
    entry = store.collection(NAMESPACES).entries.get(namespace)
    if entry is None:
        raise errors.not_found(NAMESPACES, namespace)
    if "deletionTimestamp" in entry.obj["metadata"]:
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise errors.forbidden(
            resource, obj["metadata"].get("name", ""), why, causes=[{**cause, "field": "metadata.namespace"}]
        )


def _priority(pod: JsonObject, store: Store) -> None:
    spec = pod["spec"]
    classes = store.collection(PRIORITY_CLASSES).entries
    name = spec.get("priorityClassName", "")
    if not name:
        name = next((entry.name for entry in classes.values() if entry.obj.get("globalDefault")), "")
    value, preemption = 0, "PreemptLowerPriority"
    if name:
        entry = classes.get(name)
        if entry is None:
            raise errors.forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        spec["priorityClassName"] = name
        value, preemption = entry.obj["value"], entry.obj["preemptionPolicy"]
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, pod["metadata"]["name"], why)
    if spec.get("preemptionPolicy", preemption) != preemption:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {preemption} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, pod["metadata"]["name"], why)
    spec["priority"], spec["preemptionPolicy"] = value, preemption


def _default_toleration_seconds(spec: JsonObject) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for taint in _OUTAGE_TAINTS:
        covered = any(
            toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")
            for toleration in tolerations
        )
        if not covered:
            tolerations.append(
                {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _OUTAGE_SECONDS}
            )
