"""The life of a pod on a simulated node."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from overspill_lab.kubelets.life import (
    EXIT_CODE,
    RUN_SECONDS,
    Action,
    Pace,
    Step,
    ended_status,
    next_step,
    pod_address,
    running_status,
)
from overspill_objects.core import Pod, PodStatus
from overspill_objects.meta import condition_of
from tests.support.lab_cases import GPU, NOW, pod, running, time

PACE = Pace(start_s=2, stop_s=4)


def step(made: Pod) -> Step | None:
    return next_step(made, pace=PACE, now=NOW)


def after(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def started(seconds_ago: float, *, restart_policy: str = "Never", **annotations: str) -> Pod:
    state = {"running": {"startedAt": time(-seconds_ago)}}
    return running(
        metadata={"annotations": {key.replace("__", "/"): value for key, value in annotations.items()}},
        spec={"restartPolicy": restart_policy},
        status={"startTime": time(-seconds_ago), "containerStatuses": [{"name": "c", "state": state}]},
    )


def run_for(text: str, *, seconds_ago: float = 0, code: str | None = None, restart_policy: str = "Never") -> Pod:
    annotations = {RUN_SECONDS: text} | ({} if code is None else {EXIT_CODE: code})
    return started(seconds_ago, restart_policy=restart_policy, **annotations)


def test_a_bound_pod_starts_after_the_start_time() -> None:
    assert step(pod(spec={"nodeName": "n"})) == Step(action=Action.START, due=after(2))


def test_a_running_pod_without_a_run_length_runs_until_deleted() -> None:
    assert step(started(1000)) is None


def test_the_run_length_counts_from_the_start_of_the_containers() -> None:
    """So that a kubelet that was restarted ends a pod when the first one would have."""
    assert step(run_for("10", seconds_ago=4)) == Step(action=Action.END, due=after(6))
    assert step(run_for("10", seconds_ago=40)) == Step(action=Action.END, due=NOW)


@pytest.mark.parametrize(
    ("policy", "code", "action"),
    [
        ("Never", "0", Action.END),
        ("Never", "3", Action.END),
        ("OnFailure", "0", Action.END),
        ("OnFailure", "3", Action.RESTART),
        ("Always", "0", Action.RESTART),
        ("Always", "3", Action.RESTART),
    ],
)
def test_the_restart_policy_decides_what_an_end_is(policy: str, code: str, action: Action) -> None:
    made = step(run_for("1", code=code, restart_policy=policy))
    assert made is not None
    assert (made.action, made.exit_code) == (action, int(code))


@pytest.mark.parametrize(
    "bad", [{"text": "soon"}, {"text": "-1"}, {"text": "nan"}, {"text": "inf"}, {"text": "1", "code": "x"}]
)
def test_an_unreadable_annotation_fails_the_pod_and_names_it(bad: dict[str, str]) -> None:
    made = step(run_for(**bad))
    assert made is not None
    assert made.action is Action.REFUSE
    assert RUN_SECONDS in made.message
    assert repr(bad.get("code", bad["text"])) in made.message


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_needs_nothing(phase: str) -> None:
    assert step(running(status={"phase": phase})) is None


@pytest.mark.parametrize(
    ("phase", "grace", "seconds"), [("Running", 30, 4), ("Running", 1, 1), ("Pending", 30, 0), ("Succeeded", 30, 0)]
)
def test_a_deleted_pod_is_removed_within_its_grace(phase: str, grace: int, seconds: float) -> None:
    leaving = running(
        metadata={"deletionTimestamp": time(), "deletionGracePeriodSeconds": grace}, status={"phase": phase}
    )
    assert step(leaving) == Step(action=Action.REMOVE, due=after(seconds), exit_code=143)


def test_a_pod_held_by_finalizers_alone_only_ends() -> None:
    gone = {"deletionTimestamp": time(), "deletionGracePeriodSeconds": 0}
    assert step(running(metadata=gone)) == Step(action=Action.END, due=NOW, exit_code=143)
    assert step(running(metadata=gone, status={"phase": "Failed"})) is None


def _as_status(document: dict[str, Any]) -> PodStatus:
    return msgspec.convert(document, type=PodStatus)


def test_running_says_all_that_readers_look_at() -> None:
    made = pod(requests={GPU: "1"}, spec={"nodeName": "n"})
    status = _as_status(running_status(made, host_ip="192.168.0.1", now=NOW))
    ready = condition_of(status.conditions, "Ready")
    assert ready is not None
    assert (status.phase, ready.status, status.start_time, status.host_ip) == ("Running", "True", NOW, "192.168.0.1")
    (container,) = status.container_statuses
    assert (container.ready, container.restart_count) == (True, 0)
    assert container.resources is not None
    assert container.resources.requests == {GPU: "1"}
    assert container.allocated_resources == {GPU: "1"}


def test_a_restart_counts_and_keeps_the_first_start() -> None:
    made = run_for("10", seconds_ago=10)
    again = _as_status(running_status(made, host_ip="192.168.0.1", now=NOW))
    assert again.start_time == after(-10)
    (container,) = again.container_statuses
    assert container.restart_count == 1
    assert container.state.running is not None
    assert container.state.running.started_at == NOW


def test_conditions_that_do_not_change_keep_their_time() -> None:
    made = running(ready_for=60)
    ready = condition_of(_as_status(running_status(made, host_ip="192.168.0.1", now=NOW)).conditions, "Ready")
    assert ready is not None
    assert ready.last_transition_time == after(-60)


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
def test_the_exit_code_is_the_phase(code: int, phase: str, reason: str) -> None:
    status = _as_status(ended_status(run_for("10", seconds_ago=10), exit_code=code, message="m", now=NOW))
    assert status.phase == phase
    (container,) = status.container_statuses
    over = container.state.terminated
    assert over is not None
    assert (over.exit_code, over.reason, over.message) == (code, reason, "m")
    assert (over.started_at, over.finished_at) == (after(-10), NOW)


def test_addresses_are_steady_and_private() -> None:
    assert pod_address(pod("a")) == pod_address(pod("a")) != pod_address(pod("b"))
    assert pod_address(pod("a")).startswith("10.")
