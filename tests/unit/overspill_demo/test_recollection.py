"""What the outside view remembers of pods and nodes that are gone at the end."""

from overspill_demo.recollection import Recollection
from overspill_events import names
from overspill_objects.core import Node, NodeSpec, Taint
from overspill_objects.meta import Condition, ObjectMeta
from overspill_objects.pod import Pod, PodSpec, PodStatus

EVICTED = Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
READY = Condition(type="Ready", status="True")


def node(*, is_open: bool, name: str = "v") -> Node:
    taints = () if is_open else (Taint(key=names.SWITCH_TAINT, effect="NoSchedule"),)
    return Node(metadata=ObjectMeta(name=name, labels={names.VIRTUAL_LABEL: "true"}), spec=NodeSpec(taints=taints))


def pod(uid: str, on: str, *conditions: Condition, app: str = "a", phase: str = "Running") -> Pod:
    meta = ObjectMeta(namespace="i", name=f"{app}-{uid}", uid=uid, labels={"app": app})
    return Pod(metadata=meta, spec=PodSpec(node_name=on), status=PodStatus(phase=phase, conditions=conditions))


def test_only_movements_of_the_gate_count():
    """Seeing the same state again is no movement; a node that appears open has opened."""
    seen = Recollection()
    for is_open in (False, False, True, True, False):
        seen.see_node(node(is_open=is_open))
    assert (seen.openings, seen.closings, seen.gate_open) == (1, 1, False)
    seen.see_node(node(is_open=True, name="w"))
    assert seen.openings == 2


def test_home_nodes_have_no_gate():
    """A node without the virtual label is home, whatever its taints."""
    seen = Recollection()
    seen.see_node(Node(metadata=ObjectMeta(name="h")))
    assert seen.gate_open is None


def test_spilled_pods_are_remembered_after_they_are_gone():
    """Where a pod was is not forgotten with it."""
    seen = Recollection()
    seen.see_node(node(is_open=True))
    seen.see_pod(pod("1", "v"), [])
    seen.see_pod(pod("1", "v"), [], gone=True)
    assert seen.spilled == {"1": "i/a-1"}
    assert seen.home_max == 0


def test_an_eviction_counts_once_with_the_owners_other_ready_pods():
    """Terminating and foreign pods are not replicas that serve."""
    seen = Recollection()
    seen.see_node(node(is_open=True))
    others = [pod("2", "h", READY), pod("3", "h"), pod("4", "h", READY, app="b")]
    evicted = pod("1", "v", READY, EVICTED)
    seen.see_pod(evicted, [evicted, *others])
    seen.see_pod(evicted, [evicted])
    assert [(e.ready_others, e.spilled, e.was_ready) for e in seen.evictions.values()] == [(1, True, True)]


def test_the_most_pods_at_home_at_once():
    """Finished and deleted pods make room."""
    seen = Recollection()
    seen.see_pod(pod("1", "h"), [])
    seen.see_pod(pod("2", "h"), [])
    seen.see_pod(pod("1", "h", phase="Succeeded"), [])
    seen.see_pod(pod("3", "h"), [])
    seen.see_pod(pod("2", "h"), [], gone=True)
    assert seen.home_max == 2


def test_spilled_pods_that_go_without_an_eviction_have_vanished():
    """Deleted or failed outside; who was evicted, finished or was never outside has not."""
    seen = Recollection()
    seen.see_node(node(is_open=True))
    seen.see_pod(pod("deleted", "v"), [], gone=True)
    seen.see_pod(pod("failed", "v", phase="Failed"), [])
    seen.see_pod(pod("evicted", "v", EVICTED), [])
    seen.see_pod(pod("evicted", "v", EVICTED), [], gone=True)
    seen.see_pod(pod("finished", "v", phase="Succeeded"), [], gone=True)
    seen.see_pod(pod("home", "h"), [], gone=True)
    assert set(seen.vanished) == {"deleted", "failed"}
