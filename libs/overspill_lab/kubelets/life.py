"""The life of a pod without containers: what its kubelet does next, and when.

Pure and stateless: everything follows from the pod object, so a restarted kubelet goes on where the last one stopped.
"""

import hashlib
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

from overspill_lab.stamps import stamp
from overspill_objects.core import Container, Pod
from overspill_objects.meta import condition_of

RUN_SECONDS: Final = "lab.overspill.dev/run-seconds"  # on a pod: how long its containers run; absent: until deleted
EXIT_CODE: Final = "lab.overspill.dev/exit-code"  # on a pod: what they exit with then; absent: 0
TERMINAL: Final = frozenset({"Succeeded", "Failed"})
TERMINATED_BY_SIGTERM: Final = 143


class Action(Enum):
    """What a kubelet can do for a pod."""

    START = auto()  # containers run and are ready
    RESTART = auto()  # they ended, and restartPolicy wants them again
    END = auto()  # they ended for good
    REFUSE = auto()  # an annotation cannot be read: the pod fails and says so
    REMOVE = auto()  # it was being deleted and has stopped: take the object away


class Step(Struct, frozen=True, kw_only=True):
    """The next thing to do for a pod."""

    action: Action
    due: datetime
    exit_code: int = 0
    message: str = ""


class Pace(Struct, frozen=True, kw_only=True):
    """How long the simulated machinery takes, in seconds."""

    start_s: float = 0.3
    stop_s: float = 0.5


def next_step(pod: Pod, *, pace: Pace, now: datetime) -> Step | None:
    """What to do next for a pod bound to one of our nodes; None while nothing is to be done until it changes."""
    if pod.metadata.deletion_timestamp is not None:
        return _leaving(pod, pace, now)
    if pod.status.phase in TERMINAL:
        return None
    try:
        run_for = _seconds(pod)
        exit_code = int(pod.metadata.annotations.get(EXIT_CODE, "0"))
    except ValueError:
        return Step(action=Action.REFUSE, due=now, exit_code=128, message=_unreadable(pod))
    if pod.status.phase != "Running":
        return Step(action=Action.START, due=now + timedelta(seconds=pace.start_s))
    if run_for is None:
        return None
    ends = max(_started_at(pod, now) + run_for, now)
    again = pod.spec.restart_policy == "Always" or (pod.spec.restart_policy == "OnFailure" and exit_code != 0)
    return Step(action=Action.RESTART if again else Action.END, due=ends, exit_code=exit_code)


def running_status(pod: Pod, *, host_ip: str, now: datetime) -> dict[str, Any]:
    """The status of a pod whose containers run, to be merged strategically; restarted ones keep their first start."""
    restarts = {status.name: status.restart_count for status in pod.status.container_statuses}
    again = pod.status.phase == "Running"
    started = pod.status.start_time or now
    address = pod_address(pod)
    return {
        "phase": "Running",
        "startTime": stamp(started),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(pod, ready=True, now=now),
        "containerStatuses": [
            _container_status(
                one,
                {"running": {"startedAt": stamp(now)}},
                ready=True,
                restarts=restarts.get(one.name, 0) + again,
            )
            for one in pod.spec.containers
        ],
    }


def ended_status(pod: Pod, *, exit_code: int, message: str, now: datetime) -> dict[str, Any]:
    """The status of a pod whose containers are over."""
    started = _started_at(pod, now)
    restarts = {status.name: status.restart_count for status in pod.status.container_statuses}
    terminated = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "message": message,
        "startedAt": stamp(started),
        "finishedAt": stamp(now),
    }
    return {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "startTime": stamp(pod.status.start_time or now),
        "conditions": _conditions(pod, ready=False, now=now),
        "containerStatuses": [
            _container_status(one, {"terminated": terminated}, ready=False, restarts=restarts.get(one.name, 0))
            for one in pod.spec.containers
        ],
    }


def pod_address(pod: Pod) -> str:
    """A made-up address, the same for the same pod, out of 10.0.0.0/8."""
    first, second, third = hashlib.blake2b(pod.metadata.uid.encode(), digest_size=3).digest()
    return f"10.{first}.{second}.{max(1, min(254, third))}"


def _conditions(pod: Pod, *, ready: bool, now: datetime) -> list[dict[str, Any]]:
    over = {} if ready else {"reason": "PodCompleted"}
    wanted: dict[str, tuple[str, dict[str, str]]] = {
        "PodReadyToStartContainers": ("True" if ready else "False", {}),
        "Initialized": ("True", {} if ready else over),
        "Ready": ("True" if ready else "False", over),
        "ContainersReady": ("True" if ready else "False", over),
    }
    conditions = []
    for kind, (status, reason) in wanted.items():
        before = condition_of(pod.status.conditions, kind)
        since = before.last_transition_time if before is not None and before.status == status else None
        conditions.append({"type": kind, "status": status, "lastTransitionTime": stamp(since or now), **reason})
    return conditions


def _container_status(container: Container, state: dict[str, Any], *, ready: bool, restarts: int) -> dict[str, Any]:
    resources = {"requests": container.resources.requests, "limits": container.resources.limits}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
        # In-place resize is refused for pods whose status does not say what they have.
        "resources": {kind: amounts for kind, amounts in resources.items() if amounts},
        "allocatedResources": container.resources.requests,
    }


def _seconds(pod: Pod) -> timedelta | None:
    text = pod.metadata.annotations.get(RUN_SECONDS)
    if text is None:
        return None
    seconds = float(text)
    if not 0 <= seconds < timedelta.max.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _unreadable(pod: Pod) -> str:
    annotations = pod.metadata.annotations
    return (
        f"{RUN_SECONDS}={annotations.get(RUN_SECONDS)!r} must be a number of seconds >= 0 and "
        f"{EXIT_CODE}={annotations.get(EXIT_CODE)!r} a whole number, where they are given"
    )


def _started_at(pod: Pod, now: datetime) -> datetime:
    starts = [one.state.running.started_at for one in pod.status.container_statuses if one.state.running is not None]
    return max((start for start in starts if start is not None), default=pod.status.start_time or now)


def _leaving(pod: Pod, pace: Pace, now: datetime) -> Step | None:
    """A running pod takes the stop time, but never more than its grace period; others are gone at once.

    With a grace period of 0 the API server removes the object itself, or waits for finalizers; then only the end of the
    containers remains to be told.
    """
    grace = pod.metadata.deletion_grace_period_seconds
    running = pod.status.phase == "Running"
    if grace == 0:
        return Step(action=Action.END, due=now, exit_code=TERMINATED_BY_SIGTERM) if running else None
    takes = 0.0 if not running else pace.stop_s if grace is None else min(pace.stop_s, grace)
    return Step(action=Action.REMOVE, due=now + timedelta(seconds=takes), exit_code=TERMINATED_BY_SIGTERM)
