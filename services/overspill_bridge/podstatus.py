"""A pod's status as its instance justifies it, and the smallest patch that makes it so. Pure.

Honest above all: an exit code that is not known is not zero, a state that is not understood changes nothing, and no
address is made up. Writing the same status twice yields no patch.
"""

from datetime import datetime
from ipaddress import ip_address
from typing import Any

from msgspec import Struct

from overspill_events.names import DOMAIN
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_objects.core import Container, ContainerStatus, Pod
from overspill_objects.meta import condition_of
from overspill_providers.protocol import Instance, InstanceState

SPILLED_CONDITION = f"{DOMAIN}/Spilled"
EXIT_CODE_UNKNOWN = 255  # the API demands a number; the reason beside it says that it is not the container's own
TERMINAL = ("Succeeded", "Failed")
REASON_LOST = "ProviderInstanceLost"
REASON_DEADLINE = "DeadlineExceeded"

# condition type → (status, reason, message)
Conditions = dict[str, tuple[str, str, str]]


class Desired(Struct, frozen=True, kw_only=True):
    """What the status should say. `container` is the state of the one container, as the API writes it."""

    phase: str
    container: dict[str, Any]
    ready: bool = False
    conditions: Conditions = {}
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    pod_ip: str = ""
    container_id: str = ""


def is_started(pod: Pod) -> bool:
    """Whether the API has ever been told that the pod ran."""
    return pod.status.phase == "Running" or pod.status.start_time is not None


def waiting(pod: Pod, reason: SpillReason, detail: str) -> Desired:
    """No instance yet, and why."""
    word = _camel(reason.value)
    return _pending(pod, word=word, detail=detail, spilled=("False", word, detail))


def starting(pod: Pod, instance: Instance) -> Desired:
    """An instance is on its way."""
    word = f"Instance{_camel(instance.state.value)}"
    return _pending(pod, word=word, detail="", spilled=("True", "InstanceCreated", ""))


def running(pod: Pod, *, provider: str, instance: Instance, now: datetime) -> Desired:
    """The provider says that it runs. The container's start is the provider's, else what was written before."""
    since = instance.running_at or _written_start(pod) or now
    reachable = _routable(instance.endpoint)
    return Desired(
        phase="Running",
        container={"running": {"startedAt": _time(since)}},
        ready=True,
        conditions=_ready("True", "", "") | {SPILLED_CONDITION: ("True", "InstanceRunning", "")},
        start_time=pod.status.start_time or since,
        pod_ip=reachable,
        container_id=f"{provider}://{instance.id}",
    )


def concluded(pod: Pod, *, provider: str, instance: Instance, now: datetime) -> Desired:
    """The instance ended by itself: the phase by exit code and restartPolicy.

    An instance is not restarted in place: a container that its pod wants running again is a Failed pod, whose owner
    makes another.
    """
    code = instance.exit_code
    succeeded = instance.state is InstanceState.EXITED and code == 0 and pod.spec.restart_policy != "Always"
    reason = "" if succeeded else _end_reason(instance)
    conditions = _ready("False", "PodCompleted" if succeeded else "PodFailed", "")
    if instance.state is InstanceState.PREEMPTED:
        text = instance.message or "the provider took the instance back"
        conditions["DisruptionTarget"] = ("True", "PreemptedByProvider", text)
    return Desired(
        phase="Succeeded" if succeeded else "Failed",
        container=_terminated(pod, code=code, reason=_exit_word(instance), message=instance.message, now=now),
        conditions=conditions,
        reason=reason,
        message="" if succeeded else instance.message,
        start_time=pod.status.start_time or instance.running_at or instance.created_at,
        container_id=f"{provider}://{instance.id}",
    )


def failed(pod: Pod, *, reason: str, message: str, now: datetime) -> Desired:
    """The pod fails for a reason outside its container: instance lost, deadline over."""
    return Desired(
        phase="Failed",
        container=_terminated(pod, code=None, reason=reason, message=message, now=now),
        conditions=_ready("False", "PodFailed", ""),
        reason=reason,
        message=message,
        start_time=pod.status.start_time,
    )


def end_of(instance: Instance) -> InstanceEnd:
    """Why an instance that ended by itself ended."""
    match instance.state:
        case InstanceState.PREEMPTED:
            return InstanceEnd.PREEMPTED
        case InstanceState.EXITED:
            return InstanceEnd.EXITED
        case InstanceState.FAILED:
            return InstanceEnd.FAILED
        case _:
            return InstanceEnd.UNKNOWN


def status_patch(pod: Pod, desired: Desired, *, now: datetime) -> dict[str, Any] | None:
    """A strategic merge patch of `status`, or None when it already says so. A terminal phase is never touched."""
    if pod.status.phase in TERMINAL:
        return None
    conditions = [
        {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": _time(now)}
        for type_, (status, reason, message) in desired.conditions.items()
        if not _has_condition(pod, type_, status, reason)
    ]
    patch: dict[str, Any] = {"conditions": conditions} if conditions else {}
    texts = (
        ("phase", pod.status.phase, desired.phase),
        ("reason", pod.status.reason, desired.reason),
        ("message", pod.status.message, desired.message),
        ("podIP", pod.status.pod_ip, desired.pod_ip),
    )
    patch |= {name: wanted or None for name, current, wanted in texts if current != wanted}
    if desired.pod_ip and "podIP" in patch:
        patch["podIPs"] = [{"ip": desired.pod_ip}]
    if desired.start_time is not None and pod.status.start_time is None:
        patch["startTime"] = _time(desired.start_time)
    if not _container_says(pod, desired):
        patch["containerStatuses"] = [_container_status(container, desired) for container in pod.spec.containers]
    return patch or None


def _pending(pod: Pod, *, word: str, detail: str, spilled: tuple[str, str, str]) -> Desired:
    names = ", ".join(container.name for container in pod.spec.containers)
    state = {"reason": word} | ({"message": detail} if detail else {})
    unready = ("False", "ContainersNotReady", f"containers with unready status: [{names}]")
    return Desired(
        phase="Pending",
        container={"waiting": state},
        conditions={"Ready": unready, "ContainersReady": unready, SPILLED_CONDITION: spilled},
    )


def _ready(status: str, reason: str, message: str) -> Conditions:
    value = (status, reason, message)
    return {"Initialized": ("True", "", ""), "ContainersReady": value, "Ready": value}


def _has_condition(pod: Pod, type_: str, status: str, reason: str) -> bool:
    """Messages may carry prices and counts; they alone are not worth a write."""
    current = condition_of(pod.status.conditions, type_)
    return current is not None and (current.status, current.reason) == (status, reason)


def _container_says(pod: Pod, desired: Desired) -> bool:
    """Whether the written container statuses already say what is desired."""
    written = {status.name: status for status in pod.status.container_statuses}
    (kind, wanted) = next(iter(desired.container.items()))
    for container in pod.spec.containers:
        status = written.get(container.name)
        state = None if status is None else getattr(status.state, kind)
        if status is None or state is None or status.ready != desired.ready:
            return False
        if kind != "running" and state.reason != wanted["reason"]:
            return False
        if kind == "running" and state.started_at is None:
            return False
    return True


def _container_status(container: Container, desired: Desired) -> dict[str, Any]:
    status = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": desired.ready,
        "started": desired.ready,
        "restartCount": 0,
        "state": desired.container,
    }
    return status | ({"containerID": desired.container_id} if desired.container_id else {})


def _terminated(pod: Pod, *, code: int | None, reason: str, message: str, now: datetime) -> dict[str, Any]:
    started = _written_start(pod)
    state: dict[str, Any] = {
        "exitCode": EXIT_CODE_UNKNOWN if code is None else code,
        "reason": reason,
        "finishedAt": _time(now),
    }
    if message or code is None:
        state["message"] = message or "the provider did not tell the exit code"
    return {"terminated": state | ({} if started is None else {"startedAt": _time(started)})}


def _exit_word(instance: Instance) -> str:
    if instance.exit_code is None:
        return "ExitCodeUnknown"
    return "Completed" if instance.exit_code == 0 else "Error"


def _end_reason(instance: Instance) -> str:
    words = {
        InstanceState.PREEMPTED: "ProviderInstancePreempted",
        InstanceState.FAILED: "ProviderInstanceFailed",
        InstanceState.EXITED: "ContainerExited",
    }
    return words.get(instance.state, "ProviderInstanceEnded")


def _written_start(pod: Pod) -> datetime | None:
    return next(
        (
            status.state.running.started_at
            for status in pod.status.container_statuses
            if _is_running(status) and status.state.running is not None
        ),
        None,
    )


def _is_running(status: ContainerStatus) -> bool:
    return status.state.running is not None


def _routable(endpoint: str) -> str:
    """The endpoint if it is an address, else nothing: a name or a URL is no podIP."""
    try:
        return str(ip_address(endpoint))
    except ValueError:
        return ""


def _camel(reason: str) -> str:
    return "".join(part.capitalize() for part in reason.split("-"))


def _time(moment: datetime) -> str:
    """As the API writes times: whole seconds, UTC, Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
