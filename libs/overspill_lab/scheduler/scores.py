"""Which of the nodes that will do is best? kube-scheduler's default scores for what the lab models.

TaintToleration 3, NodeAffinity 2, PodTopologySpread 2, NodeResourcesFit (least allocated) 1,
NodeResourcesBalancedAllocation 1; whole numbers, normalised over the nodes that passed the filters, as the originals
are.
"""

from collections.abc import Sequence
from typing import Final

from overspill_capacity.nodes import tolerates
from overspill_lab.scheduler.ask import CPU, MEMORY, Ask
from overspill_lab.scheduler.filters import node_matches
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.spread import spread_scores

BEST: Final = 100
TAINTS_WEIGHT: Final = 3
AFFINITY_WEIGHT: Final = 2
SPREAD_WEIGHT: Final = 2
SCORED: Final = (CPU, MEMORY)
SOFT_EFFECT: Final = "PreferNoSchedule"


def total_scores(ask: Ask, fitting: Sequence[NodeRoom], nodes: Sequence[NodeRoom]) -> list[int]:
    """The weighted score of each node that fits, in the order given; `nodes` are all there are."""
    taints = normalised([_soft_taints(ask, node) for node in fitting], reverse=True)
    affinity = normalised([_preference(ask, node) for node in fitting], reverse=False)
    spread = spread_scores(ask, fitting, nodes)
    return [
        TAINTS_WEIGHT * taint
        + AFFINITY_WEIGHT * liking
        + SPREAD_WEIGHT * evenness
        + least_allocated(ask, node)
        + balanced(ask, node)
        for node, taint, liking, evenness in zip(fitting, taints, affinity, spread, strict=True)
    ]


def normalised(counts: Sequence[int], *, reverse: bool) -> list[int]:
    """Counts scaled to 0…100; reversed, the lowest count is best. All zero means all alike."""
    most = max(counts, default=0)
    if most == 0:
        return [BEST if reverse else 0] * len(counts)
    return [BEST - BEST * count // most if reverse else BEST * count // most for count in counts]


def least_allocated(ask: Ask, node: NodeRoom) -> int:
    """The share of cpu and memory that stays free, 0…100; containers that ask for nothing count as a little."""
    scores = []
    for resource in SCORED:
        offered = node.allocatable.get(resource, 0)
        if offered:
            taken = node.scored[resource] + ask.scored[resource]
            scores.append(0 if taken > offered else (offered - taken) * BEST // offered)
    return sum(scores) // len(scores) if scores else 0


def balanced(ask: Ask, node: NodeRoom) -> int:
    """How the pod changes the balance of cpu and memory: about 75 if it does not; 0 for a pod that asks for neither."""
    if not any(ask.requests.get(resource) for resource in SCORED):
        return 0
    before = _evenness([(node.used[resource], node.allocatable.get(resource, 0)) for resource in SCORED])
    after = _evenness(
        [
            (node.used[resource] + ask.requests.get(resource, 0), node.allocatable.get(resource, 0))
            for resource in SCORED
        ]
    )
    # Go divides towards zero; the sum is never negative, so whole division agrees.
    return BEST // 2 + (BEST // 2 + after - before) // 2


def _evenness(taken_of_offered: Sequence[tuple[int, int]]) -> int:
    shares = [min(1.0, taken / offered) for taken, offered in taken_of_offered if offered]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == len(SCORED) else 0.0
    return int((1 - deviation) * BEST)


def _soft_taints(ask: Ask, node: NodeRoom) -> int:
    tolerations = [one for one in ask.tolerations if one.effect in ("", SOFT_EFFECT)]
    return sum(
        taint.effect == SOFT_EFFECT and not any(tolerates(one, taint) for one in tolerations) for taint in node.taints
    )


def _preference(ask: Ask, node: NodeRoom) -> int:
    return sum(term.weight for term in ask.preferred if term.weight and node_matches(term.preference, node))
