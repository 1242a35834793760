"""Room at home: what every real node has left, and what may count as free.

Counted per node and clamped per node: an over-committed node must not hide the free devices of another. Terminating
pods hold until they are gone. What cannot be counted is unknown, never zero.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from overspill_capacity.nodes import is_ready, is_virtual, untolerated
from overspill_capacity.requests import ZERO, Amounts, add, effective_requests, total_of
from overspill_events.reasons import UnknownCause
from overspill_objects.core import Node, Pod, Taint, Toleration
from overspill_objects.quantity import parse_quantity

PODS: Final = "pods"
TERMINAL: Final = ("Succeeded", "Failed")


class Ineligible(StrEnum):
    """Why a node's free devices do not count."""

    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    TAINTED = "tainted"  # a hard taint that GPU work is not expected to tolerate
    NO_DEVICES = "no-devices"
    UNCOUNTABLE = "uncountable"  # a quantity is unreadable, or devices come through DRA


class Reservation(Struct, frozen=True, kw_only=True):
    """Room on a node booked for a pod that is not bound there yet; `key` is the pod's UID."""

    key: str
    node: str
    requests: Mapping[str, Decimal]
    expires_at: datetime


class NodeRoom(Struct, frozen=True, kw_only=True):
    """One home node. `held` sums bound pods, nominated pods and reservations; `claims` tells the last two by key."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, Decimal]
    capacity: Mapping[str, Decimal]
    held: Mapping[str, Decimal]
    used: Mapping[str, Decimal]  # bound pods only
    releasing: Mapping[str, Decimal]  # of these, terminating ones
    claims: Mapping[str, Mapping[str, Decimal]]
    ineligible: Ineligible | None = None
    detail: str = ""

    def raw_of(self, resource: str, *, ignoring: str = "") -> Decimal:
        """What is left, negative when over-committed; without the claim of the key `ignoring`."""
        left = self.allocatable.get(resource, ZERO) - self.held.get(resource, ZERO)
        return left + self.claims[ignoring].get(resource, ZERO) if ignoring in self.claims else left

    def free_of(self, resource: str) -> Decimal:
        """What is left, never negative."""
        return max(ZERO, self.raw_of(resource))


class HomeSnapshot(Struct, frozen=True, kw_only=True):
    """All home nodes at one moment, counted in `resource`. With `unknown` set no number may be used for a decision."""

    resource: str
    rooms: Mapping[str, NodeRoom]
    unknown: UnknownCause | None = None
    detail: str = ""

    @classmethod
    def build(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        *,
        resource: str,
        now: datetime | None = None,
        reservations: Iterable[Reservation] = (),
        device_nodes: Collection[str] = (),
        tolerations: Iterable[Toleration] = (),
    ) -> "HomeSnapshot":
        """Count. `tolerations` are what GPU work is expected to tolerate besides the taint named like the resource.

        `device_nodes` are nodes that offer such devices through DRA, which is not modelled: without a device plugin's
        count of their own they make the whole unknown. Reservations of bound pods, and expired ones, are ignored.
        """
        home = {node.metadata.name: node for node in nodes if not is_virtual(node)}
        books = _Books(pods, home)
        books.reserve(reservations, now=now)
        expected = (Toleration(key=resource, operator="Exists"), *tolerations)
        rooms = {
            name: books.room(node, resource=resource, tolerations=expected, has_devices=name in device_nodes)
            for name, node in home.items()
        }
        unknown, detail = _unknown(rooms.values(), resource=resource)
        return cls(resource=resource, rooms=rooms, unknown=unknown, detail=detail)

    @property
    def eligible(self) -> tuple[NodeRoom, ...]:
        return tuple(room for room in self.rooms.values() if room.ineligible is None)

    @property
    def free_gpus(self) -> int:
        return sum(int(room.free_of(self.resource)) for room in self.eligible)

    @property
    def total_gpus(self) -> int:
        """Allocatable devices of all home nodes, eligible or not."""
        return int(sum((room.allocatable.get(self.resource, ZERO) for room in self.rooms.values()), ZERO))

    @property
    def used_gpus(self) -> int:
        """Held by bound pods, terminating ones included."""
        return int(sum((room.used.get(self.resource, ZERO) for room in self.rooms.values()), ZERO))

    @property
    def releasing_gpus(self) -> int:
        return int(sum((room.releasing.get(self.resource, ZERO) for room in self.rooms.values()), ZERO))

    @property
    def largest_block(self) -> int:
        """Most free devices on one node."""
        return max((int(room.free_of(self.resource)) for room in self.eligible), default=0)

    @property
    def ineligible(self) -> dict[Ineligible, int]:
        """Why → devices that would be free if it were not for that."""
        lost: dict[Ineligible, int] = {}
        for room in self.rooms.values():
            if room.ineligible is not None and (free := int(room.free_of(self.resource))):
                lost[room.ineligible] = lost.get(room.ineligible, 0) + free
        return lost

    def room_for(self, devices: int) -> int:
        """How many pods of that many devices find a node, counting devices only. Raises ValueError below 1."""
        if devices < 1:
            raise ValueError(f"room_for({devices}): a pod asks for at least one device")
        return sum(int(room.free_of(self.resource)) // devices for room in self.eligible)

    def reserve(self, reservation: Reservation) -> "HomeSnapshot":
        """The same with one more claim: a batch must not give one place twice. Raises KeyError for no such node."""
        room = self.rooms[reservation.node]
        claim = _with_slot(reservation.requests)
        booked = msgspec.structs.replace(
            room, held=add(room.held, claim), claims={**room.claims, reservation.key: claim}
        )
        return msgspec.structs.replace(self, rooms={**self.rooms, room.name: booked})


class _Books:
    """Who holds what on which node, gathered in one pass over the pods."""

    def __init__(self, pods: Iterable[Pod], home: Mapping[str, Node]) -> None:
        self._used: dict[str, list[Amounts]] = defaultdict(list)
        self._releasing: dict[str, list[Amounts]] = defaultdict(list)
        self._claims: dict[str, dict[str, Amounts]] = defaultdict(dict)
        self._faults: dict[str, str] = {}
        self._bound: set[str] = set()
        self._home = home
        for pod in pods:
            if pod.status.phase not in TERMINAL:
                self._enter(pod)

    def _enter(self, pod: Pod) -> None:
        # A bound pod is where it is bound, whatever it was nominated for before.
        node = pod.spec.node_name or pod.status.nominated_node_name
        if pod.spec.node_name:
            self._bound.add(pod.metadata.uid)
        if node not in self._home:
            return
        try:
            asked = _with_slot(effective_requests(pod))
        except ValueError as error:
            self._faults[node] = f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}"
            return
        if pod.status.extended_resource_claim_status is not None:
            self._faults[node] = f"pod {pod.metadata.namespace}/{pod.metadata.name} holds devices through DRA"
        if not pod.spec.node_name:
            self._claims[node][pod.metadata.uid] = asked
            return
        self._used[node].append(asked)
        if pod.metadata.deletion_timestamp is not None:
            self._releasing[node].append(asked)

    def reserve(self, reservations: Iterable[Reservation], *, now: datetime | None) -> None:
        """Add claims; a pod that is bound, or nominated to the same node, is counted already."""
        for one in reservations:
            expired = now is not None and one.expires_at <= now
            if not expired and one.key not in self._bound:
                self._claims[one.node].setdefault(one.key, _with_slot(one.requests))

    def room(self, node: Node, *, resource: str, tolerations: tuple[Toleration, ...], has_devices: bool) -> NodeRoom:
        name = node.metadata.name
        fault = self._faults.get(name, "")
        allocatable: Amounts = {}
        capacity: Amounts = {}
        try:
            allocatable = {k: parse_quantity(v) for k, v in node.status.allocatable.items()}
            capacity = {k: parse_quantity(v) for k, v in node.status.capacity.items()}
        except ValueError as error:
            fault = str(error)
        if has_devices and not allocatable.get(resource):
            fault = "offers devices through DRA"
        why, detail = _why_not(node, allocatable.get(resource, ZERO), tolerations=tolerations, fault=fault)
        used, claims = total_of(self._used[name]), self._claims[name]
        return NodeRoom(
            name=name,
            labels=node.metadata.labels,
            taints=node.spec.taints,
            allocatable=allocatable,
            capacity=capacity,
            used=used,
            held=total_of((used, *claims.values())),
            releasing=total_of(self._releasing[name]),
            claims=claims,
            ineligible=why,
            detail=detail,
        )


def _why_not(
    node: Node, devices: Decimal, *, tolerations: tuple[Toleration, ...], fault: str
) -> tuple[Ineligible | None, str]:
    if not is_ready(node):
        return Ineligible.NOT_READY, fault
    if node.spec.unschedulable:
        return Ineligible.CORDONED, fault
    if fault:
        return Ineligible.UNCOUNTABLE, fault
    if taint := untolerated(node.spec.taints, tolerations):
        return Ineligible.TAINTED, f"{taint.key}:{taint.effect}"
    if devices <= 0:
        return Ineligible.NO_DEVICES, ""
    return None, ""


def _with_slot(requests: Mapping[str, Decimal]) -> Amounts:
    """A pod also takes one of the node's pod slots."""
    return {**requests, PODS: Decimal(1)}


def _unknown(rooms: Iterable[NodeRoom], *, resource: str) -> tuple[UnknownCause | None, str]:
    """Why the numbers of the whole may not be used.

    A cluster in which no home node has ever offered the resource is more likely a misspelt resource than a full home.
    """
    offered = False
    for room in rooms:
        if room.ineligible is Ineligible.UNCOUNTABLE:
            return UnknownCause.UNKNOWN, f"node {room.name} cannot be counted: {room.detail}"
        offered = offered or resource in room.capacity or resource in room.allocatable
    return (None, "") if offered else (UnknownCause.NO_SERIES, f"no home node offers {resource}")
