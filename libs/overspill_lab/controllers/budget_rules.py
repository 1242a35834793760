"""The arithmetic of a PodDisruptionBudget's status. (pkg/controller/disruption)

The API server only spends what this status allows; computing it is the controller's part.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from overspill_lab.controllers.replica_rules import is_ready
from overspill_lab.stamps import stamp
from overspill_objects.core import Pod
from overspill_objects.disruption import PodDisruptionBudget

DELETION_TIMEOUT: Final = timedelta(minutes=2)  # how long an evicted pod may take to be deleted


class BudgetError(Exception):
    """The budget cannot be computed; evictions are then not allowed, and the condition says why."""


class BudgetCount(Struct, frozen=True, kw_only=True):
    """The numbers of a status."""

    current_healthy: int
    desired_healthy: int
    expected_pods: int
    disrupted: Mapping[str, datetime]  # pod name → when its eviction was allowed; not yet seen deleted

    @property
    def disruptions_allowed(self) -> int:
        """How many more pods may be evicted now; none while no pod is expected: the count may be about to change."""
        spare = self.current_healthy - self.desired_healthy
        return spare if self.expected_pods > 0 and spare > 0 else 0


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Whether the expected number comes from the pods' controllers rather than from counting pods."""
    return budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)


def count_budget(
    budget: PodDisruptionBudget, pods: Sequence[Pod], *, expected_scale: int, now: datetime
) -> BudgetCount:
    """The budget's numbers for the pods that it selects.

    `expected_scale` is the summed scale of the pods' controllers, used when `needs_scale`. Raises BudgetError for a
    percentage that cannot be read.
    """
    spec = budget.spec
    expected, desired = len(pods), 0
    if spec.max_unavailable is not None:
        expected = expected_scale
        desired = max(0, expected - scaled(spec.max_unavailable, expected))
    elif isinstance(spec.min_available, str):
        expected = expected_scale
        desired = scaled(spec.min_available, expected)
    elif spec.min_available is not None:
        desired = spec.min_available
    disrupted = _still_disrupted(budget, pods, now)
    healthy = sum(
        pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted and is_ready(pod) for pod in pods
    )
    return BudgetCount(current_healthy=healthy, desired_healthy=desired, expected_pods=expected, disrupted=disrupted)


def scaled(value: int | str, total: int, *, up: bool = True) -> int:
    """A number, or a percentage of the total rounded up (or down). Raises BudgetError for anything else."""
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdigit():
        raise BudgetError(f"invalid value {value!r}: expected a number or a percentage such as 25%")
    part = int(value[:-1]) * total
    return math.ceil(part / 100) if up else part // 100


def next_expiry(count: BudgetCount) -> datetime | None:
    """When the status must be looked at again although nothing happened."""
    return min(count.disrupted.values()) + DELETION_TIMEOUT if count.disrupted else None


def status_of(budget: PodDisruptionBudget, count: BudgetCount, *, now: datetime) -> dict[str, Any]:
    """The status as it should be; equal to the present one when nothing changed."""
    allowed = count.disruptions_allowed
    reason = "SufficientPods" if allowed > 0 else "InsufficientPods"
    return {
        "currentHealthy": count.current_healthy,
        "desiredHealthy": count.desired_healthy,
        "expectedPods": count.expected_pods,
        "disruptionsAllowed": allowed,
        "disruptedPods": {name: stamp(when) for name, when in count.disrupted.items()},
        "observedGeneration": budget.metadata.generation,
        "conditions": [_condition(budget, holds=allowed > 0, reason=reason, message="", now=now)],
    }


def present_status(budget: PodDisruptionBudget) -> dict[str, Any]:
    """The status as it is, its conditions aside."""
    status = budget.status
    return {
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
        "disruptionsAllowed": status.disruptions_allowed,
        "disruptedPods": {name: stamp(when) for name, when in status.disrupted_pods.items()},
        "observedGeneration": status.observed_generation,
    }


def failed_status(budget: PodDisruptionBudget, error: str, *, now: datetime) -> dict[str, Any]:
    """What to say when the numbers cannot be known: nothing may be evicted."""
    condition = _condition(budget, holds=False, reason="SyncFailed", message=error, now=now)
    return {**present_status(budget), "disruptionsAllowed": 0, "conditions": [condition]}


def _still_disrupted(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> dict[str, datetime]:
    allowed_at = budget.status.disrupted_pods
    return {
        pod.metadata.name: allowed_at[pod.metadata.name]
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.metadata.name in allowed_at
        and allowed_at[pod.metadata.name] + DELETION_TIMEOUT >= now
    }


def _condition(budget: PodDisruptionBudget, *, holds: bool, reason: str, message: str, now: datetime) -> dict[str, Any]:
    status = "True" if holds else "False"
    before = next((one for one in budget.status.conditions if one.type == "DisruptionAllowed"), None)
    since = before.last_transition_time if before is not None and before.status == status else None
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": budget.metadata.generation,
        "lastTransitionTime": stamp(since or now),
    }
