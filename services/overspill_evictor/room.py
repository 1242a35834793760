"""Room at home as the evictor may give it away: less what is booked for returns and what waiting pods need first.

Pods that wait with equal or higher priority are placed before any return is; one that fits nowhere now keeps the node
that is nearest to having room for it. Pure.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from msgspec import Struct

from overspill_capacity.fit import DoesNotFit, FitUnknown, find_home, fits, why_no_home
from overspill_capacity.requests import effective_requests
from overspill_capacity.room import TERMINAL, HomeSnapshot, Reservation
from overspill_objects.core import Pod

NEVER: Final = datetime.max.replace(tzinfo=UTC)  # a claim that only serves one decision


class Found(Struct, frozen=True, kw_only=True):
    """A home node with room; `free_gpus` on it before."""

    node: str
    free_gpus: int


class NotFound(Struct, frozen=True, kw_only=True):
    """No room: because of waiting pods, or none at all; or unknown."""

    detail: str
    waiting_first: bool = False
    unknown: bool = False


class Home:
    """Gives out places for the length of one decision; a place given is not given again."""

    def __init__(self, snapshot: HomeSnapshot, waiting: Iterable[Pod]) -> None:
        self._snapshot = snapshot
        self._waiting = sorted(waiting, key=lambda pod: (-priority_of(pod), pod.metadata.namespace, pod.metadata.name))
        self._behind: dict[int, tuple[HomeSnapshot, str]] = {}  # priority → room that is left, who cannot be judged
        self._full_for: dict[str, NotFound] = {}  # pods of one owner are alike, and room only shrinks

    def place_for(self, pod: Pod, *, alike: str) -> Found | NotFound:
        """A node for a pod like this one; `alike` names pods of the same shape (their owner)."""
        if alike in self._full_for:
            return self._full_for[alike]
        answer = self._search(pod)
        if isinstance(answer, NotFound):
            self._full_for[alike] = answer
        return answer

    def book(self, pod: Pod, node: str) -> None:
        """Take the place away from everybody after."""
        claim = _claim(pod, node)
        self._snapshot = self._snapshot.reserve(claim)
        self._behind = {p: (room.reserve(claim), doubt) for p, (room, doubt) in self._behind.items()}

    def _search(self, pod: Pod) -> Found | NotFound:
        room, doubt = self._room_behind(priority_of(pod))
        if doubt:
            return NotFound(detail=doubt, waiting_first=True)
        match find_home(pod, room):
            case str() as node:
                return Found(node=node, free_gpus=int(room.rooms[node].free_of(room.resource)))
            case FitUnknown(rule=rule):
                return NotFound(detail=rule, unknown=True)
            case None:
                if isinstance(find_home(pod, self._snapshot), str):
                    return NotFound(detail="the room there is, pods that wait need first", waiting_first=True)
                return NotFound(detail=why_no_home(pod, self._snapshot))

    def _room_behind(self, priority: int) -> tuple[HomeSnapshot, str]:
        if priority not in self._behind:
            first = [pod for pod in self._waiting if priority_of(pod) >= priority]
            self._behind[priority] = _with_waiting(self._snapshot, first)
        return self._behind[priority]


def waits_for_home(pod: Pod, *, resource: str) -> bool:
    """Whether kube-scheduler is looking for a place for this pod, and a place with such devices."""
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.status.phase in TERMINAL or pod.status.nominated_node_name:  # nominated: counted by the snapshot
        return False
    try:
        return resource in effective_requests(pod)
    except ValueError:
        return True  # it may ask for anything: `find_home` will say that it cannot be judged


def priority_of(pod: Pod) -> int:
    """No priority is zero, as for kube-scheduler."""
    return pod.spec.priority or 0


def _with_waiting(home: HomeSnapshot, waiting: Iterable[Pod]) -> tuple[HomeSnapshot, str]:
    for pod in waiting:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        match find_home(pod, home):
            case str() as node:
                home = home.reserve(_claim(pod, node))
            case FitUnknown(rule=rule):
                return home, f"pod {name} waits and cannot be judged: {rule}"
            case None:
                home = _kept_for(pod, home)
    return home, ""


def _kept_for(pod: Pod, home: HomeSnapshot) -> HomeSnapshot:
    """The free devices of the node nearest to having room stay for the pod that is stuck, if any node could ever."""
    could = []
    for room in home.rooms.values():
        answer = fits(pod, room)
        is_short = isinstance(answer, DoesNotFit) and answer.needed is not None
        if is_short and room.allocatable.get(home.resource, Decimal(0)) >= effective_requests(pod)[home.resource]:
            could.append(room)
    if not could:
        return home
    nearest = max(could, key=lambda room: (room.free_of(home.resource), room.name))
    kept = {home.resource: nearest.free_of(home.resource)}
    return home.reserve(Reservation(key=pod.metadata.uid, node=nearest.name, requests=kept, expires_at=NEVER))


def _claim(pod: Pod, node: str) -> Reservation:
    # Under a name of its own: the pod itself is bound to a virtual node, and claims of bound pods do not count.
    return Reservation(key=f"place/{pod.metadata.uid}", node=node, requests=effective_requests(pod), expires_at=NEVER)
