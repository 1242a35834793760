"""May a pod run on a node? kube-scheduler's filters, in its order and with its words; the first that objects speaks.

How pods lie over all nodes is judged after these, by `spread`.
Its filter for `spec.nodeName` is not here: a pod that names its node is bound, and the scheduler never sees it.
"""

from collections.abc import Callable
from typing import Final

from overspill_capacity.nodes import term_selects, tolerates
from overspill_lab.scheduler.ask import PODS, Ask, HostPort
from overspill_lab.scheduler.room import NodeRoom
from overspill_objects.core import NodeSelectorTerm, Taint

HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def objections(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    """Why this node will not do; empty when it will."""
    for rule in _RULES:
        if reasons := rule(ask, node):
            return reasons
    return ()


def _unschedulable(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    if node.unschedulable and not any(tolerates(one, UNSCHEDULABLE_TAINT) for one in ask.tolerations):
        return ("node(s) were unschedulable",)
    return ()


def _taints(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    for taint in node.taints:
        if taint.effect in HARD_EFFECTS and not any(tolerates(one, taint) for one in ask.tolerations):
            return ("node(s) had untolerated taint(s)",)
    return ()


def unhelpable(ask: Ask, node: NodeRoom) -> bool:
    """Whether the node will not do whoever leaves it: its state, labels or size speak against the pod."""
    return (
        any(rule(ask, node) for rule in (_unschedulable, _taints, node_affinity_objections))
        or any(amount > node.allocatable.get(resource, 0) for resource, amount in ask.requests.items())
        or any(one.hard and one.key not in node.labels for one in ask.spreads)
    )


def node_affinity_objections(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    """Why the pod's own selector and affinity leave the node out."""
    matches = all(node.labels.get(key) == value for key, value in ask.node_selector.items()) and (
        ask.required is None or any(node_matches(term, node) for term in ask.required.node_selector_terms)
    )
    return () if matches else ("node(s) didn't match Pod's node affinity/selector",)


def node_matches(term: NodeSelectorTerm, node: NodeRoom) -> bool:
    """Whether a term of node affinity holds; one that cannot be read matches no node, as in the original."""
    try:
        return term_selects(term, name=node.name, labels=node.labels)
    except ValueError:
        return False


def _host_ports(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    if any(_taken(port, node) for port in ask.host_ports):
        return ("node(s) didn't have free ports for the requested pod ports",)
    return ()


def _taken(port: HostPort, node: NodeRoom) -> bool:
    return any(
        count > 0 and (other.protocol, other.port) == (port.protocol, port.port) for other, count in node.ports.items()
    )


def _resources(ask: Ask, node: NodeRoom) -> tuple[str, ...]:
    short = [
        f"Insufficient {resource}"
        for resource, amount in ask.requests.items()
        if amount > node.allocatable.get(resource, 0) - node.used[resource]
    ]
    if len(node.asks) + 1 > node.allocatable.get(PODS, 0):
        short.insert(0, "Too many pods")
    return tuple(short)


_RULES: Final[tuple[Callable[[Ask, NodeRoom], tuple[str, ...]], ...]] = (
    _unschedulable,
    _taints,
    node_affinity_objections,
    _host_ports,
    _resources,
)
