"""What a stored object must look like: names, metadata and the rules of each kind that our clients meet.

Pure; wording and field paths follow `pkg/apis/*/validation`. Pods and the workloads that make them have modules of
their own.
"""

import re
from collections.abc import Callable

from overspill_lab.apiserver import pod_rules, quota_rules, workload_rules
from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.names import (
    FINALIZER_WORDS,
    LABEL_VALUE_WORDS,
    LABEL_WORDS,
    PERCENT_WORDS,
    QUALIFIED_WORDS,
    SUBDOMAIN_WORDS,
    is_label,
    is_label_value,
    is_qualified,
    is_subdomain,
)
from overspill_lab.apiserver.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)

_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
_HIGHEST_USER_PRIORITY = 1_000_000_000
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_MOST_CHARACTERS = 253
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_create(resource: Resource, obj: JsonObject) -> list[FieldError]:
    """Return what is wrong with a new object, empty if nothing."""
    problems = [*_name(resource, obj["metadata"]), *_metadata(obj["metadata"])]
    if check := _CREATE_RULES.get(resource):
        problems += check(obj)
    return problems


def validate_update(resource: Resource, obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what is wrong with a new state of an object, empty if nothing."""
    problems = [*_metadata(obj["metadata"]), *_metadata_update(obj["metadata"], old["metadata"])]
    if check := _UPDATE_RULES.get(resource):
        problems += check(obj, old)
    return problems


def _name(resource: Resource, metadata: JsonObject) -> list[FieldError]:
    """The name, and what it was generated from: that may end in a dash, as a name may not."""
    problems = []
    for field in ("generateName", "name"):
        # Events of the core group are hardly judged at all; "pod-name." is what everybody lets theirs begin with.
        if not (text := metadata.get(field)) or (field == "generateName" and resource is EVENTS):
            continue
        name = f"{text[:-1]}a" if field == "generateName" and len(text) > 1 and text.endswith("-") else text
        if len(name) > _MOST_CHARACTERS:
            words = f"must be no more than {_MOST_CHARACTERS} characters"
        elif resource in (NAMESPACES, SERVICES):
            words = "" if is_label(name) else LABEL_WORDS
        else:
            words = "" if is_subdomain(name) else SUBDOMAIN_WORDS
        if words:
            problems.append(FieldError.invalid(f"metadata.{field}", text, words))
    return problems


def _metadata(metadata: JsonObject) -> list[FieldError]:
    problems = []
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified(key):
            problems.append(FieldError.invalid("metadata.labels", key, f"name part {QUALIFIED_WORDS}"))
        if not is_label_value(value):
            problems.append(FieldError.invalid("metadata.labels", value, LABEL_VALUE_WORDS))
    problems += [
        FieldError.invalid("metadata.annotations", key, f"name part {QUALIFIED_WORDS}")
        for key in metadata.get("annotations") or ()
        if not is_qualified(key.lower())
    ]
    controllers = [reference for reference in metadata.get("ownerReferences") or () if reference.get("controller")]
    if len(controllers) > 1:
        problems.append(
            FieldError.invalid(
                "metadata.ownerReferences", controllers, "Only one reference can have Controller set to true."
            )
        )
    for index, reference in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                path = f"metadata.ownerReferences[{index}].{field}"
                problems.append(FieldError.required(path, "must not be empty"))
    problems += [
        FieldError.invalid(f"metadata.finalizers[{index}]", name, FINALIZER_WORDS)
        for index, name in enumerate(metadata.get("finalizers") or ())
        if not (name in _STANDARD_FINALIZERS or ("/" in name and is_qualified(name)))
    ]
    return problems


def _metadata_update(metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    problems = [
        FieldError.invalid(f"metadata.{field}", metadata[field], "field is immutable")
        for field in ("name", "namespace", "uid")
        if metadata.get(field) != old.get(field)
    ]
    if "deletionTimestamp" in old:
        new = [item for item in metadata.get("finalizers") or () if item not in (old.get("finalizers") or ())]
        if new:
            words = "no new finalizers can be added if the object is being deleted, found new finalizers "
            problems.append(FieldError.forbidden("metadata.finalizers", words + repr(new)))
    return problems


def _node(node: JsonObject) -> list[FieldError]:
    problems, seen = [], set()
    # The path really is metadata.taints: ValidateNode hands its metadata path on.
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if not is_qualified(key):
            problems.append(FieldError.invalid(f"{path}.key", key, f"name part {QUALIFIED_WORDS}"))
        if not effect:
            problems.append(FieldError.required(f"{path}.effect"))
        elif effect not in _EFFECTS:
            problems.append(FieldError.unsupported(f"{path}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            problems.append(FieldError.duplicate(path, taint))
        seen.add((key, effect))
    return problems


def _node_update(node: JsonObject, old: JsonObject) -> list[FieldError]:
    problems = _node(node)
    before, after = ((n.get("spec") or {}).get("providerID", "") for n in (old, node))
    if before and before != after:
        problems.append(FieldError.invalid("spec.providerID", after, "field cannot be modified once set"))
    return problems


def _priority_class(priority_class: JsonObject) -> list[FieldError]:
    name, value = priority_class["metadata"]["name"], priority_class["value"]
    problems = []
    if name.startswith("system-") and name not in _SYSTEM_CLASSES:
        words = "priority class names with 'system-' prefix are reserved for system use only. error: "
        words += f"{name} is not a known system priority class"
        problems.append(FieldError.forbidden("metadata.name", words))
    if value > _HIGHEST_USER_PRIORITY and name not in _SYSTEM_CLASSES:
        problems.append(
            FieldError.forbidden(
                "value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
            )
        )
    policy = priority_class["preemptionPolicy"]
    if policy not in ("Never", "PreemptLowerPriority"):
        problems.append(FieldError.unsupported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never")))
    return problems


def _priority_class_update(priority_class: JsonObject, old: JsonObject) -> list[FieldError]:
    return [
        FieldError.forbidden(field, "may not be changed in an update.")
        for field in ("value", "preemptionPolicy")
        if priority_class[field] != old[field]
    ]


def _budget(budget: JsonObject) -> list[FieldError]:
    spec = budget["spec"]
    problems = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        both = {field: spec[field] for field in ("minAvailable", "maxUnavailable")}
        problems.append(FieldError.invalid("spec", both, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+%", value):
            problems.append(FieldError.invalid(f"spec.{field}", value, PERCENT_WORDS))
        elif isinstance(value, int) and value < 0:
            problems.append(FieldError.invalid(f"spec.{field}", value, "must be greater than or equal to 0"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "AlwaysAllow", "IfHealthyBudget"):
        path = "spec.unhealthyPodEvictionPolicy"
        problems.append(FieldError.unsupported(path, policy, ("AlwaysAllow", "IfHealthyBudget")))
    return problems


def _lease(lease: JsonObject) -> list[FieldError]:
    spec = lease.get("spec") or {}
    return [
        FieldError.invalid(f"spec.{field}", spec[field], words)
        for field, floor, words in (
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        )
        if field in spec and spec[field] < floor
    ]


def _event(event: JsonObject) -> list[FieldError]:
    """An Event lives with what it is about; about cluster-wide objects it is told in `default`."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    if event["metadata"].get("namespace", "") == (about or "default"):
        return []
    return [FieldError.invalid("involvedObject.namespace", about, "does not match event.namespace")]


def _data(obj: JsonObject) -> list[FieldError]:
    words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return [
        FieldError.invalid(f"{field}[{key}]", key, words)
        for field in ("data", "binaryData")
        for key in obj.get(field) or ()
        if not _CONFIG_KEY.fullmatch(key)
    ]


def _data_update(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    problems = _data(obj)
    if old.get("immutable"):
        problems += [
            FieldError.forbidden(field, "field is immutable when `immutable` is set")
            for field in ("immutable", "data", "binaryData")
            if obj.get(field) != old.get(field)
        ]
    return problems


_CREATE_RULES: dict[Resource, Callable[[JsonObject], list[FieldError]]] = {
    PODS: pod_rules.validate,
    NODES: _node,
    PRIORITY_CLASSES: _priority_class,
    DISRUPTION_BUDGETS: _budget,
    LEASES: _lease,
    RESOURCE_QUOTAS: quota_rules.validate,
    EVENTS: _event,
    CONFIG_MAPS: _data,
    SECRETS: _data,
    DEPLOYMENTS: workload_rules.validate_deployment,
    REPLICA_SETS: workload_rules.validate_replica_set,
    JOBS: workload_rules.validate_job,
}
_UPDATE_RULES: dict[Resource, Callable[[JsonObject, JsonObject], list[FieldError]]] = {
    PODS: pod_rules.validate_update,
    NODES: _node_update,
    PRIORITY_CLASSES: _priority_class_update,
    DISRUPTION_BUDGETS: lambda budget, _: _budget(budget),
    RESOURCE_QUOTAS: lambda quota, _: quota_rules.validate(quota),
    LEASES: lambda lease, _: _lease(lease),
    CONFIG_MAPS: _data_update,
    SECRETS: _data_update,
    DEPLOYMENTS: workload_rules.validate_deployment_update,
    REPLICA_SETS: workload_rules.validate_replica_set_update,
    JOBS: workload_rules.validate_job_update,
}
