"""Does a node match a node selector or a node affinity term? (k8s.io/component-helpers, nodeaffinity)"""

from collections.abc import Callable, Mapping
from typing import Final

from overspill_objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

NAME_FIELD: Final = "metadata.name"


def matches_selector(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """One of the terms must hold; a selector without terms matches nothing."""
    return any(matches_term(term, name, labels) for term in selector.node_selector_terms)


def matches_term(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """All expressions of the term must hold; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {NAME_FIELD: name}
    return all(_holds(one, labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    rule = _RULES.get(requirement.operator)
    # The API server refuses other operators; kube-scheduler takes one that got through as matching nothing.
    return rule is not None and rule(labels.get(requirement.key), requirement.values)


def _greater(value: str | None, values: tuple[str, ...]) -> bool:
    return _number(value) is not None and _number(values[0]) is not None and int(value or 0) > int(values[0])


def _less(value: str | None, values: tuple[str, ...]) -> bool:
    return _number(value) is not None and _number(values[0]) is not None and int(value or 0) < int(values[0])


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


_RULES: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _greater,
    "Lt": _less,
}
