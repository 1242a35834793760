"""One pod, one decision: the node it goes to, or the words that say why it goes nowhere."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from msgspec import Struct

from overspill_lab.scheduler.ask import Ask
from overspill_lab.scheduler.filters import objections
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.scores import total_scores
from overspill_lab.scheduler.spread import spread_objections

Nominated: TypeAlias = Mapping[str, Sequence[Ask]]  # node → pods, as important at least, that wait for room there
NOBODY: Final[Nominated] = {}


class Placed(Struct, frozen=True, kw_only=True):
    """The pod goes to this node."""

    node_name: str


class Unplaced(Struct, frozen=True, kw_only=True):
    """No node will do; the message is what the pod's condition says."""

    message: str


Placement: TypeAlias = Placed | Unplaced


def place(
    ask: Ask, nodes: Sequence[NodeRoom], *, dice: Random, nominated: Nominated = NOBODY, hoped_for: str = ""
) -> Placement:
    """Filter, score, choose; among equally good nodes the dice decide, as in kube-scheduler.

    Room that others were nominated to is theirs; the node that the pod itself was nominated to is taken if it fits,
    without asking for a better one.
    """
    if ask.refused is not None:
        return Unplaced(message=f"0/{len(nodes)} nodes are available: the lab does not schedule {ask.refused}.")
    if not nodes:
        return Unplaced(message="no nodes available to schedule pods")
    seen = [_with(node, nominated.get(node.name, ())) for node in nodes]
    uneven = spread_objections(ask, seen)
    against: Counter[str] = Counter()
    fitting = []
    for node in seen:
        reasons = objections(ask, node) or uneven(node)
        if not reasons and node.name == hoped_for:
            return Placed(node_name=node.name)
        if reasons:
            against.update(reasons)
        else:
            fitting.append(node)
    if not fitting:
        return Unplaced(message=message_of(against, len(nodes)))
    scores = total_scores(ask, fitting, seen)
    best = max(scores)
    return Placed(
        node_name=dice.choice([node.name for node, score in zip(fitting, scores, strict=True) if score == best])
    )


def _with(node: NodeRoom, waiting: Sequence[Ask]) -> NodeRoom:
    if not waiting:
        return node
    fuller = node.copy()
    for ask in waiting:
        fuller.add(ask)
    return fuller


def message_of(against: Counter[str], nodes: int) -> str:
    """How many nodes had which objection, in the order and shape of kube-scheduler's FitError."""
    reasons = sorted(f"{count} {reason}" for reason, count in against.items())
    return f"0/{nodes} nodes are available: {', '.join(reasons)}."
