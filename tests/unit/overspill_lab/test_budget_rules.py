"""The arithmetic of disruption budgets, as the original has it."""

from typing import Any

import msgspec
import pytest

from overspill_lab.controllers.budget_rules import (
    BudgetError,
    count_budget,
    failed_status,
    needs_scale,
    next_expiry,
    present_status,
    scaled,
    status_of,
)
from overspill_objects.disruption import PodDisruptionBudget, PodDisruptionBudgetStatus
from tests.support.lab_cases import NOW, pod, running, time


def budget(*, status: dict[str, Any] | None = None, **spec: Any) -> PodDisruptionBudget:
    document = {"metadata": {"name": "b", "namespace": "ns", "generation": 7}, "spec": spec, "status": status or {}}
    return msgspec.convert(document, type=PodDisruptionBudget)


READY = [running(name) for name in "abcd"]


@pytest.mark.parametrize(
    ("spec", "pods", "scale", "healthy", "desired", "expected", "allowed"),
    [
        ({"minAvailable": 3}, READY, 0, 4, 3, 4, 1),
        ({"minAvailable": 0}, READY, 0, 4, 0, 4, 4),
        ({"minAvailable": 9}, READY, 0, 4, 9, 4, 0),
        ({"minAvailable": "50%"}, READY, 5, 4, 3, 5, 1),  # rounded up: 2.5
        ({"maxUnavailable": 1}, READY, 4, 4, 3, 4, 1),
        ({"maxUnavailable": 1}, READY[:3], 4, 3, 3, 4, 0),  # one is missing already
        ({"maxUnavailable": "30%"}, READY, 4, 4, 2, 4, 2),  # rounded up: 1.2
        ({"maxUnavailable": 9}, READY, 4, 4, 0, 4, 4),
        ({"maxUnavailable": 1}, READY, 0, 4, 0, 0, 0),  # nothing expected: nothing allowed
        ({"minAvailable": 1}, [], 0, 0, 1, 0, 0),
        ({"minAvailable": 1}, [*READY[:1], pod("pending")], 0, 1, 1, 2, 0),
        ({"minAvailable": 1}, [*READY[:1], running("x", metadata={"deletionTimestamp": time()})], 0, 1, 1, 2, 0),
    ],
)
def test_the_numbers(  # noqa: PLR0917 (a row of a table)
    spec: dict[str, Any], pods: list[Any], scale: int, healthy: int, desired: int, expected: int, allowed: int
) -> None:
    counted = count_budget(budget(**spec), pods, expected_scale=scale, now=NOW)
    assert (counted.current_healthy, counted.desired_healthy, counted.expected_pods) == (healthy, desired, expected)
    assert counted.disruptions_allowed == allowed


def test_an_evicted_pod_does_not_count_until_it_goes_or_two_minutes_pass() -> None:
    allowed_at = {"a": time(-30), "b": time(-121), "gone": time(-1)}
    counted = count_budget(
        budget(minAvailable=1, status={"disruptedPods": allowed_at}), READY, expected_scale=0, now=NOW
    )
    assert counted.current_healthy == 3
    assert set(counted.disrupted) == {"a"}
    expiry = next_expiry(counted)
    assert expiry is not None
    assert (expiry - NOW).total_seconds() == 90


def test_which_budgets_need_the_scale_of_owners() -> None:
    assert needs_scale(budget(maxUnavailable=1))
    assert needs_scale(budget(minAvailable="50%"))
    assert not needs_scale(budget(minAvailable=2))


@pytest.mark.parametrize("value", ["half", "50", "-5%", "%", "1.5%"])
def test_what_is_no_percentage_is_an_error(value: str) -> None:
    with pytest.raises(BudgetError, match="percentage"):
        scaled(value, 10)


def test_the_status_is_stable() -> None:
    """Written once, it says the same again: else the controller would write for ever."""
    first = budget(minAvailable=3)
    status = status_of(first, count_budget(first, READY, expected_scale=0, now=NOW), now=NOW)
    again = budget(minAvailable=3, status=status)
    later = NOW.replace(hour=13)
    second = status_of(again, count_budget(again, READY, expected_scale=0, now=later), now=later)
    assert msgspec.convert(second, type=PodDisruptionBudgetStatus) == again.status
    assert status["observedGeneration"] == 7
    assert status["conditions"][0]["reason"] == "SufficientPods"


def test_an_unknown_number_allows_nothing_and_says_why() -> None:
    before = budget(maxUnavailable=1, status={"disruptionsAllowed": 2, "currentHealthy": 3, "expectedPods": 3})
    status = failed_status(before, "found no controllers", now=NOW)
    assert status["disruptionsAllowed"] == 0
    assert (status["currentHealthy"], status["expectedPods"]) == (3, 3)
    assert (status["conditions"][0]["reason"], status["conditions"][0]["message"]) == (
        "SyncFailed",
        "found no controllers",
    )
    assert present_status(before)["disruptionsAllowed"] == 2
