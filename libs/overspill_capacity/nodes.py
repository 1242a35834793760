"""Which pods a node refuses or selects: taints, labels, node affinity.

Must not know amounts; those are `room`'s matter.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from overspill_events.names import NO_SCHEDULE, VIRTUAL_LABEL
from overspill_objects.core import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration
from overspill_objects.meta import condition_of

NO_EXECUTE: Final = "NoExecute"
HARD_EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE)  # PreferNoSchedule only weighs


def is_virtual(node: Node) -> bool:
    """Whether a node is one of ours: never part of home."""
    return node.metadata.labels.get(VIRTUAL_LABEL) == "true"


def is_ready(node: Node) -> bool:
    """Whether the node's own word, or its controller's, is Ready=True; silence is not."""
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint (core/v1 rules: empty effect: all; empty key with Exists: all)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in {"", "Equal"} and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that no toleration accepts."""
    accepted = tuple(tolerations)
    return next(
        (t for t in taints if t.effect in HARD_EFFECTS and not any(tolerates(one, t) for one in accepted)), None
    )


def selects_node(pod: Pod, *, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the pod's nodeSelector and required node affinity select the node of that name and those labels.

    Raises ValueError for an operator or field that Kubernetes does not define.
    """
    spec = pod.spec
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_selects(term, name=name, labels=labels) for term in affinity.required.node_selector_terms)


def term_selects(term: NodeSelectorTerm, *, name: str, labels: Mapping[str, str]) -> bool:
    """Whether one term, required or preferred, selects the node; an empty term selects none. Raises ValueError, too."""
    if not term.match_expressions and not term.match_fields:
        return False
    for field in term.match_fields:
        if field.key != "metadata.name":
            raise ValueError(f"node affinity on field {field.key!r}: only metadata.name is defined")
    return all(_holds(one, labels.get(one.key)) for one in term.match_expressions) and all(
        _holds(one, name) for one in term.match_fields
    )


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case unknown:
            raise ValueError(f"node affinity on {requirement.key!r}: operator {unknown!r} is not defined")


def _compares(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whole numbers only; a label that is none does not hold (as kube-scheduler has it)."""
    if value is None or len(requirement.values) != 1:
        return False
    try:
        mine, bound = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return mine > bound if requirement.operator == "Gt" else mine < bound
