"""A rollout, step by step: never fewer available than promised, never more pods than allowed, and it ends."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.controllers.deployment_rules import (
    Replicas,
    deployment_status,
    first_scale,
    next_scales,
    same_template,
    surge,
    template_hash,
)
from tests.support.lab_cases import NOW


def spec(replicas: int, **rolling: int | str) -> dict[str, Any]:
    return {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}


def replicas(name: str, wanted: int, *, present: int | None = None, available: int | None = None) -> Replicas:
    there = wanted if present is None else present
    up = there if available is None else available
    return Replicas(name=name, created=NOW, wanted=wanted, present=there, ready=up, available=up, observed=True)


def test_surge_rounds_up_and_unavailable_down() -> None:
    assert surge(spec(10, maxSurge="25%", maxUnavailable="25%")) == (3, 2)
    assert surge(spec(10, maxSurge=0, maxUnavailable=0)) == (0, 1)
    assert surge(spec(3, maxSurge=0, maxUnavailable="25%")) == (0, 1)
    assert surge({"replicas": 4, "strategy": {"type": "Recreate"}}) == (0, 4)


def test_scaling_without_a_rollout_is_one_step() -> None:
    assert next_scales(spec(5), replicas("new", 2), []) == {"new": 5}
    assert next_scales(spec(2), replicas("new", 5), [replicas("old", 0)]) == {"new": 2}
    assert next_scales(spec(2), replicas("new", 2), []) == {}


def test_unhealthy_old_pods_go_at_once() -> None:
    old = replicas("old", 4, available=1)
    assert next_scales(spec(4, maxSurge=0, maxUnavailable=1), replicas("new", 0), [old])["old"] == 3


def test_a_paused_deployment_only_scales() -> None:
    paused = {**spec(5), "paused": True}
    assert next_scales(paused, replicas("new", 1), [replicas("old", 1)]) == {}
    assert next_scales(paused, None, [replicas("old", 3)]) == {"old": 5}


def test_recreate_waits_until_the_old_pods_are_gone() -> None:
    recreate = {"replicas": 3, "strategy": {"type": "Recreate"}}
    assert first_scale(recreate, [replicas("old", 3)]) == 0
    assert next_scales(recreate, replicas("new", 0), [replicas("old", 3)]) == {"old": 0}
    assert next_scales(recreate, replicas("new", 0), [replicas("old", 0, present=1)]) == {}
    assert next_scales(recreate, replicas("new", 0), [replicas("old", 0)]) == {"new": 3}


@given(
    wanted=st.integers(0, 12),
    before=st.integers(0, 12),
    more=st.integers(0, 4) | st.sampled_from(["0%", "25%", "100%"]),
    fewer=st.integers(0, 4) | st.sampled_from(["0%", "25%", "100%"]),
    slow=st.randoms(use_true_random=False),
)
def test_a_rollout_keeps_its_promises_and_ends(wanted: int, before: int, more: Any, fewer: Any, slow: Any) -> None:
    rollout = spec(wanted, maxSurge=more, maxUnavailable=fewer)
    most, least = wanted + surge(rollout)[0], wanted - surge(rollout)[1]
    old, new = replicas("old", before), replicas("new", first_scale(rollout, [replicas("old", before)]), available=0)
    least = min(least, before)  # a Deployment that grows starts with fewer
    for at in range(200):
        scales = next_scales(rollout, new, [old])
        if not scales and new.available == new.wanted:
            break
        new_wanted, old_wanted = scales.get("new", new.wanted), scales.get("old", old.wanted)
        assert new_wanted <= wanted
        assert old_wanted <= old.wanted
        assert new_wanted + old_wanted <= max(most, before)
        assert min(new.available, new_wanted) + min(old.available, old_wanted) >= least
        ready = min(new_wanted, new.available + (slow.randint(0, 2) if at % 3 else 1))
        new, old = replicas("new", new_wanted, available=ready), replicas("old", old_wanted)
    assert (new.wanted, old.wanted) == (wanted, 0)


def test_templates_are_the_same_but_for_the_hash_label() -> None:
    one = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}
    other = {
        "metadata": {"labels": {"a": "b", "pod-template-hash": "h"}, "creationTimestamp": None, "annotations": {}},
        "spec": {"x": 1},
    }
    assert same_template(one, other)
    assert not same_template(one, {**other, "spec": {"x": 2}})
    assert not same_template(one, {**other, "metadata": {"labels": {"a": "c"}}})


def test_the_hash_names_the_template() -> None:
    template = {"spec": {"a": 1, "b": 2}}
    assert template_hash(template, 0) == template_hash({"spec": {"b": 2, "a": 1}}, 0)
    assert template_hash(template, 0) != template_hash(template, 1)
    assert template_hash(template, 0) != template_hash({"spec": {"a": 1}}, 0)
    assert len(template_hash(template, 0)) == 10


def _status(new: Replicas | None, *old: Replicas, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return deployment_status(
        spec(4, maxSurge=1, maxUnavailable=1), before or {}, generation=3, new=new, old=old, now=NOW
    )


def _conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def test_the_status_adds_up() -> None:
    status = _status(replicas("new", 2, available=1), replicas("old", 3))
    assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (5, 2, 4)
    assert (status["unavailableReplicas"], status["observedGeneration"]) == (1, 3)
    assert _conditions(status) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "ReplicaSetUpdated"),
    }


def test_a_complete_rollout_says_so_and_then_nothing_new() -> None:
    done = _status(replicas("new", 4), replicas("old", 0))
    assert _conditions(done)["Progressing"] == ("True", "NewReplicaSetAvailable")
    assert _status(replicas("new", 4), replicas("old", 0), before=done) == done


def test_too_few_available_pods_are_told() -> None:
    assert _conditions(_status(replicas("new", 4, available=2)))["Available"] == (
        "False",
        "MinimumReplicasUnavailable",
    )
