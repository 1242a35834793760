"""What a topology spread constraint must be. Pure; follows `validateTopologySpreadConstraints` in pkg/apis/core."""

from collections.abc import Sequence

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import FieldError

_HARD = "DoNotSchedule"
_WHEN = (_HARD, "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_POSITIVE = "must be greater than zero"


def validate(constraints: Sequence[JsonObject], at: str) -> list[FieldError]:
    """Return what is wrong with a pod's constraints, `at` the path of their list."""
    problems: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        path = f"{at}[{index}]"
        problems += _one(constraint, path)
        pair = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if pair in seen:
            problems.append(
                FieldError.duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{', '.join(pair)}}}")
            )
        seen.add(pair)
    return problems


def _one(constraint: JsonObject, at: str) -> list[FieldError]:
    problems = []
    skew, when, domains = (
        constraint.get("maxSkew", 0),
        constraint.get("whenUnsatisfiable"),
        constraint.get("minDomains"),
    )
    if skew <= 0:
        problems.append(FieldError.invalid(f"{at}.maxSkew", skew, _POSITIVE))
    if not constraint.get("topologyKey"):
        problems.append(FieldError.required(f"{at}.topologyKey"))
    if when not in _WHEN:
        problems.append(FieldError.unsupported(f"{at}.whenUnsatisfiable", when, _WHEN))
    if domains is not None and domains <= 0:
        problems.append(FieldError.invalid(f"{at}.minDomains", domains, _POSITIVE))
    elif domains is not None and when != _HARD:
        words = f"can only use minDomains if whenUnsatisfiable={_HARD}, not {when}"
        problems.append(FieldError.invalid(f"{at}.minDomains", domains, words))
    problems += [
        FieldError.unsupported(f"{at}.{policy}", constraint[policy], _POLICIES)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy")
        if constraint.get(policy) not in (None, *_POLICIES)
    ]
    return problems
