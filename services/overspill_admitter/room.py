"""Physical room at home for what is to be admitted: free on the nodes, less what is under way to them. Pure.

Every pod must find a node, not only the sum: eight GPUs in eight places are no room for an 8-GPU pod. Pods that are
under way and find no node, or cannot be judged, are set off against the sum of what is free.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from msgspec import Struct

from overspill_capacity.fit import FitUnknown, find_home, why_no_home
from overspill_capacity.requests import effective_requests
from overspill_capacity.room import HomeSnapshot, Reservation
from overspill_events.reasons import DeferReason
from overspill_objects.core import Pod

NEVER = datetime.max.replace(tzinfo=UTC)


class NoRoom(Struct, frozen=True, kw_only=True):
    """Why a workload finds no room at home."""

    reason: DeferReason
    detail: str


class Room:
    """Gives out home room for the length of one decision."""

    def __init__(self, home: HomeSnapshot) -> None:
        self._home = home
        self._floating = Decimal(0)  # devices of pods under way that have no node to be counted on
        self._refused: dict[bytes, NoRoom] = {}  # room only shrinks: what found none will find none
        self._count = 0

    @property
    def free(self) -> float:
        """Devices that may still be given out, fragmentation aside."""
        return float(max(Decimal(0), self._home.free_gpus - self._floating))

    def mark(self) -> HomeSnapshot:
        """The room as it is, to go back to."""
        return self._home

    def restore(self, mark: HomeSnapshot) -> None:
        """Give back what was taken since `mark`."""
        self._home = mark

    def take_under_way(self, pod: Pod, pods: int, *, may_overflow: bool) -> None:
        """Count pods that were admitted and are not bound: they will take a node first.

        Pods that may overflow take home room only where they fit now. Raises ValueError for unreadable requests.
        """
        devices = effective_requests(pod).get(self._home.resource, Decimal(0))
        for number in range(pods):
            match find_home(pod, self._home):
                case str() as node:
                    self._book(pod, node)
                    continue
                case None if may_overflow:
                    pass
                case _:
                    self._floating += devices * (pods - number)
            return  # room only shrinks: the others find none either, and a Job may have two billion of them

    def take(self, pod: Pod, pods: int) -> NoRoom | None:
        """Room for all of `pods` pods like this one, or why not; then nothing is taken."""
        if self._home.unknown is not None:
            why = f"home cannot be counted: {self._home.detail or self._home.unknown}"
            return NoRoom(reason=DeferReason.ROOM_UNKNOWN, detail=why)
        shape = shape_of(pod, pods)
        if shape in self._refused:
            return self._refused[shape]
        before = self._home
        answer = self._take(pod, pods)
        if answer is not None:
            self._home = before
            self._refused[shape] = answer
        return answer

    def _take(self, pod: Pod, pods: int) -> NoRoom | None:
        asked = effective_requests(pod).get(self._home.resource, Decimal(0)) * pods
        free = self._home.free_gpus - self._floating
        if asked > free:
            largest = self._home.largest_block
            return NoRoom(
                reason=DeferReason.NO_HOME_ROOM,
                detail=f"{asked:f} GPUs asked, {max(Decimal(0), free):f} free at home, largest block {largest}",
            )
        for number in range(pods):
            found = find_home(pod, self._home)
            match found:
                case FitUnknown(rule=rule):
                    return NoRoom(reason=DeferReason.ROOM_UNKNOWN, detail=rule)
                case None:
                    placed = f"{number} of {pods} pods placed; " if pods > 1 else ""
                    left = f"{free:f} GPUs free, largest block {self._home.largest_block}"
                    why = f"{placed}{why_no_home(pod, self._home)}; {left}"
                    return NoRoom(reason=DeferReason.NO_HOME_ROOM, detail=why)
                case str() as node:
                    self._book(pod, node)
        return None

    def _book(self, pod: Pod, node: str) -> None:
        self._count += 1
        claim = Reservation(key=f"place/{self._count}", node=node, requests=effective_requests(pod), expires_at=NEVER)
        self._home = self._home.reserve(claim)


def shape_of(pod: Pod, pods: int) -> bytes:
    """Equal for pods that fit the same nodes."""
    spec = pod.spec
    asked: Mapping[str, str] = {name: str(amount) for name, amount in sorted(effective_requests(pod).items())}
    return msgspec.json.encode(
        (pods, asked, spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints,
         spec.scheduler_name, spec.volumes, spec.resource_claims, spec.host_network),
        order="deterministic",
    )  # fmt: skip


def seeks_devices(pod: Pod, *, resource: str) -> bool:
    """Whether kube-scheduler is looking for a node for this pod, and one with devices.

    Requests that cannot be read are none: the API server accepts no such pod.
    """
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.status.nominated_node_name:
        return False
    if pod.metadata.deletion_timestamp is not None or pod.status.phase not in {"", "Pending"}:
        return False
    try:
        return resource in effective_requests(pod)
    except ValueError:
        return False
