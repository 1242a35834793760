"""How many ready replicas of an owner must stay. Pure.

An owner's floor is its annotation's, or the setting's; never below 1, so that replicas never go to zero.
"""

from collections.abc import Iterable, Mapping

from overspill_events.names import FLOOR_ANNOTATION
from overspill_objects.core import Pod
from overspill_objects.meta import condition_of, controller_of


class FloorError(ValueError):
    """The annotation is not a floor; the message names annotation, value and what is accepted."""


def floor_of(annotations: Iterable[Mapping[str, str]], *, default: int) -> int:
    """The largest floor that the owner or its pods state, else `default`. Raises FloorError for one that is none."""
    stated = [_parsed(one[FLOOR_ANNOTATION]) for one in annotations if FLOOR_ANNOTATION in one]
    return max(stated, default=default)


def is_ready(pod: Pod) -> bool:
    """Whether a pod serves: condition Ready is True and it is not on its way out."""
    ready = condition_of(pod.status.conditions, "Ready")
    return pod.metadata.deletion_timestamp is None and ready is not None and ready.status == "True"


def ready_replicas(owned: Iterable[Pod]) -> frozenset[str]:
    """UIDs of those of an owner's pods that serve."""
    return frozenset(pod.metadata.uid for pod in owned if is_ready(pod))


def owner_uid_of(pod: Pod) -> str:
    """UID of the pod's controller; empty without one."""
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None else ""


def stays_above(*, ready: frozenset[str], leaving: frozenset[str], pod: Pod, floor: int) -> bool:
    """Whether the owner keeps `floor` ready replicas when `pod` and those `leaving` are gone.

    A pod that is not ready takes no replica away when it goes.
    """
    return not is_ready(pod) or len(ready - leaving - {pod.metadata.uid}) >= floor


def _parsed(text: str) -> int:
    try:
        floor = int(text)
    except ValueError:
        floor = 0
    if floor < 1:
        raise FloorError(f"annotation {FLOOR_ANNOTATION}: {text!r} is not accepted: a whole number of at least 1")
    return floor
