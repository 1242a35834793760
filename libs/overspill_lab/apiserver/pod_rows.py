"""How a pod's row reads: ready count, status in a word, restarts, place. Pure; follows `printPod`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from overspill_lab.apiserver.documents import JsonObject, member, parse_timestamp


def pod_cells(pod: JsonObject, now: datetime, *, age: str, since: Callable[[float], str]) -> list[Any]:
    """Return a pod's cells after its name; `since` writes a span of seconds."""
    spec, status = pod["spec"], pod["status"]
    statuses = status.get("containerStatuses") or ()
    ready = sum(1 for container in statuses if container.get("ready"))
    restarts = sum(container.get("restartCount", 0) for container in statuses)
    shown_restarts = str(restarts)
    ended = [member(container, "lastState", "terminated", "finishedAt") for container in statuses]
    if restarts and (last := max((moment for moment in ended if moment), default=None)):
        shown_restarts = f"{restarts} ({since((now - parse_timestamp(last)).total_seconds())} ago)"
    place = [status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName"), None]
    return [
        f"{ready}/{len(spec['containers'])}",
        status_word(pod),
        shown_restarts,
        age,
        *[item or "<none>" for item in place],
    ]


def status_word(pod: JsonObject) -> str:
    """Return the one word that `kubectl get pods` shows under STATUS."""
    status = pod["status"]
    word = status.get("reason") or status.get("phase", "Unknown")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}"
        elif container.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        word = "Running" if is_ready else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)
