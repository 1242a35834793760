"""How evenly the lab's scheduler spreads pods: what objects, what scores, whom it counts."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.scheduler.ask import Ask, ask_of
from overspill_lab.scheduler.placing import Placed, Unplaced, place
from overspill_lab.scheduler.preemption import Candidate, preempt
from overspill_lab.scheduler.room import NodeRoom
from overspill_lab.scheduler.spread import NO_LABEL, UNEVEN, spread_objections, spread_scores
from overspill_objects.core import Pod
from tests.support.lab_cases import GPU, node, pod, time

ZONE = "zone"
LABELS = {"app": "web"}


def evenly(*, when: str = "DoNotSchedule", skew: int = 1, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": LABELS}
    return {"topologyKey": ZONE, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def web(name: str = "p", *constraints: dict[str, Any], **more: Any) -> Pod:
    metadata = {"labels": LABELS, **more.pop("metadata", {})}
    spec = {"topologySpreadConstraints": list(constraints), **more.pop("spec", {})}
    return pod(name, metadata=metadata, spec=spec, **more)


def room(name: str, zone: str | None, *guests: Pod, **more: Any) -> NodeRoom:
    made = NodeRoom(name)
    made.describe(node(name, labels={} if zone is None else {ZONE: zone}, **more))
    for guest in guests:
        made.add(ask_of(guest))
    return made


def asking(*constraints: dict[str, Any], **spec: Any) -> Ask:
    return ask_of(web("asking", *constraints, spec=spec))


def guests(count: int, **more: Any) -> list[Pod]:
    return [web(f"g{at}", **more) for at in range(count)]


def objections(ask: Ask, *rooms: NodeRoom) -> list[tuple[str, ...]]:
    judge = spread_objections(ask, rooms)
    return [judge(one) for one in rooms]


@pytest.mark.parametrize(("skew", "expected"), [(1, (UNEVEN,)), (2, (UNEVEN,)), (3, ())])
def test_a_domain_is_too_full_when_the_emptiest_is_further_behind(skew: int, expected: tuple[str, ...]) -> None:
    full, empty = room("a", "x", *guests(2)), room("b", "y")
    assert objections(asking(evenly(skew=skew)), full, empty) == [expected, ()]


def test_nodes_of_one_zone_are_one_domain() -> None:
    rooms = room("a", "x", web("g")), room("b", "x"), room("c", "y")
    assert objections(asking(evenly()), *rooms) == [(UNEVEN,), (UNEVEN,), ()]


def test_a_node_without_the_label_takes_nobody_and_is_no_domain() -> None:
    rooms = room("a", "x", web("g")), room("b", None)
    assert objections(asking(evenly()), *rooms) == [(), (NO_LABEL,)]


def test_a_pod_that_its_own_selector_leaves_out_weighs_nothing() -> None:
    rooms = room("a", "x", web("g")), room("b", "y")
    stranger = ask_of(pod("stranger", spec={"topologySpreadConstraints": [evenly()]}))
    assert objections(stranger, *rooms) == [(), ()]


@pytest.mark.parametrize(
    "guest",
    [
        web("g", metadata={"namespace": "elsewhere"}),
        web("g", metadata={"labels": {"app": "other"}}),
        web("g", metadata={"deletionTimestamp": time()}),
    ],
)
def test_others_and_those_that_leave_do_not_count(guest: Pod) -> None:
    assert objections(asking(evenly()), room("a", "x", guest), room("b", "y")) == [(), ()]


def test_a_node_that_the_pod_does_not_select_is_no_domain() -> None:
    rooms = room("a", "x", web("g")), room("b", "y")
    assert objections(asking(evenly(), nodeSelector={ZONE: "x"}), *rooms)[0] == ()


def test_too_few_domains_count_as_an_empty_one() -> None:
    assert objections(asking(evenly(minDomains=2)), room("a", "x", web("g"))) == [(UNEVEN,)]
    assert objections(asking(evenly(minDomains=1)), room("a", "x", web("g"))) == [()]


def test_the_emptiest_domain_scores_best_and_no_domain_nothing() -> None:
    rooms = [room("a", "x", *guests(3)), room("b", "y", web("other")), room("c", None)]
    scores = spread_scores(asking(evenly(when="ScheduleAnyway")), rooms, rooms)
    assert scores[1] == 100
    assert 0 < scores[0] < 100
    assert scores[2] == 0


def test_without_a_wish_all_nodes_are_alike() -> None:
    rooms = [room("a", "x", web("g")), room("b", "y")]
    assert spread_scores(asking(evenly()), rooms, rooms) == [0, 0]


def test_a_victim_may_be_whoever_makes_it_even() -> None:
    """Only a pod of the kind in the full zone helps: the other zone has no room at all."""
    low = web("low", spec={"priority": 0})
    rooms = [room("a", "x", low), room("b", "y", gpus=0, pods=0)]
    found = preempt(asking(evenly(), priority=5), rooms, nominated={}, budgets=[])
    assert isinstance(found, Candidate)
    assert (found.node_name, [victim.name for victim in found.victims]) == ("a", ["low"])


@given(zones=st.lists(st.sampled_from("xyz"), min_size=1, max_size=6), count=st.integers(1, 20), skew=st.integers(1, 3))
def test_whoever_is_placed_keeps_the_zones_even(zones: list[str], count: int, skew: int) -> None:
    rooms = [room(f"n{at}", zone) for at, zone in enumerate(zones)]
    held = dict.fromkeys(zones, 0)
    for at in range(count):
        ask = ask_of(web(f"p{at}", evenly(skew=skew)))
        placement = place(ask, rooms, dice=Random(at))
        assert isinstance(placement, Placed)  # there is room everywhere
        chosen = next(one for one in rooms if one.name == placement.node_name)
        chosen.add(ask)
        held[chosen.labels[ZONE]] += 1
        assert max(held.values()) - min(held.values()) <= skew


def test_who_lacks_room_hears_of_that_and_not_of_evenness() -> None:
    rooms = [room("a", "x", web("g"), gpus=0), room("b", "y", gpus=0)]
    asks = ask_of(web("p", evenly(), requests={GPU: "1"}))
    placement = place(asks, rooms, dice=Random(0))
    assert isinstance(placement, Unplaced)
    assert placement.message == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
