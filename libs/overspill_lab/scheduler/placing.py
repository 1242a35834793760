"""One pod, one decision: the node it goes to, or the words that say why it goes nowhere."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeAlias

from msgspec import Struct

from overspill_lab.scheduler.ask import Ask
from overspill_lab.scheduler.filters import objections
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.scores import total_scores


class Placed(Struct, frozen=True, kw_only=True):
    """The pod goes to this node."""

    node_name: str


class Unplaced(Struct, frozen=True, kw_only=True):
    """No node will do; the message is what the pod's condition says."""

    message: str


Placement: TypeAlias = Placed | Unplaced


def place(ask: Ask, nodes: Sequence[NodeRoom], *, dice: Random) -> Placement:
    """Filter, score, choose; among equally good nodes the dice decide, as in kube-scheduler."""
    if ask.refused is not None:
        return Unplaced(message=f"0/{len(nodes)} nodes are available: the lab does not schedule {ask.refused}.")
    if not nodes:
        return Unplaced(message="no nodes available to schedule pods")
    against: Counter[str] = Counter()
    fitting = []
    for node in nodes:
        reasons = objections(ask, node)
        if reasons:
            against.update(reasons)
        else:
            fitting.append(node)
    if not fitting:
        return Unplaced(message=message_of(against, len(nodes)))
    scores = total_scores(ask, fitting)
    best = max(scores)
    return Placed(
        node_name=dice.choice([node.name for node, score in zip(fitting, scores, strict=True) if score == best])
    )


def message_of(against: Counter[str], nodes: int) -> str:
    """How many nodes had which objection, in the order and shape of kube-scheduler's FitError."""
    reasons = sorted(f"{count} {reason}" for reason, count in against.items())
    return f"0/{nodes} nodes are available: {', '.join(reasons)}."
