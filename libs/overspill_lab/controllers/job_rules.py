"""What a Job wants next: pods created, pods deleted, what its status says. (pkg/controller/job)

Pods of a Job carry a finalizer until they are counted, so that none is missed or counted twice however often this
process dies: first their uids go into `uncountedTerminatedPods`, then the finalizers go, then the uids become numbers.
Indexed Jobs, pod failure policies and success policies are not modelled; such a Job is failed by name, not run wrongly.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from overspill_lab.conditions import holds, with_condition
from overspill_lab.controllers.replica_rules import OVER, is_active, is_ready, is_terminating
from overspill_lab.stamps import stamp
from overspill_objects.core import Pod

TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
SUCCEEDED: Final = "Succeeded"
MAX_STEP: Final = 500  # pods created or deleted at once
BACKOFF_S: Final = 10.0
MAX_BACKOFF_S: Final = 600.0


class JobView(Struct, frozen=True, kw_only=True):
    """What decides about a Job: its spec and status as plain data, and its pods."""

    uid: str
    deleting: bool
    spec: dict[str, Any]
    status: dict[str, Any]
    pods: tuple[Pod, ...]


class JobPlan(Struct, frozen=True, kw_only=True):
    """What to do now, in this order: delete, create, write the status, release the finalizers.

    A pod that is deleted and not in `release` does not count as failed.
    """

    status: dict[str, Any]
    create: int = 0
    delete: tuple[Pod, ...] = ()
    release: tuple[Pod, ...] = ()  # pods whose finalizer goes, once the status that names them is written
    again_after_s: float | None = None


class _Counts(Struct, kw_only=True):
    succeeded: int
    failed: int
    uncounted_succeeded: list[str]
    uncounted_failed: list[str]


def is_finished(status: dict[str, Any]) -> bool:
    """Whether the Job is Complete or Failed."""
    return any(holds(status, kind) for kind in ("Complete", "Failed"))


def unsupported(spec: dict[str, Any]) -> str | None:
    """The first feature of a Job that the lab does not have, or None."""
    if spec.get("completionMode", "NonIndexed") != "NonIndexed":
        return f"completionMode {spec['completionMode']}"
    if spec.get("podReplacementPolicy", "TerminatingOrFailed") != "TerminatingOrFailed":
        return f"podReplacementPolicy {spec['podReplacementPolicy']}"
    return next((name for name in ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex") if name in spec), None)


def plan_job(job: JobView, *, settled: bool, now: datetime) -> JobPlan:
    """The next step of a Job. `settled`: the pods given here show everything this controller has done before."""
    if is_finished(job.status):
        release = tuple(pod for pod in job.pods if _is_tracked(pod))
        return JobPlan(status=job.status, release=release)
    counts = _count(job)
    failure = _failure(job, counts, now) or _standing_failure(job.status)
    active = [pod for pod in job.pods if is_active(pod)]
    if failure is not None:
        return _fail(job, counts, active, failure, settled=settled, now=now)
    if not settled or job.deleting:
        return _track(job, counts, _status(job, counts, active, now=now))
    wanted = _wanted_active(job.spec, counts, len(active))
    if len(active) > wanted:
        victims = tuple(_first_to_go(active)[: min(len(active) - wanted, MAX_STEP)])
        remaining = [pod for pod in active if pod not in victims]
        status = _status(job, counts, remaining, now=now, more_terminating=len(victims))
        return _track(job, counts, status, delete=victims)
    wait = _backoff(job, counts, now)
    create = 0 if wait else min(wanted - len(active), MAX_STEP)
    status = _status(job, counts, active, now=now, more_active=create)
    plan = _track(job, counts, status, create=create, again_after_s=_sooner(wait, _deadline_in(job, status, now)))
    return _complete(job, counts, plan, now=now) if _is_complete(job.spec, counts, status["active"]) else plan


def _count(job: JobView) -> _Counts:
    uncounted = job.status.get("uncountedTerminatedPods") or {}
    tracked = {pod.metadata.uid for pod in job.pods if _is_tracked(pod)}
    before_ok, before_bad = uncounted.get("succeeded", []), uncounted.get("failed", [])
    # A uid whose pod has lost its finalizer (or is gone) becomes a number; the others stay uids.
    counts = _Counts(
        succeeded=job.status.get("succeeded", 0) + sum(uid not in tracked for uid in before_ok),
        failed=job.status.get("failed", 0) + sum(uid not in tracked for uid in before_bad),
        uncounted_succeeded=[uid for uid in before_ok if uid in tracked],
        uncounted_failed=[uid for uid in before_bad if uid in tracked],
    )
    for pod in job.pods:
        uid = pod.metadata.uid
        if not _is_tracked(pod) or uid in before_ok or uid in before_bad:
            continue
        if pod.status.phase == SUCCEEDED:
            counts.uncounted_succeeded.append(uid)
        elif pod.status.phase in OVER or pod.metadata.deletion_timestamp is not None:
            counts.uncounted_failed.append(uid)
    return counts


def _successes(counts: _Counts) -> int:
    return counts.succeeded + len(counts.uncounted_succeeded)


def _failures(counts: _Counts) -> int:
    return counts.failed + len(counts.uncounted_failed)


def _failure(job: JobView, counts: _Counts, now: datetime) -> tuple[str, str] | None:
    """Reason and message, when the Job has failed for good."""
    if (feature := unsupported(job.spec)) is not None:
        return ("NotSupportedByLab", f"the lab does not run Jobs with {feature}")
    if _failures(counts) > job.spec.get("backoffLimit", 6) or _restarts_exceed(job):
        return ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = _deadline_in(job, job.status, now)
    if left is not None and left <= 0:
        return ("DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _standing_failure(status: dict[str, Any]) -> tuple[str, str] | None:
    return next(
        ((one["reason"], one["message"]) for one in status.get("conditions", ()) if one["type"] == "FailureTarget"),
        None,
    )


def _restarts_exceed(job: JobView) -> bool:
    """With restartPolicy OnFailure the kubelet retries; its restarts count against the limit."""
    if job.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(status.restart_count for pod in job.pods for status in pod.status.container_statuses)
    limit: int = job.spec.get("backoffLimit", 6)
    return restarts > 0 if limit == 0 else restarts >= limit


def _wanted_active(spec: dict[str, Any], counts: _Counts, active: int) -> int:
    if spec.get("suspend"):
        return 0
    parallelism: int = spec.get("parallelism", 1)
    if spec.get("completions") is None:
        return active if _successes(counts) > 0 else parallelism
    left: int = spec["completions"] - _successes(counts)
    return max(0, min(parallelism, left))


def _is_complete(spec: dict[str, Any], counts: _Counts, active: int) -> bool:
    if active:
        return False
    completions = spec.get("completions")
    return _successes(counts) >= (1 if completions is None else completions)


def _first_to_go(active: Sequence[Pod]) -> list[Pod]:
    """Pods that have got least far first."""
    return sorted(active, key=lambda pod: (pod.spec.node_name != "", is_ready(pod), pod.metadata.name))


def _fail(
    job: JobView, counts: _Counts, active: list[Pod], failure: tuple[str, str], *, settled: bool, now: datetime
) -> JobPlan:
    """Delete what runs; the last word only when nothing is left that could still count."""
    known = {*counts.uncounted_succeeded, *counts.uncounted_failed}
    counts.uncounted_failed += [
        pod.metadata.uid for pod in job.pods if _is_tracked(pod) and pod.metadata.uid not in known
    ]
    status = _status(job, counts, [], now=now, more_terminating=len(active))
    status = with_condition(status, "FailureTarget", *failure, now=now)
    plan = _track(job, counts, status, delete=tuple(active))
    if active or not settled or plan.release or any(is_terminating(pod) for pod in job.pods):
        return plan
    return JobPlan(status=with_condition(status, "Failed", *failure, now=now))


def _complete(job: JobView, counts: _Counts, plan: JobPlan, *, now: datetime) -> JobPlan:
    message = ("CompletionsReached", "Reached expected number of succeeded pods")
    status = with_condition(plan.status, "SuccessCriteriaMet", *message, now=now)
    waiting = counts.uncounted_succeeded or counts.uncounted_failed or any(is_terminating(pod) for pod in job.pods)
    if waiting:
        return JobPlan(status=status, release=plan.release)
    status = with_condition(status, "Complete", *message, now=now)
    return JobPlan(status={**status, "completionTime": stamp(now)})


def _track(
    job: JobView,
    counts: _Counts,
    status: dict[str, Any],
    *,
    create: int = 0,
    delete: tuple[Pod, ...] = (),
    again_after_s: float | None = None,
) -> JobPlan:
    named = {*counts.uncounted_succeeded, *counts.uncounted_failed}
    release = tuple(pod for pod in job.pods if pod.metadata.uid in named)
    return JobPlan(status=status, create=create, delete=delete, release=release, again_after_s=again_after_s)


def _status(
    job: JobView,
    counts: _Counts,
    active: Sequence[Pod],
    *,
    now: datetime,
    more_active: int = 0,
    more_terminating: int = 0,
) -> dict[str, Any]:
    suspended = bool(job.spec.get("suspend"))
    status = {
        **job.status,
        "active": len(active) + more_active,
        "ready": sum(is_ready(pod) for pod in active),
        "terminating": sum(is_terminating(pod) for pod in job.pods) + more_terminating,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "uncountedTerminatedPods": {
            name: uids
            for name, uids in (("succeeded", counts.uncounted_succeeded), ("failed", counts.uncounted_failed))
            if uids
        },
    }
    was_suspended = holds(job.status, "Suspended")
    if suspended and not was_suspended:
        status = with_condition(status, "Suspended", "JobSuspended", "Job suspended", now=now)
        status.pop("startTime", None)
    elif not suspended and was_suspended:
        status = with_condition(status, "Suspended", "JobResumed", "Job resumed", now=now, is_true=False)
        status["startTime"] = stamp(now)
    elif not suspended and "startTime" not in status:
        status["startTime"] = stamp(now)
    return status


def _backoff(job: JobView, counts: _Counts, now: datetime) -> float | None:
    """Seconds to wait before a failed pod is replaced: 10, 20, 40, … by the failures since the latest success."""
    if not _failures(counts):
        return None
    successes = [_finished_at(pod, now) for pod in job.pods if pod.status.phase == SUCCEEDED]
    last_success = max(successes, default=datetime.min.replace(tzinfo=UTC))
    failures = [_finished_at(pod, now) for pod in job.pods if pod.status.phase == "Failed"]
    recent = [when for when in failures if when > last_success]
    if not recent:
        return None
    wait = min(MAX_BACKOFF_S, BACKOFF_S * 2 ** (len(recent) - 1))
    left = (max(recent) + timedelta(seconds=wait) - now).total_seconds()
    return left if left > 0 else None


def _finished_at(pod: Pod, now: datetime) -> datetime:
    ends = [status.state.terminated.finished_at for status in pod.status.container_statuses if status.state.terminated]
    known = [end for end in ends if end is not None]
    return max(known) if known else now


def _deadline_in(job: JobView, status: dict[str, Any], now: datetime) -> float | None:
    limit, started = job.spec.get("activeDeadlineSeconds"), status.get("startTime")
    if limit is None or started is None or job.spec.get("suspend"):
        return None
    return float((datetime.fromisoformat(started) + timedelta(seconds=limit) - now).total_seconds())


def _sooner(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)


def _is_tracked(pod: Pod) -> bool:
    return TRACKING_FINALIZER in pod.metadata.finalizers
