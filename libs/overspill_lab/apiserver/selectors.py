"""Label and field selectors: text in, a cheap predicate out.

Pure. Follows `k8s.io/apimachinery/pkg/labels` and `pkg/fields`; which field labels a kind knows is the real server's
list, and any other one is a 400, never an empty answer.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from overspill_lab.apiserver.documents import JsonObject, member
from overspill_lab.apiserver.errors import bad_request
from overspill_lab.apiserver.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, SECRETS, Resource

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_SET_TERM = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_EQUALITY_TERM = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9._-]*)$")
_EXISTS_TERM = re.compile(rf"^(!?)\s*({_KEY})$")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_FIELD_TERM = re.compile(r"^([A-Za-z0-9.]+)(==|=|!=)(.*)$", re.DOTALL)

_FIELD_LABELS: dict[Resource, frozenset[str]] = {
    PODS: frozenset(
        {
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
            "status.podIP", "status.nominatedNodeName",
        }
    ),
    NODES: frozenset({"spec.unschedulable"}),
    NAMESPACES: frozenset({"status.phase"}),
    SECRETS: frozenset({"type"}),
    JOBS: frozenset({"status.successful"}),
    REPLICA_SETS: frozenset({"status.replicas"}),
    EVENTS: frozenset(
        {
            "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
            "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
            "reportingComponent", "source", "type",
        }
    ),
}  # fmt: skip
_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})


class Requirement(Struct, frozen=True):
    """One term: `values` hold one of them (`in`), none of them (`notin`), or presence alone matters."""

    key: str
    operator: str  # in, notin, exists, absent
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels satisfy this term; `notin` is also true where the label is absent."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return (value is not None) is (self.operator == "exists")


class FieldTerm(Struct, frozen=True):
    """One term over a field's text; an absent field reads as the empty string."""

    path: tuple[str, ...]
    value: str
    negated: bool

    def matches(self, obj: JsonObject) -> bool:
        """Tell whether the object's field has (or, negated, has not) this value."""
        return (field_text(obj, self.path) == self.value) is not self.negated


class Selection(Struct, frozen=True):
    """What a list, watch or deletecollection asks for; empty selects everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Tell whether nothing is filtered."""
        return not self.labels and not self.fields

    def matches(self, obj: JsonObject) -> bool:
        """Tell whether the object is asked for."""
        for term in self.fields:
            if not term.matches(obj):
                return False
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            for requirement in self.labels:
                if not requirement.matches(labels):
                    return False
        return True


def field_text(obj: JsonObject, path: tuple[str, ...]) -> str:
    """Return a field as field selectors compare it."""
    value = member(obj, *path)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector, equality or set based; raises a 400 that names the term."""
    terms = [term.strip() for term in _COMMA_OUTSIDE_PARENTHESES.split(text)]
    return tuple(_label_term(term, text) for term in terms) if text.strip() else ()


def _label_term(term: str, text: str) -> Requirement:
    if found := _SET_TERM.match(term):
        key, operator, values = found.groups()
        return Requirement(key, operator, frozenset(value.strip() for value in values.split(",")))
    if found := _EQUALITY_TERM.match(term):
        key, operator, value = found.groups()
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))
    if found := _EXISTS_TERM.match(term):
        negation, key = found.groups()
        return Requirement(key, "absent" if negation else "exists")
    raise bad_request(f'unable to parse requirement: "{term}" in label selector "{text}"')


def parse_fields(text: str, resource: Resource) -> tuple[FieldTerm, ...]:
    """Parse a field selector of `resource`; raises a 400 for a field label the kind does not know."""
    if not text:
        return ()
    return tuple(_field_term(term, text, resource) for term in text.split(","))


def _field_term(term: str, text: str, resource: Resource) -> FieldTerm:
    found = _FIELD_TERM.match(term.strip())
    if found is None:
        raise bad_request(f'invalid selector: "{text}"; can\'t understand "{term}"')
    label, operator, value = found.groups()
    if label not in _ALWAYS and label not in _FIELD_LABELS.get(resource, frozenset()):
        raise bad_request(f"field label not supported: {label}")
    path = ("source", "component") if label == "source" else tuple(label.split("."))
    return FieldTerm(path, value, operator == "!=")


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Apply a `metav1.LabelSelector`; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_expression(expression).matches(labels) for expression in selector.get("matchExpressions") or ())


def _expression(expression: JsonObject) -> Requirement:
    operator = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}[expression["operator"]]
    return Requirement(expression["key"], operator, frozenset(expression.get("values") or ()))
