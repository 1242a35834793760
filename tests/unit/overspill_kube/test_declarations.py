"""Paths, permissions, timings and limits: what is declared once and derived."""

import inspect

import pytest

from overspill_kube import effects, lease, resources
from overspill_kube.lease import LeaseTiming
from overspill_kube.note_limits import BURST, PER_SECOND, REPEAT_SECONDS, NoteLimits
from overspill_kube.resources import JOBS, NODES, PODS
from overspill_kube.rules import Rule
from overspill_kube.settings import WatchTiming


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path(namespace="a") == "/api/v1/namespaces/a/pods"
    assert PODS.path(namespace="a", name="b", subresource="eviction") == "/api/v1/namespaces/a/pods/b/eviction"
    assert NODES.path(name="n") == "/api/v1/nodes/n"
    assert JOBS.path(namespace="a", name="b/c") == "/apis/batch/v1/namespaces/a/jobs/b%2Fc"


@pytest.mark.parametrize("where", [{"name": ""}, {"name": "b"}, {"name": "b", "namespace": ""}, {"namespace": ""}])
def test_a_path_that_would_mean_something_else_is_refused(where: dict[str, str]) -> None:
    """An empty name would turn the deletion of a pod into the deletion of all."""
    with pytest.raises(ValueError, match="name"):
        PODS.path(**where)


def test_every_effect_says_what_it_may_do() -> None:
    functions = {name for name in effects.__all__ if inspect.iscoroutinefunction(getattr(effects, name))}
    assert set(effects.RULES) == functions
    assert effects.RULES["evict"] == (Rule("", "pods", ("get",)), Rule("", "pods/eviction", ("create",)))
    assert (Rule("coordination.k8s.io", "leases", ("get", "create", "patch")),) == lease.RULES
    forbidden = {"*", "delete", "deletecollection", "update"}
    assert not [rule for rules in effects.RULES.values() for rule in rules if forbidden & set(rule.verbs)]


def test_every_resource_is_declared_with_its_own_kind() -> None:
    declared = [value for value in vars(resources).values() if isinstance(value, resources.Resource)]
    assert len(declared) == 17
    assert all(resource.view.__name__ == resource.kind for resource in declared)
    assert len({(resource.group, resource.plural) for resource in declared}) == len(declared)


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 10), (15, 10, 0), (1, 10, 2)])
def test_lease_times_that_could_let_two_lead_are_refused(times: tuple[float, float, float]) -> None:
    duration, renew, retry = times
    with pytest.raises(ValueError, match="retry < renew < duration"):
        LeaseTiming(duration=duration, renew=renew, retry=retry)


def test_short_watches_are_stale_soon_after_they_should_have_ended() -> None:
    timing = WatchTiming.short(5)
    assert timing.server_seconds[1] == 5
    assert timing.server_seconds[1] < timing.silence_seconds < timing.stale_seconds
    with pytest.raises(ValueError, match="at least 1"):
        WatchTiming.short(0.5)


def test_the_same_note_is_written_once_in_a_while() -> None:
    limits, key = NoteLimits(), ("uid", "Reason", "message")
    assert limits.allow(key, 0)
    assert not limits.allow(key, REPEAT_SECONDS - 1)
    assert limits.allow(("uid", "Reason", "another"), 1)
    assert limits.allow(key, REPEAT_SECONDS)


def test_notes_are_limited_all_together_and_the_limit_recovers() -> None:
    limits = NoteLimits()
    written = sum(limits.allow((str(number), "r", "m"), 0) for number in range(10 * BURST))
    assert written == BURST
    assert limits.allow(("later", "r", "m"), 1)


def test_notes_with_a_budget_of_their_own_have_that() -> None:
    limits = NoteLimits(burst=3, per_second=0.5)
    assert sum(limits.allow((str(number), "r", "m"), 0) for number in range(10)) == 3
    assert not limits.allow(("soon", "r", "m"), 1)
    assert limits.allow(("later", "r", "m"), 2)


def test_notes_are_not_remembered_without_bound() -> None:
    limits = NoteLimits()
    for number in range(20_000):
        limits.allow((str(number), "r", "m"), number / 10)
    assert len(limits) <= BURST + REPEAT_SECONDS * PER_SECOND
