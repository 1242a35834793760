"""Who must go so that a more important pod fits, and on which node: kube-scheduler's default preemption.

Pure. Only strictly less important pods are victims, as few as will do, the most important spared first; budgets are
kept where there is a choice. Victims that already terminate are victims like others: their room is on its way. The
original stops looking after a hundred candidates on big clusters; this looks at every node.
(pkg/scheduler/framework/preemption, pkg/scheduler/framework/plugins/defaultpreemption)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from overspill_lab.scheduler.ask import NEVER, Ask
from overspill_lab.scheduler.filters import objections, unhelpable
from overspill_lab.scheduler.placing import Nominated
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.spread import spread_objections
from overspill_objects.disruption import PodDisruptionBudget
from overspill_objects.meta import selects

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
# Makes every priority positive, so that fewer victims nearly always weigh less than more (2³¹).
SHIFT: Final = 2**31


class Candidate(Struct, frozen=True, kw_only=True):
    """A node, and whom it would have to lose; the most important first."""

    node_name: str
    victims: tuple[Ask, ...]
    violations: int  # victims whose going a budget does not allow


class Reasons(Struct, frozen=True, kw_only=True):
    """Why nobody is made to go; the tail of the pod's message."""

    message: str


def preempt(
    ask: Ask, nodes: Sequence[NodeRoom], *, nominated: Nominated, budgets: Sequence[PodDisruptionBudget]
) -> Candidate | Reasons:
    """The node to make room on, or why there is none. The pod is known to fit nowhere and to be eligible."""
    found: list[Candidate] = []
    against: Counter[str] = Counter()
    for at, node in enumerate(nodes):
        if unhelpable(ask, node):
            against[NOT_HELPFUL] += 1
            continue
        candidate = _candidate(ask, nodes, at, waiting=nominated.get(node.name, ()), budgets=budgets)
        if isinstance(candidate, Candidate):
            found.append(candidate)
        else:
            against.update(candidate)
    if found:
        return best(found)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in against.items()))
    return Reasons(message=f"preemption: 0/{len(nodes)} nodes are available: {reasons}.")


def why_not_eligible(ask: Ask, node: NodeRoom | None) -> str | None:
    """Why the pod may not make others go now, or None; `node` is the one it was nominated to.

    While victims of the scheduler terminate there, it waits; pods that go for another reason do not hold it back.
    """
    if not ask.preempts:
        return "not eligible due to preemptionPolicy=Never."
    if node is None or unhelpable(ask, node):
        return None
    if any(guest.preempted and guest.leaving and guest.priority < ask.priority for guest in node.asks.values()):
        return "not eligible due to a terminating pod on the nominated node."
    return None


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate that hurts least; the first among equals."""
    return min(
        candidates,
        key=lambda one: (
            one.violations,
            one.victims[0].priority,
            sum(victim.priority + SHIFT for victim in one.victims),
            len(one.victims),
            -_earliest_of_the_highest(one.victims).timestamp(),
        ),
    )


def _earliest_of_the_highest(victims: Sequence[Ask]) -> datetime:
    return min(_start(victim) for victim in victims if victim.priority == victims[0].priority)


def _candidate(
    ask: Ask, nodes: Sequence[NodeRoom], at: int, *, waiting: Sequence[Ask], budgets: Sequence[PodDisruptionBudget]
) -> Candidate | Sequence[str]:
    lower = sorted((guest for guest in nodes[at].asks.values() if guest.priority < ask.priority), key=_importance)
    if not lower:
        return (NO_VICTIMS,)
    room = nodes[at].copy()
    for guest in lower:
        room.remove(guest.uid)
    for other in waiting:
        room.add(other)
    others = [*nodes[:at], room, *nodes[at + 1 :]]
    if reasons := _reasons(ask, room, others):
        return reasons
    violating, rest = _by_budget(lower, budgets)
    lost_violating = _not_spared(violating, room, lambda: not _reasons(ask, room, others))
    lost = lost_violating + _not_spared(rest, room, lambda: not _reasons(ask, room, others))
    if not lost:
        return (NO_VICTIMS,)
    return Candidate(node_name=room.name, victims=tuple(sorted(lost, key=_importance)), violations=len(lost_violating))


def _not_spared(guests: Iterable[Ask], room: NodeRoom, fits: Callable[[], bool]) -> list[Ask]:
    """Take guests back while the pod still fits; the others, who must go."""
    lost = []
    for guest in guests:
        room.add(guest)
        if not fits():
            room.remove(guest.uid)
            lost.append(guest)
    return lost


def _reasons(ask: Ask, room: NodeRoom, nodes: Sequence[NodeRoom]) -> tuple[str, ...]:
    return objections(ask, room) or spread_objections(ask, nodes)(room)


def _by_budget(guests: Sequence[Ask], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[Ask], list[Ask]]:
    """Those whose going would break a budget, and the others, when they go in this order.

    Unlike an eviction, an empty selector covers nobody here, and so does any selector a pod without labels.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Ask] = []
    rest: list[Ask] = []
    for guest in guests:
        violates = False
        for at, budget in enumerate(budgets):
            if _covers(budget, guest) and guest.name not in budget.status.disrupted_pods:
                allowed[at] -= 1
                violates = violates or allowed[at] < 0
        (violating if violates else rest).append(guest)
    return violating, rest


def _covers(budget: PodDisruptionBudget, guest: Ask) -> bool:
    selector = budget.spec.selector
    if budget.metadata.namespace != guest.namespace or selector is None or not guest.labels:
        return False
    return bool(selector.match_labels or selector.match_expressions) and selects(selector, guest.labels)


def _importance(ask: Ask) -> tuple[int, datetime]:
    """Sorts the more important first: higher priority, then the longer running."""
    return (-ask.priority, _start(ask))


def _start(ask: Ask) -> datetime:
    return ask.started or NEVER
