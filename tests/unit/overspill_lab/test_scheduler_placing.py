"""Where the lab's scheduler puts a pod, and what it says when it puts it nowhere."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.scheduler.ask import ask_of
from overspill_lab.scheduler.placing import Placed, Unplaced, place
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.scores import balanced, least_allocated, normalised
from overspill_objects.core import Node, Pod
from tests.support.lab_cases import GPU, node, pod

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
TOLERATION = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}


def room(described: Node, *holders: Pod) -> NodeRoom:
    found = NodeRoom(described.metadata.name)
    found.describe(described)
    for holder in holders:
        found.add(ask_of(holder))
    return found


def placed(asking: Pod, *rooms: NodeRoom) -> str:
    placement = place(ask_of(asking), rooms, dice=Random(1))
    assert isinstance(placement, Placed), placement
    return placement.node_name


def refused(asking: Pod, *rooms: NodeRoom) -> str:
    placement = place(ask_of(asking), rooms, dice=Random(1))
    assert isinstance(placement, Unplaced), placement
    return placement.message


def test_the_message_counts_the_objections_as_the_original_does() -> None:
    rooms = (
        room(node("a", gpus=0)),
        room(node("b", gpus=1)),
        room(node("c", spec={"taints": [TAINT]})),
        room(node("d", spec={"unschedulable": True})),
    )
    assert refused(pod(requests={GPU: "2", "cpu": "1"}), *rooms) == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 Insufficient nvidia.com/gpu."
    )


def test_every_scarce_resource_is_named() -> None:
    message = refused(pod(requests={GPU: "2", "cpu": "10", "memory": "1Gi"}), room(node(gpus=1)))
    assert message == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu."


def test_without_nodes_there_is_nothing_to_count() -> None:
    assert refused(pod()) == "no nodes available to schedule pods"


def test_a_full_node_is_full_however_little_a_pod_asks() -> None:
    assert refused(pod(), room(node(pods=1), pod("other"))) == "0/1 nodes are available: 1 Too many pods."


def test_what_terminates_still_holds() -> None:
    leaving = pod("leaving", requests={GPU: "8"}, metadata={"deletionTimestamp": "2026-11-30T12:00:00Z"})
    assert "Insufficient" in refused(pod(requests={GPU: "1"}), room(node(gpus=8), leaving))


def test_a_toleration_opens_a_tainted_node() -> None:
    tainted = room(node(spec={"taints": [TAINT]}))
    assert "untolerated taint" in refused(pod(), tainted)
    assert placed(pod(spec={"tolerations": [TOLERATION]}), tainted) == "n"


def test_a_cordoned_node_takes_only_who_tolerates_that() -> None:
    cordoned = room(node(spec={"unschedulable": True}))
    tolerant = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert "unschedulable" in refused(pod(), cordoned)
    assert placed(pod(spec={"tolerations": [tolerant]}), cordoned) == "n"


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ({"key": "zone", "operator": "In", "values": ["x"]}, "x"),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, "y"),
        ({"key": "fast", "operator": "Exists"}, "y"),
        ({"key": "fast", "operator": "DoesNotExist"}, "x"),
        ({"key": "fast", "operator": "Gt", "values": ["9"]}, "y"),
    ],
)
def test_required_node_affinity_chooses(expression: dict[str, object], chosen: str) -> None:
    rooms = (room(node("x", labels={"zone": "x"})), room(node("y", labels={"zone": "y", "fast": "10"})))
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert placed(pod(spec={"affinity": affinity}), *rooms) == chosen


def test_a_node_selector_must_match() -> None:
    rooms = (room(node("x")), room(node("y", labels={"pool": "gpu"})))
    assert placed(pod(spec={"nodeSelector": {"pool": "gpu"}}), *rooms) == "y"
    assert "node affinity/selector" in refused(pod(spec={"nodeSelector": {"pool": "none"}}), *rooms)


def test_a_host_port_is_taken_once() -> None:
    listening = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    assert "free ports" in refused(pod(spec=listening), room(node(), pod("other", spec=listening)))


def test_a_soft_taint_outweighs_an_emptier_node() -> None:
    """The virtual node is huge and empty; its preference taint must still send pods home first."""
    taint = {"key": "overspill.dev/prefer-home", "effect": "PreferNoSchedule"}
    huge = room(node("virtual", cpu="10000", memory="100Ti", spec={"taints": [taint]}))
    home = room(node("home"), *(pod(f"h{at}", requests={"cpu": "1", "memory": "4Gi"}) for at in range(6)))
    assert placed(pod(requests={"cpu": "1", "memory": "4Gi"}), huge, home) == "home"


def test_preferred_affinity_counts_by_weight() -> None:
    def term(key: str, weight: int) -> dict[str, object]:
        return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term("a", 10), term("b", 11)]}}
    rooms = (room(node("x", labels={"a": ""})), room(node("y", labels={"b": ""})))
    assert placed(pod(spec={"affinity": affinity}), *rooms) == "y"


def test_among_equals_the_dice_decide() -> None:
    rooms = [room(node(f"n{at}")) for at in range(4)]
    dice = Random(7)
    chosen = Counter()
    for _ in range(200):
        placement = place(ask_of(pod()), rooms, dice=dice)
        assert isinstance(placement, Placed)
        chosen[placement.node_name] += 1
    assert set(chosen) == {"n0", "n1", "n2", "n3"}


def test_scores_are_the_originals_whole_numbers() -> None:
    """Worked by hand from the originals' formulas: 8 cores and 32 GiB, 2 cores and 4 GiB held, 1 core and 4 GiB asked."""
    asked = ask_of(pod(requests={"cpu": "1", "memory": "4Gi"}))
    held = room(node(), pod("other", requests={"cpu": "2", "memory": "4Gi"}))
    assert least_allocated(asked, held) == (62 + 75) // 2  # 100*5/8 and 100*24/32, cut to whole numbers
    assert balanced(asked, held) == 50 + (50 + 93 - 93) // 2  # |2/8-4/32|/2 = |3/8-8/32|/2 = 0.0625 on both sides


def test_a_silent_container_scores_as_a_small_one() -> None:
    assert least_allocated(ask_of(pod()), room(node(cpu="1", memory="1Gi"))) == (90 + 80) // 2


def test_a_pod_that_asks_for_nothing_does_not_balance() -> None:
    assert balanced(ask_of(pod()), room(node())) == 0


def test_normalising() -> None:
    assert normalised([0, 1, 2], reverse=True) == [100, 50, 0]
    assert normalised([0, 1, 2], reverse=False) == [0, 50, 100]
    assert normalised([0, 0], reverse=True) == [100, 100]
    assert normalised([0, 0], reverse=False) == [0, 0]


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "pod affinity"),
        ({"affinity": {"podAntiAffinity": {"x": 1}}}, "pod anti-affinity"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "nodeTaintsPolicy": "Honor"}]},
            "topology spread constraints with nodeTaintsPolicy Honor",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes of kind persistentVolume"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(spec: dict[str, object], feature: str) -> None:
    assert refused(pod(spec=spec), room(node())).startswith(
        f"0/1 nodes are available: the lab does not schedule {feature}"
    )


@given(
    held=st.lists(st.integers(0, 4), max_size=6),
    asked=st.integers(0, 8),
    gpus=st.integers(0, 8),
)
def test_a_pod_is_placed_exactly_where_it_fits(held: list[int], asked: int, gpus: int) -> None:
    holders = [pod(f"h{at}", requests={GPU: str(amount)}) for at, amount in enumerate(held)]
    placement = place(ask_of(pod(requests={GPU: str(asked)})), [room(node(gpus=gpus), *holders)], dice=Random(0))
    assert isinstance(placement, Placed) == (asked == 0 or sum(held) + asked <= gpus)
