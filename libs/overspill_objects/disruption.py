"""Budgets of voluntary disruption. The arithmetic is the API server's; we read its result and never bypass it."""

from msgspec import field

from overspill_objects.meta import Condition, LabelSelector, ObjectMeta
from overspill_objects.view import Time, View


class PodDisruptionBudgetSpec(View, frozen=True, kw_only=True):
    """One of `min_available` and `max_unavailable`, as a number or a percentage."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class PodDisruptionBudgetStatus(View, frozen=True, kw_only=True):
    """Meaningful only while `observed_generation` is the object's generation."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, Time] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(View, frozen=True, kw_only=True):
    """A pod disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
