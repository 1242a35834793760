"""What a Job does next: pods, counts, conditions; however often its controller dies."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from overspill_lab.controllers.job_rules import TRACKING_FINALIZER, JobPlan, JobView, is_finished, plan_job
from overspill_objects.core import Pod
from tests.support.lab_cases import NOW, pod, running, time

TRACKED = {"finalizers": [TRACKING_FINALIZER]}


def view(pods: Iterable[Pod] = (), *, status: dict[str, Any] | None = None, **spec: Any) -> JobView:
    template = {"spec": {"restartPolicy": "Never", "containers": []}}
    return JobView(
        uid="job",
        deleting=False,
        spec={"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec},
        status=status or {},
        pods=tuple(pods),
    )


def plan(
    pods: Iterable[Pod] = (), *, settled: bool = True, status: dict[str, Any] | None = None, **spec: Any
) -> JobPlan:
    return plan_job(view(pods, status=status, **spec), settled=settled, now=NOW)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", ())}


def ended(name: str, phase: str, *, seconds_ago: float = 3600, tracked: bool = True) -> Pod:
    finished = {"terminated": {"exitCode": 0, "finishedAt": time(-seconds_ago)}}
    return pod(
        name,
        metadata=TRACKED if tracked else {},
        spec={"nodeName": "n"},
        status={"phase": phase, "containerStatuses": [{"name": "c", "state": finished}]},
    )


def alive(name: str, **metadata: Any) -> Pod:
    return running(name, metadata={**TRACKED, **metadata})


def test_a_new_job_makes_its_pods_and_starts() -> None:
    made = plan(parallelism=2, completions=5)
    assert made.create == 2
    assert (made.status["active"], made.status["startTime"]) == (2, time())


def test_no_pod_is_made_before_the_last_ones_are_seen() -> None:
    assert plan(settled=False).create == 0


def test_never_more_pods_than_completions_are_left() -> None:
    done = {"succeeded": 4, "startTime": time()}
    assert plan(parallelism=3, completions=5, status=done).create == 1


def test_a_suspended_job_has_no_pods_and_no_start_time() -> None:
    suspended = plan([alive("a")], suspend=True, status={"startTime": time(-60)})
    assert [one.metadata.name for one in suspended.delete] == ["a"]
    assert suspended.release == ()  # they do not count as failed
    assert "startTime" not in suspended.status
    assert conditions(suspended.status)["Suspended"] == ("True", "JobSuspended")


def test_a_resumed_job_starts_anew() -> None:
    before = plan(suspend=True).status
    resumed = plan(status=before)
    assert resumed.create == 1
    assert resumed.status["startTime"] == time()
    assert conditions(resumed.status)["Suspended"] == ("False", "JobResumed")


def test_a_finished_pod_is_counted_in_three_steps() -> None:
    """Its uid first, then the finalizer goes, then it is a number; the Job is complete only then."""
    first = plan([ended("a", "Succeeded")], status={"startTime": time(-9)})
    assert first.status["uncountedTerminatedPods"] == {"succeeded": ["a"]}
    assert first.status.get("succeeded", 0) == 0
    assert [one.metadata.name for one in first.release] == ["a"]
    assert first.create == 0
    assert not is_finished(first.status)

    second = plan([ended("a", "Succeeded", tracked=False)], status=first.status)
    assert (second.status["succeeded"], second.status["uncountedTerminatedPods"]) == (1, {})
    assert conditions(second.status) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert second.status["completionTime"] == time()


def test_a_job_without_completions_waits_for_the_others() -> None:
    status = {"startTime": time(-9), "succeeded": 1}
    waiting = plan([alive("b")], status=status, completions=None, parallelism=2)
    assert (waiting.create, waiting.delete, is_finished(waiting.status)) == (0, (), False)
    assert is_finished(plan(status=status, completions=None, parallelism=2).status)


def test_a_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    leaving = alive("a", deletionTimestamp=time())
    made = plan([leaving], status={"startTime": time(-9)})
    assert made.status["uncountedTerminatedPods"] == {"failed": ["a"]}
    assert made.create == 1
    assert made.status["terminating"] == 1


def test_a_failed_pod_is_replaced_after_a_while() -> None:
    soon = plan([ended("a", "Failed", seconds_ago=4)], status={"startTime": time(-9)})
    assert (soon.create, soon.again_after_s) == (0, 6.0)
    assert plan([ended("a", "Failed", seconds_ago=11)], status={"startTime": time(-19)}).create == 1


def test_each_further_failure_waits_twice_as_long_until_a_success() -> None:
    failures = [ended("a", "Failed", seconds_ago=100), ended("b", "Failed", seconds_ago=5)]
    assert plan(failures, completions=3).again_after_s == 15.0
    assert plan([*failures, ended("c", "Succeeded", seconds_ago=50)], completions=3).again_after_s == 5.0


def test_too_many_failures_fail_the_job_and_stop_its_pods() -> None:
    pods = [ended("a", "Failed"), alive("b")]
    failing = plan(pods, status={"startTime": time(-9)}, backoffLimit=0, parallelism=2, completions=2)
    assert [one.metadata.name for one in failing.delete] == ["b"]
    assert set(failing.status["uncountedTerminatedPods"]["failed"]) == {"a", "b"}
    assert conditions(failing.status) == {"FailureTarget": ("True", "BackoffLimitExceeded")}

    counted = plan([ended("a", "Failed", tracked=False)], status=failing.status, backoffLimit=0)
    assert counted.status["failed"] == 2
    assert conditions(counted.status)["Failed"] == ("True", "BackoffLimitExceeded")


def test_the_deadline_counts_from_the_start() -> None:
    assert plan([alive("a")], activeDeadlineSeconds=60, status={"startTime": time(-50)}).again_after_s == 10.0
    late = plan([alive("a")], activeDeadlineSeconds=60, status={"startTime": time(-60)})
    assert conditions(late.status)["FailureTarget"] == ("True", "DeadlineExceeded")


def test_a_finished_job_only_lets_go_of_its_pods() -> None:
    status = {"conditions": [{"type": "Complete", "status": "True", "reason": "", "message": ""}]}
    made = plan([ended("a", "Succeeded")], status=status, parallelism=3, completions=3)
    assert made == JobPlan(status=status, release=(ended("a", "Succeeded"),))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("completionMode", "Indexed", "completionMode Indexed"),
        ("podFailurePolicy", {"rules": []}, "podFailurePolicy"),
        ("podReplacementPolicy", "Failed", "podReplacementPolicy Failed"),
    ],
)
def test_what_the_lab_does_not_have_fails_by_name(field: str, value: Any, named: str) -> None:
    refused = plan(**{field: value})
    assert refused.create == 0
    assert refused.status["conditions"][-1]["message"] == f"the lab does not run Jobs with {named}"


class JobLife(RuleBasedStateMachine):
    """Pods succeed, fail and are deleted in any order, and the controller dies between any two of its writes.

    Then every pod is counted exactly once, and no more pods run than the Job wants.
    """

    completions, parallelism = 5, 3

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.status: dict[str, Any] = {}
        self.made = 0
        self.successes = 0
        self.failures = 0

    @rule(die_after=st.integers(0, 3))
    def sync(self, die_after: int) -> None:
        """Create, write the status, release: dying after any of them."""
        made = plan_job(
            view(
                self.pods.values(),
                status=self.status,
                completions=self.completions,
                parallelism=self.parallelism,
                backoffLimit=1000,
            ),
            settled=True,
            now=NOW,
        )
        if die_after > 0:
            for _ in range(made.create):
                self.made += 1
                self.pods[f"p{self.made}"] = alive(f"p{self.made}")
        if die_after > 1:
            self.status = made.status
        if die_after > 2:
            for released in made.release:
                self._release(released)

    def _release(self, released: Pod) -> None:
        name = released.metadata.name
        if released.metadata.deletion_timestamp is not None:
            del self.pods[name]  # nothing holds it any more
        else:
            self.pods[name] = ended(name, released.status.phase, tracked=False)

    def _running(self) -> list[str]:
        return sorted(
            name
            for name, one in self.pods.items()
            if one.status.phase == "Running" and one.metadata.deletion_timestamp is None
        )

    @precondition(lambda self: self._running())
    @rule(data=st.data(), phase=st.sampled_from(["Succeeded", "Failed"]))
    def finish(self, data: st.DataObject, phase: str) -> None:
        name = data.draw(st.sampled_from(self._running()))
        self.pods[name] = ended(name, phase)
        self.successes += phase == "Succeeded"
        self.failures += phase == "Failed"

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._running()))
        self.pods[name] = alive(name, deletionTimestamp=time())
        self.failures += 1

    @invariant()
    def no_pod_is_counted_twice(self) -> None:
        uncounted = self.status.get("uncountedTerminatedPods", {})
        tracked = {name for name, one in self.pods.items() if TRACKING_FINALIZER in one.metadata.finalizers}
        succeeded = self.status.get("succeeded", 0) + sum(uid not in tracked for uid in uncounted.get("succeeded", ()))
        failed = self.status.get("failed", 0) + sum(uid not in tracked for uid in uncounted.get("failed", ()))
        assert succeeded <= self.successes
        assert failed <= self.failures

    @invariant()
    def not_too_many_run(self) -> None:
        assert len(self._running()) <= self.parallelism

    def teardown(self) -> None:
        for _ in range(30):
            self.sync(die_after=3)
            for name in self._running():
                self.pods[name] = ended(name, "Succeeded")
                self.successes += 1
        assert is_finished(self.status)
        assert self.status["succeeded"] == self.successes >= self.completions
        assert self.status["failed"] == self.failures


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
