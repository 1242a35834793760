"""The scheduler's picture of the nodes, kept up to date pod by pod.

A pod counts on its node from the moment it is assumed there (before the API server has said so) until it is gone or
over; one that terminates still holds what it asked for. Plain bookkeeping: no judgement, no I/O.
"""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal

from overspill_lab.scheduler.ask import Ask, HostPort, moved_on, whole
from overspill_objects.core import Node, Pod, Taint
from overspill_objects.quantity import parse_quantity

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class NodeRoom:
    """One node: what it offers and what is taken."""

    __slots__ = ("allocatable", "asks", "labels", "name", "ports", "scored", "taints", "unschedulable", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: Mapping[str, int] = {}
        self.used: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()
        self.ports: Counter[HostPort] = Counter()
        self.asks: dict[str, Ask] = {}

    def describe(self, node: Node) -> None:
        """Take over what the API server says of the node. Raises ValueError naming a quantity that cannot be read."""
        self.labels, self.taints, self.unschedulable = node.metadata.labels, node.spec.taints, node.spec.unschedulable
        amounts: dict[str, Decimal] = {name: parse_quantity(text) for name, text in node.status.allocatable.items()}
        self.allocatable = whole(amounts)

    def copy(self) -> "NodeRoom":
        """The same node, to try things on."""
        other = NodeRoom(self.name)
        other.labels, other.taints, other.unschedulable = self.labels, self.taints, self.unschedulable
        other.allocatable = self.allocatable
        other.used, other.scored, other.ports = self.used.copy(), self.scored.copy(), self.ports.copy()
        other.asks = dict(self.asks)
        return other

    def add(self, ask: Ask) -> None:
        """Count a pod."""
        self.asks[ask.uid] = ask
        self.used.update(ask.requests)
        self.scored.update(ask.scored)
        self.ports.update(ask.host_ports)

    def remove(self, uid: str) -> None:
        """Stop counting a pod."""
        ask = self.asks.pop(uid)
        self.used.subtract(ask.requests)
        self.scored.subtract(ask.scored)
        self.ports.subtract(ask.host_ports)


class Rooms:
    """All nodes. `freed` changes whenever something may have become possible that was not."""

    def __init__(self) -> None:
        self.freed = 0
        self._rooms: dict[str, NodeRoom] = {}
        self._known: set[str] = set()
        self._place: dict[str, str] = {}  # pod uid → node

    def nodes(self) -> list[NodeRoom]:
        """The nodes that exist."""
        return [self._rooms[name] for name in self._known]

    def put_node(self, node: Node) -> None:
        """A node is new or has changed."""
        room = self._rooms.setdefault(node.metadata.name, NodeRoom(node.metadata.name))
        before = (room.labels, room.taints, room.unschedulable, room.allocatable)
        room.describe(node)
        if node.metadata.name not in self._known or before != (
            room.labels,
            room.taints,
            room.unschedulable,
            room.allocatable,
        ):
            self.freed += 1
        self._known.add(node.metadata.name)

    def drop_node(self, name: str) -> None:
        """A node is gone; its pods are remembered, since it may come back before they go."""
        self._known.discard(name)
        self._forget_if_empty(name)

    def put_pod(self, ask: Ask, node_name: str) -> None:
        """A pod holds room on a node: bound, or assumed to be."""
        self.drop_pod(ask.uid)
        self._place[ask.uid] = node_name
        self._rooms.setdefault(node_name, NodeRoom(node_name)).add(ask)

    def move_on(self, pod: Pod) -> None:
        """A pod that holds room has changed, but not what it holds. One that begins to leave may open a domain."""
        room = self._rooms[self._place[pod.metadata.uid]]
        before = room.asks[pod.metadata.uid]
        after = room.asks[pod.metadata.uid] = moved_on(before, pod)
        if (before.leaving, before.labels) != (after.leaving, after.labels):
            self.freed += 1

    def node(self, name: str) -> NodeRoom | None:
        """The node of that name, if it exists."""
        return self._rooms[name] if name in self._known else None

    def drop_pod(self, uid: str) -> None:
        """A pod holds nothing any more. Not having known it is fine."""
        node_name = self._place.pop(uid, None)
        if node_name is not None:
            self._rooms[node_name].remove(uid)
            self.freed += 1
            self._forget_if_empty(node_name)

    def place_of(self, uid: str) -> str | None:
        """The node that a pod holds room on."""
        return self._place.get(uid)

    def _forget_if_empty(self, name: str) -> None:
        if name not in self._known and name in self._rooms and not self._rooms[name].asks:
            del self._rooms[name]
