"""A pod's topology spread constraints, read once; what of them the lab does not model is named.

It must not know how a constraint is judged: that is `spread`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from overspill_objects.core import PodSpec
from overspill_objects.meta import LabelSelector

HARD: Final = "DoNotSchedule"
# Members whose default is modelled and whose other values are not.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Ignore",
    "matchLabelKeys": [],
}


class Spread(Struct, frozen=True, kw_only=True):
    """One constraint: pods that the selector selects, evenly over the values of a node label."""

    key: str
    max_skew: int
    hard: bool
    min_domains: int
    selector: LabelSelector | None


def spreads_of(spec: PodSpec) -> tuple[Spread, ...]:
    """The constraints of a pod."""
    return tuple(
        Spread(
            key=one["topologyKey"],
            max_skew=one["maxSkew"],
            hard=one.get("whenUnsatisfiable", HARD) == HARD,
            min_domains=one.get("minDomains") or 1,
            selector=msgspec.convert(one.get("labelSelector"), type=LabelSelector | None),
        )
        for one in spec.topology_spread_constraints
    )


def unmodelled_spread(spec: PodSpec) -> str | None:
    """The first member of a constraint that asks for something else than the default, or None."""
    for constraint in spec.topology_spread_constraints:
        for member, default in _DEFAULTS.items():
            if constraint.get(member, default) not in (default, None):
                return f"topology spread constraints with {member} {constraint[member]}"
    return None
