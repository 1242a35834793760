"""One reading of home out of nodes and pods."""

import pytest

from overspill_events.names import BASE_TAINT, SPILLABLE_LABEL, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_events.reasons import Source, UnknownCause
from overspill_sampler.policy import BLOCKS, Cluster, count, waits
from tests.unit.overspill_capacity.cluster import GPU, node, pod
from tests.unit.overspill_capacity.test_room import NOW

UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
TOLERANT = {"tolerations": [{"key": BASE_TAINT, "operator": "Exists"}]}


def spillable(name, gpus=1, *, spec=None, meta=None, status=UNSCHEDULABLE, **more):
    labels = {SPILLABLE_LABEL: "true"}
    return pod(
        name, gpus, spec={**TOLERANT, **(spec or {})}, meta={"labels": labels, **(meta or {})}, status=status, **more
    )


def virtual(gpus=100, *, gate_open=False, **more):
    taints = [{"key": BASE_TAINT, "effect": "NoSchedule"}]
    taints += [] if gate_open else [{"key": SWITCH_TAINT, "effect": "NoSchedule"}]
    return node("virtual", gpus, labels={VIRTUAL_LABEL: "true", "zone": "out"}, taints=taints, **more)


def read(*objects, **more):
    nodes = tuple(o for o in objects if hasattr(o.spec, "taints"))
    pods = tuple(o for o in objects if not hasattr(o.spec, "taints"))
    return count(Cluster(nodes=nodes, pods=pods, **more), resource=GPU, now=NOW)


def test_the_numbers_of_home():
    reading = read(node("n1", 8), node("n2", 8), virtual(), pod("a", 5, on="n1"), pod("b", 7, on="virtual"))
    assert (reading.source, reading.observed_at, reading.unknown) == (Source.CLUSTER, NOW, None)
    assert (reading.free, reading.total, reading.used, reading.largest_block) == (11.0, 16.0, 5.0, 8)
    assert reading.room == {"1": 11, "2": 5, "4": 2, "8": 1}
    assert tuple(reading.room) == tuple(map(str, BLOCKS))


def test_what_is_neither_free_nor_used_is_told():
    ending = pod("a", 2, on="n1", meta={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    assert read(node("n1", 8), node("n2", 4, cordoned=True), ending).detail == "4 cordoned, 2 being released"


@pytest.mark.parametrize(
    ("cluster", "cause"),
    [
        ({"unknown": UnknownCause.NOT_SYNCED, "detail": "pods: silent"}, UnknownCause.NOT_SYNCED),
        ({"device_nodes": frozenset({"n0"})}, UnknownCause.UNKNOWN),
    ],
)
def test_what_cannot_be_counted_has_no_number_at_all(cluster, cause):
    reading = read(node("n0", 0), node("n1", 8), **cluster)
    assert reading.unknown is cause
    assert reading.detail
    assert (reading.free, reading.total, reading.used, reading.largest_block) == (None,) * 4
    assert (reading.waiting_pods, reading.waiting_gpus, reading.stuck_pods, reading.room) == (None, None, None, {})


@pytest.mark.parametrize(
    ("one", "waiting"),
    [
        (spillable("a"), True),
        (pod("a"), False),
        (pod("a", meta={"labels": {SPILLABLE_LABEL: "yes"}}), False),
        (spillable("a", on="n1"), False),
        (spillable("a", spec={"schedulingGates": [{"name": "overspill.dev/admission"}]}), False),
        (spillable("a", phase="Failed"), False),
        (
            spillable("a", meta={"labels": {SPILLABLE_LABEL: "true"}, "deletionTimestamp": "2030-01-01T00:00:00Z"}),
            False,
        ),
    ],
)
def test_who_waits(one, waiting):
    assert waits(one) is waiting


def test_waiting_pods_and_gpus():
    reading = read(node("n1", 8), spillable("a", 2), spillable("b", 3), pod("c", 4))
    assert (reading.waiting_pods, reading.waiting_gpus) == (2, 5)


def test_what_a_waiting_pod_wants_is_unknown_when_it_cannot_be_read():
    reading = read(node("n1", 8), spillable("a", 2), spillable("b", "many"))
    assert (reading.waiting_pods, reading.waiting_gpus) == (2, None)


def test_stuck_is_who_only_an_open_gate_could_place():
    full = node("n1", 2)
    assert read(full, virtual(), spillable("a", 4)).stuck_pods == 1
    assert read(full, virtual(), spillable("a", 2)).stuck_pods == 0, "home has room for it"
    assert read(full, virtual(), spillable("a", 4, status={})).stuck_pods == 0, "the scheduler has not judged it yet"


def test_who_no_virtual_node_would_take_either_is_not_the_gates_fault():
    full, big = node("n1", 2), spillable("a", 4)
    assert read(full, virtual(gpus=3), big).stuck_pods == 0
    assert read(full, virtual(ready="False"), big).stuck_pods == 0
    assert read(full, virtual(), spillable("a", 4, spec={"nodeSelector": {"zone": "home"}})).stuck_pods == 0
    assert read(full, virtual(), spillable("a", 4, spec={"nodeSelector": {"zone": "out"}})).stuck_pods == 1
    assert read(full, virtual(), spillable("a", 4, spec={"tolerations": []})).stuck_pods == 0
    assert read(full, big).stuck_pods == 1, "without a virtual node nothing is known of that"


def test_the_gate_being_open_or_closed_changes_nothing_about_home():
    assert read(node("n1", 2), virtual(gate_open=True), spillable("a", 4)) == read(
        node("n1", 2), virtual(), spillable("a", 4)
    )
