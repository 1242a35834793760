"""Which pods wait, which hold room, and what a scheduling cycle decides.

The book is told of every change and never asks anybody. A pod that it places is *assumed*: it holds its room before the
API server has confirmed the binding, so that no node is promised twice. A cycle costs nothing for pods whose like has
been found unplaceable since room was last freed.
"""

from random import Random

from msgspec import Struct

from overspill_lab.scheduler.ask import Ask, ask_of
from overspill_lab.scheduler.placing import Placed, Unplaced, place
from overspill_lab.scheduler.room import TERMINAL_PHASES, Rooms
from overspill_objects.core import Node, Pod


class Decision(Struct, frozen=True, kw_only=True):
    """What a cycle decided for one pod."""

    ask: Ask
    placement: Placed | Unplaced


class Book:
    """The scheduler's state for pods with one `schedulerName`."""

    def __init__(self, *, scheduler_name: str, dice: Random) -> None:
        self._scheduler_name = scheduler_name
        self._dice = dice
        self._rooms = Rooms()
        self._waiting: dict[str, Ask] = {}
        self._assumed: dict[str, Ask] = {}
        self._not_before: dict[str, float] = {}
        self._bound: dict[str, tuple[str, int]] = {}  # uid → node and generation it was counted at
        self._unplaced: dict[bytes, tuple[int, Unplaced]] = {}  # signature → what was found, and at which `freed`

    def put_node(self, node: Node) -> None:
        """A node is new or has changed."""
        self._rooms.put_node(node)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self._rooms.drop_node(name)

    def put_pod(self, pod: Pod) -> None:
        """A pod is new or has changed."""
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        if pod.status.phase in TERMINAL_PHASES:
            self.drop_pod(uid)
        elif node_name:
            self._note_bound(pod)
        elif uid not in self._assumed:
            if self._is_ours(pod):
                self._waiting[uid] = ask_of(pod)
            else:
                self.drop_pod(uid)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone or over."""
        self._rooms.drop_pod(uid)
        for known in (self._waiting, self._assumed, self._not_before, self._bound):
            known.pop(uid, None)

    def cycle(self, now: float, *, tries: int) -> tuple[list[Decision], bool]:
        """Decide for the pods that may be tried now, in the order of the queue; placed ones are assumed.

        At most `tries` of them are really tried, the rest next time: the second result says whether any were left.
        """
        nodes = self._rooms.nodes()
        decisions: list[Decision] = []
        for ask in sorted(self._waiting.values(), key=lambda one: one.turn):
            if self._not_before.get(ask.uid, now) > now:
                continue
            placement: Placed | Unplaced | None = self._known_unplaced(ask)
            if placement is None:
                if not tries:
                    return decisions, True
                tries -= 1
                placement = place(ask, nodes, dice=self._dice)
            decisions.append(Decision(ask=ask, placement=placement))
            if isinstance(placement, Placed):
                self._assume(ask, placement.node_name)
            else:
                self._unplaced[ask.signature] = (self._rooms.freed, placement)
        self._unplaced = {key: found for key, found in self._unplaced.items() if found[0] == self._rooms.freed}
        return decisions, False

    def next_try(self) -> float | None:
        """When the earliest pod that was put off may be tried again."""
        return min((when for uid, when in self._not_before.items() if uid in self._waiting), default=None)

    def unassume(self, ask: Ask, *, not_before: float) -> None:
        """A binding did not happen: the room is free again and the pod waits until then.

        Does nothing for a pod whose binding has been seen meanwhile, or that is gone.
        """
        if self._assumed.pop(ask.uid, None) is not None:
            self._rooms.drop_pod(ask.uid)
            self._waiting[ask.uid] = ask
            self._not_before[ask.uid] = not_before

    def _assume(self, ask: Ask, node_name: str) -> None:
        self._rooms.put_pod(ask, node_name)
        self._assumed[ask.uid] = ask
        del self._waiting[ask.uid]
        self._not_before.pop(ask.uid, None)

    def _note_bound(self, pod: Pod) -> None:
        uid, counted_at = pod.metadata.uid, (pod.spec.node_name, pod.metadata.generation)
        if self._bound.get(uid) == counted_at:
            return
        if self._rooms.place_of(uid) == pod.spec.node_name and uid in self._assumed:
            del self._assumed[uid]  # as expected: nothing was freed, nothing else is taken
        else:
            self.drop_pod(uid)
            self._rooms.put_pod(ask_of(pod), pod.spec.node_name)
        self._bound[uid] = counted_at

    def _is_ours(self, pod: Pod) -> bool:
        return (
            pod.spec.scheduler_name == self._scheduler_name
            and not pod.spec.scheduling_gates
            and pod.metadata.deletion_timestamp is None
        )

    def _known_unplaced(self, ask: Ask) -> Unplaced | None:
        freed, placement = self._unplaced.get(ask.signature, (None, None))
        return placement if freed == self._rooms.freed else None
