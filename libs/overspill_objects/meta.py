"""Names, owners, labels and selectors: what all kinds of objects share.

This module must not know any particular kind.
"""

from collections.abc import Mapping

from msgspec import field

from overspill_objects.view import Time, View


class OwnerReference(View, frozen=True, kw_only=True):
    """Who owns an object; at most one owner is its controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True, kw_only=True):
    """Identity and bookkeeping. `namespace` is empty for cluster-wide objects; `resource_version` is opaque."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class LabelSelectorRequirement(View, frozen=True, kw_only=True):
    """One expression of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True, kw_only=True):
    """All of its labels and expressions must hold; an empty selector selects everything."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Condition(View, frozen=True, kw_only=True):
    """One entry of `status.conditions`; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    last_heartbeat_time: Time | None = None
    observed_generation: int | None = None


class ObjectReference(View, frozen=True, kw_only=True):
    """Points at another object, as Events do."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that manages this object, if it has one."""
    return next((owner for owner in meta.owner_references if owner.controller), None)


def condition_of(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of that type, or None when nobody has reported it (which is not the same as "False")."""
    return next((condition for condition in conditions if condition.type == type_), None)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects an object with these labels: an absent one nothing, an empty one everything.

    Raises ValueError for an operator that Kubernetes does not define: guessing could go either way.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case unknown:
            raise ValueError(
                f"label selector on {requirement.key!r}: operator {unknown!r} is not In, NotIn, Exists or DoesNotExist"
            )
