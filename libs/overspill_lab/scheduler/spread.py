"""How evenly pods of one kind lie over zones, hosts, or whatever a node label names.

Pure. Hard constraints (DoNotSchedule) object to a node, soft ones (ScheduleAnyway) score it. A node without the label
belongs to no domain: it takes no pod of a hard constraint, and it holds nobody up. Taints are not looked at, so a
closed node that has the label is an empty domain, as in the original by default. The soft constraints that
kube-scheduler gives to pods without any are left out. (pkg/scheduler/framework/plugins/podtopologyspread)
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from overspill_lab.scheduler.ask import Ask
from overspill_lab.scheduler.constraints import Spread
from overspill_lab.scheduler.filters import node_affinity_objections
from overspill_lab.scheduler.room import NodeRoom
from overspill_objects.meta import selects

HOSTNAME: Final = "kubernetes.io/hostname"
BEST: Final = 100
UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
NO_LABEL: Final = f"{UNEVEN} (missing required label)"


def spread_objections(ask: Ask, nodes: Sequence[NodeRoom]) -> Callable[[NodeRoom], tuple[str, ...]]:
    """A rule that says why a node will not do, for this picture of all nodes; no words when it will."""
    hard = [one for one in ask.spreads if one.hard]
    counts = [_counts(ask, one, _counting(ask, hard, nodes)) for one in hard]

    def judge(node: NodeRoom) -> tuple[str, ...]:
        for constraint, count in zip(hard, counts, strict=True):
            domain = node.labels.get(constraint.key)
            if domain is None:
                return (NO_LABEL,)
            least = min(count.values(), default=0) if len(count) >= constraint.min_domains else 0
            itself = selects(constraint.selector, ask.labels)
            if count[domain] + itself - least > constraint.max_skew:
                return (UNEVEN,)
        return ()

    return judge


def spread_scores(ask: Ask, fitting: Sequence[NodeRoom], nodes: Sequence[NodeRoom]) -> list[int]:
    """0…100 for each node that fits, by the soft constraints; the emptiest domain is best. Without any, all alike."""
    soft = [one for one in ask.spreads if not one.hard]
    if not soft:
        return [0] * len(fitting)
    scored = [node for node in fitting if all(one.key in node.labels for one in soft)]
    counting = _counting(ask, soft, nodes)
    totals = [0.0] * len(scored)
    for constraint in soft:
        count = _counts(ask, constraint, counting)
        domains = {node.labels[constraint.key] for node in scored}
        weight = math.log((len(scored) if constraint.key == HOSTNAME else len(domains)) + 2)
        for at, node in enumerate(scored):
            totals[at] += count[node.labels[constraint.key]] * weight + (constraint.max_skew - 1)
    raw = [round(total) for total in totals]
    most, least = max(raw, default=0), min(raw, default=0)
    by_name = {
        node.name: BEST * (most + least - score) // most if most else BEST
        for node, score in zip(scored, raw, strict=True)
    }
    return [by_name.get(node.name, 0) for node in fitting]


def _counting(ask: Ask, constraints: Sequence[Spread], nodes: Sequence[NodeRoom]) -> list[NodeRoom]:
    """The nodes whose pods are counted: those that have every label, and that the pod's own affinity allows."""
    return [
        node
        for node in nodes
        if all(one.key in node.labels for one in constraints) and not node_affinity_objections(ask, node)
    ]


def _counts(ask: Ask, constraint: Spread, counting: Sequence[NodeRoom]) -> Counter[str]:
    """How many pods of the kind each domain has; one that has none is there with 0. Those that leave do not count."""
    counts: Counter[str] = Counter()
    for node in counting:
        counts[node.labels[constraint.key]] += sum(
            guest.namespace == ask.namespace and not guest.leaving and selects(constraint.selector, guest.labels)
            for guest in node.asks.values()
        )
    return counts
