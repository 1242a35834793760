"""What a pod must be, and the few members of a pod's spec that may change once it exists.

Pure; follows `pkg/apis/core/validation`: `ValidatePodCreate`, `ValidatePodUpdate`.
"""

import re
from typing import Any

from overspill_events.names import DELETION_COST_ANNOTATION
from overspill_lab.apiserver import spread_rules
from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.names import LABEL_WORDS, QUALIFIED_WORDS, is_label, is_qualified
from overspill_objects.quantity import parse_quantity

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_FROZEN_WORDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_WHOLE_NUMBER = re.compile(r"-[0-9]+|0|[1-9][0-9]*")
_LEAST = -(2**31)
_CONTAINERS = ("containers", "initContainers")
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", *_CONTAINERS)


def validate(pod: JsonObject) -> list[FieldError]:
    """Return what is wrong with a new pod."""
    spec = pod["spec"]
    problems = [*validate_spec(spec, "spec"), *_deletion_cost(pod)]
    if spec.get("schedulingGates") and spec.get("nodeName"):
        problems.append(
            FieldError.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    return problems


def _deletion_cost(pod: JsonObject) -> list[FieldError]:
    cost = (pod["metadata"].get("annotations") or {}).get(DELETION_COST_ANNOTATION)
    if cost is None or (_WHOLE_NUMBER.fullmatch(cost) and _LEAST <= int(cost) <= -_LEAST - 1):
        return []
    path = f"metadata.annotations[{DELETION_COST_ANNOTATION}]"
    return [FieldError.invalid(path, cost, "must be a 32bit integer")]


def validate_spec(spec: JsonObject, at: str) -> list[FieldError]:
    """Return what is wrong with a pod's spec or a template's, `at` the path it has."""
    problems = []
    if not spec.get("containers"):
        problems.append(FieldError.required(f"{at}.containers"))
    for kind in _CONTAINERS:
        seen: set[str] = set()
        for index, container in enumerate(spec.get(kind) or ()):
            problems += _container(container, f"{at}.{kind}[{index}]", seen)
    policy = spec.get("restartPolicy")
    if policy not in _RESTART_POLICIES:
        problems.append(FieldError.unsupported(f"{at}.restartPolicy", policy, _RESTART_POLICIES))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        problems += _toleration(toleration, f"{at}.tolerations[{index}]")
    problems += spread_rules.validate(spec.get("topologySpreadConstraints") or (), f"{at}.topologySpreadConstraints")
    return problems + _gates(spec, at)


def _container(container: JsonObject, at: str, seen: set[str]) -> list[FieldError]:
    problems = []
    name = container.get("name", "")
    if not name:
        problems.append(FieldError.required(f"{at}.name"))
    elif not is_label(name):
        problems.append(FieldError.invalid(f"{at}.name", name, LABEL_WORDS))
    if name in seen:
        problems.append(FieldError.duplicate(f"{at}.name", name))
    seen.add(name)
    if not container.get("image"):
        problems.append(FieldError.required(f"{at}.image"))
    problems += [
        FieldError.required(f"{at}.env[{index}].name")
        for index, variable in enumerate(container.get("env") or ())
        if not variable["name"]
    ]
    return problems + _resources(container.get("resources") or {}, f"{at}.resources")


def _resources(resources: JsonObject, at: str) -> list[FieldError]:
    problems: list[FieldError] = []
    amounts: dict[str, JsonObject] = {"limits": {}, "requests": {}}
    for kind, parsed in amounts.items():
        for name, value in (resources.get(kind) or {}).items():
            path = f"{at}.{kind}[{name}]"
            parsed[name] = parse_quantity(value)
            if parsed[name] < 0:
                problems.append(FieldError.invalid(path, value, "must be greater than or equal to 0"))
            if _is_extended(name) and parsed[name] != int(parsed[name]):
                problems.append(FieldError.invalid(path, value, "must be an integer"))
    limits, requests = amounts["limits"], amounts["requests"]
    for name, request in requests.items():
        path = f"{at}.requests"
        if _is_extended(name) and name not in limits:
            problems.append(FieldError.required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
        elif name in limits and _is_extended(name) and request != limits[name]:
            problems.append(FieldError.invalid(path, str(request), f"must be equal to {name} limit of {limits[name]}"))
        elif name in limits and request > limits[name]:
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            problems.append(FieldError.invalid(path, resources["requests"][name], words))
    return problems


def _is_extended(name: str) -> bool:
    return name not in _NATIVE and "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _toleration(toleration: JsonObject, at: str) -> list[FieldError]:
    problems = []
    key, operator, effect = (toleration.get(field, "") for field in ("key", "operator", "effect"))
    if key and not is_qualified(key):
        problems.append(FieldError.invalid(f"{at}.key", key, f"name part {QUALIFIED_WORDS}"))
    if not key and operator != "Exists":
        words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        problems.append(FieldError.invalid(f"{at}.operator", operator, words))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        problems.append(
            FieldError.invalid(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    if operator not in ("", "Equal", "Exists"):
        problems.append(FieldError.unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    elif operator == "Exists" and toleration.get("value"):
        problems.append(
            FieldError.invalid(f"{at}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )
    if effect and effect not in _TAINT_EFFECTS:
        problems.append(FieldError.unsupported(f"{at}.effect", effect, _TAINT_EFFECTS))
    return problems


def _gates(spec: JsonObject, at: str) -> list[FieldError]:
    problems, seen = [], set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        path, name = f"{at}.schedulingGates[{index}]", gate.get("name", "")
        if not is_qualified(name):
            problems.append(FieldError.invalid(path, name, f"name part {QUALIFIED_WORDS}"))
        if name in seen:
            problems.append(FieldError.duplicate(path, name))
        seen.add(name)
    return problems


def validate_update(pod: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what may not be changed on an existing pod."""
    spec, before = pod["spec"], old["spec"]
    if spec == before:
        return _deletion_cost(pod)
    if any(len(spec.get(kind) or ()) != len(before.get(kind) or ()) for kind in _CONTAINERS):
        return [
            *_no_containers(spec),
            FieldError.forbidden("spec.containers", "pod updates may not add or remove containers"),
        ]
    problems = [
        *_deletion_cost(pod),
        *_new_gates(spec, before),
        *_changed_tolerations(spec, before),
        *_extended_deadline(spec, before),
    ]
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        problems += _toleration(toleration, f"spec.tolerations[{index}]")
    mutable: tuple[str, ...] = _MUTABLE
    if before.get("schedulingGates"):
        # A gated pod may still be narrowed: no scheduler has looked at it.
        mutable = (*mutable, "nodeSelector", "affinity")
        problems += [*_narrowed_selector(spec, before), *_narrowed_affinity(spec, before)]
    frozen = {key: value for key, value in spec.items() if key not in mutable}
    frozen_before = {key: value for key, value in before.items() if key not in mutable}
    if frozen != frozen_before or any(_without_images(spec, k) != _without_images(before, k) for k in _CONTAINERS):
        problems.append(FieldError.forbidden("spec", _FROZEN_WORDS))
    return problems


def _no_containers(spec: JsonObject) -> list[FieldError]:
    return [] if spec.get("containers") else [FieldError.required("spec.containers")]


def _extended_deadline(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    """A deadline may be set once and shortened, never lengthened or taken away."""
    deadline, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if old is None or deadline == old:
        return []
    if deadline is None:
        return [FieldError.invalid(path, None, "must not update from a positive integer to nil value")]
    return (
        [FieldError.invalid(path, deadline, "must be less than or equal to previous value")] if deadline > old else []
    )


def _without_images(spec: JsonObject, kind: str) -> list[JsonObject]:
    return [{k: v for k, v in container.items() if k != "image"} for container in spec.get(kind) or ()]


def _new_gates(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    known = {gate["name"] for gate in before.get("schedulingGates") or ()}
    words = "only deletion is allowed, but found new scheduling gate "
    return [
        FieldError.forbidden(f"spec.schedulingGates[{index}].name", words + f"'{gate['name']}'")
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate["name"] not in known
    ]


def _changed_tolerations(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    """Every old toleration must still be there; only its tolerationSeconds may differ."""
    kept = [_identity(toleration) for toleration in spec.get("tolerations") or ()]
    if all(_identity(toleration) in kept for toleration in before.get("tolerations") or ()):
        return []
    return [
        FieldError.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    ]


def _identity(toleration: JsonObject) -> JsonObject:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _narrowed_selector(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    selector: JsonObject = spec.get("nodeSelector") or {}
    if all(selector.get(key) == value for key, value in (before.get("nodeSelector") or {}).items()):
        return []
    words = "only additions are allowed (no mutations or deletions)"
    return [FieldError.invalid("spec.nodeSelector", selector, words)]


def _narrowed_affinity(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    affinity, affinity_before = spec.get("affinity") or {}, before.get("affinity") or {}
    problems = [
        FieldError.invalid(f"spec.affinity.{kind}", affinity.get(kind), "field is immutable")
        for kind in ("podAffinity", "podAntiAffinity")
        if affinity.get(kind) != affinity_before.get(kind)
    ]
    required = _required_terms(affinity_before)
    if required is None:
        return problems
    terms = _required_terms(affinity) or []
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if len(terms) != len(required):
        words = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*problems, FieldError.invalid(f"{path}.nodeSelectorTerms", terms, words)]
    for index, (term, old_term) in enumerate(zip(terms, required, strict=True)):
        for kind in ("matchExpressions", "matchFields"):
            old_expressions = old_term.get(kind) or []
            if (term.get(kind) or [])[: len(old_expressions)] != old_expressions:
                words = "only additions are allowed (no mutations or deletions)"
                problems.append(FieldError.invalid(f"{path}.nodeSelectorTerms[{index}]", term, words))
    return problems


def _required_terms(affinity: JsonObject) -> list[Any] | None:
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []
