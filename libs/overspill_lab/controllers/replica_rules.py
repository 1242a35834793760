"""Which pods a ReplicaSet lacks or has too many of, and which of those go first. (pkg/controller/controller_utils)"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from overspill_events.names import DELETION_COST_ANNOTATION
from overspill_objects.core import Pod
from overspill_objects.meta import condition_of

PHASE_ORDER: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
OVER: Final = frozenset({"Succeeded", "Failed"})


def is_active(pod: Pod) -> bool:
    """Neither over nor being deleted: it counts as a replica."""
    return pod.status.phase not in OVER and pod.metadata.deletion_timestamp is None


def is_terminating(pod: Pod) -> bool:
    """Being deleted and not over yet."""
    return pod.status.phase not in OVER and pod.metadata.deletion_timestamp is not None


def is_ready(pod: Pod) -> bool:
    """Its Ready condition is True."""
    ready = condition_of(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def ready_since(pod: Pod) -> datetime | None:
    """When it became ready; None when it is not."""
    ready = condition_of(pod.status.conditions, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None


def is_available(pod: Pod, *, min_ready: timedelta, now: datetime) -> bool:
    """Ready for long enough."""
    since = ready_since(pod)
    return is_ready(pod) and (not min_ready or (since is not None and since + min_ready <= now))


def surplus(pods: Sequence[Pod], related: Iterable[Pod], *, count: int, now: datetime) -> list[Pod]:
    """The `count` pods to delete first among these; `related` are the active pods of the owner's whole family.

    Order: unassigned, then pending, then unknown, then not ready; lower deletion cost; nodes that hold more of the
    family; ready for a shorter time; more restarts; younger. Times count in powers of two, ties by uid.
    """
    crowd = Counter(pod.spec.node_name for pod in related if is_active(pod))
    return sorted(pods, key=lambda pod: _deletion_rank(pod, crowd, now))[:count]


def _deletion_rank(pod: Pod, crowd: Counter[str], now: datetime) -> tuple[Any, ...]:
    since = ready_since(pod)
    return (
        pod.spec.node_name != "",
        PHASE_ORDER.get(pod.status.phase, 0),
        is_ready(pod),
        deletion_cost(pod),
        -crowd[pod.spec.node_name],
        _age_rank(since, now) if since is not None else 0,
        -max((status.restart_count for status in pod.status.container_statuses), default=0),
        _age_rank(pod.metadata.creation_timestamp, now),
        pod.metadata.uid,
    )


def deletion_cost(pod: Pod) -> int:
    """The cost annotation; 0 when absent or unreadable, as the original does."""
    try:
        return int(pod.metadata.annotations.get(DELETION_COST_ANNOTATION, "0"))
    except ValueError:
        return 0


def _age_rank(since: datetime | None, now: datetime) -> int:
    age_ns = (now - since) / timedelta(microseconds=1) * 1000 if since is not None else 0
    return int(math.log2(age_ns)) if age_ns > 0 else -1


def replica_set_status(
    spec: dict[str, Any],
    *,
    generation: int,
    active: Sequence[Pod],
    terminating: int,
    failure: str | None,
    now: datetime,
) -> dict[str, Any]:
    """What a ReplicaSet's status says of these pods; `failure` is why pods could not be created, if so."""
    labels = spec["template"].get("metadata", {}).get("labels", {}).items()
    min_ready = timedelta(seconds=spec.get("minReadySeconds", 0))
    status: dict[str, Any] = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, min_ready=min_ready, now=now) for pod in active),
        "terminatingReplicas": terminating,
        "observedGeneration": generation,
        "conditions": None,
    }
    if failure is not None:
        status["conditions"] = [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
        ]
    return status
