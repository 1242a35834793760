"""Which pods wait, which hold room, and what a scheduling cycle decides.

The book is told of every change and never asks anybody. A pod that it places is *assumed*: it holds its room before the
API server has confirmed the binding, so that no node is promised twice. A cycle costs nothing for pods whose like has
been found unplaceable since room was last freed.
"""

from random import Random

import msgspec
from msgspec import Struct

from overspill_kube.informer import Key
from overspill_lab.scheduler.ask import Ask, ask_of
from overspill_lab.scheduler.nominations import Nominations
from overspill_lab.scheduler.placing import Placed, Unplaced, place
from overspill_lab.scheduler.preemption import Candidate, preempt, why_not_eligible
from overspill_lab.scheduler.room import TERMINAL_PHASES, NodeRoom, Rooms
from overspill_objects.core import Node, Pod
from overspill_objects.disruption import PodDisruptionBudget


class Decision(Struct, frozen=True, kw_only=True):
    """What a cycle decided for one pod."""

    ask: Ask
    placement: Placed | Unplaced
    nominated: str = ""  # the node that a pod without a place waits for
    victims: tuple[Ask, ...] = ()  # who must go for it, from now on


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
        self._nominations = Nominations()
        self._budgets: dict[Key, PodDisruptionBudget] = {}

    def put_budget(self, budget: PodDisruptionBudget) -> None:
        """A budget is new or has changed; the next choice of victims heeds it."""
        self._budgets[budget.metadata.namespace, budget.metadata.name] = budget

    def drop_budget(self, budget: PodDisruptionBudget) -> None:
        """A budget is gone."""
        self._budgets.pop((budget.metadata.namespace, budget.metadata.name), None)

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
                if uid not in self._waiting and pod.status.nominated_node_name:
                    self._nominations.note(ask_of(pod), pod.status.nominated_node_name)
                self._waiting[uid] = ask_of(pod)
            else:
                self.drop_pod(uid)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone or over."""
        self._rooms.drop_pod(uid)
        self._unnominate(uid)
        self._nominations.victim_settled(uid)
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
            placement = self._known_unplaced(ask)
            if placement is None:
                if not tries:
                    return decisions, True
                tries -= 1
                decisions.append(self._decide(ask, nodes))
            else:
                decisions.append(self._still(ask, placement))
        self._unplaced = {key: found for key, found in self._unplaced.items() if found[0] == self._rooms.freed}
        return decisions, False

    def not_preempted(self, ask: Ask, victim: Ask) -> None:
        """A victim could not be told to go: the pod does not wait for it, and may look for others."""
        self._nominations.victim_settled(victim.uid)
        self._unplaced.pop(self._key(ask), None)

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
        self._unnominate(ask.uid)

    def _decide(self, ask: Ask, nodes: list[NodeRoom]) -> Decision:
        hoped_for, nominated = self._nominations.node_of(ask.uid), self._nominations.before(ask)
        placement = place(ask, nodes, dice=self._dice, nominated=nominated, hoped_for=hoped_for)
        if isinstance(placement, Placed):
            self._assume(ask, placement.node_name)
            return Decision(ask=ask, placement=placement)
        if ask.refused is not None or not nodes:
            return self._still(ask, placement)
        if why := self._why_it_waits(ask, hoped_for):
            return self._still(ask, Unplaced(message=f"{placement.message} preemption: {why}"))
        found = preempt(ask, nodes, nominated=nominated, budgets=list(self._budgets.values()))
        if not isinstance(found, Candidate):
            self._unnominate(ask.uid)
            return self._still(ask, Unplaced(message=f"{placement.message} {found.message}"))
        told = self._nominations.make(ask, found)
        return msgspec.structs.replace(self._still(ask, placement), victims=told)

    def _why_it_waits(self, ask: Ask, hoped_for: str) -> str | None:
        if self._nominations.awaits(ask.uid):
            return "victims have been chosen."
        return why_not_eligible(ask, self._rooms.node(hoped_for) if hoped_for else None)

    def _still(self, ask: Ask, placement: Unplaced) -> Decision:
        """The pod waits on; pods like it need not be tried before something has changed."""
        self._unplaced[self._key(ask)] = (self._rooms.freed, placement)
        return Decision(ask=ask, placement=placement, nominated=self._nominations.node_of(ask.uid))

    def _key(self, ask: Ask) -> bytes:
        """What is known of a pod that waits for its own victims says nothing of others like it."""
        return ask.uid.encode() if self._nominations.node_of(ask.uid) else ask.signature

    def _unnominate(self, uid: str) -> None:
        if self._nominations.drop(uid):
            self._rooms.freed += 1

    def _note_bound(self, pod: Pod) -> None:
        uid, counted_at = pod.metadata.uid, (pod.spec.node_name, pod.metadata.generation)
        if pod.metadata.deletion_timestamp is not None:
            self._nominations.victim_settled(uid)
        if self._bound.get(uid) == counted_at:
            self._rooms.move_on(pod)
            return
        if self._rooms.place_of(uid) == pod.spec.node_name and uid in self._assumed:
            del self._assumed[uid]  # as expected: nothing was freed, nothing else is taken
            self._rooms.move_on(pod)
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
        freed, placement = self._unplaced.get(self._key(ask), (None, None))
        return placement if freed == self._rooms.freed else None
