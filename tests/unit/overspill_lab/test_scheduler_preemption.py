"""Whom the lab's scheduler sends away, for whom, and from where: `tests/cases/preemption.yaml`, and the books beside it.

PO-07 and PO-08 are about groups of pods, which the lab does not know; the other outcomes are tests of their own.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.scheduler.ask import Ask, ask_of
from overspill_lab.scheduler.book import Book, Decision
from overspill_lab.scheduler.placing import Placed, Unplaced, place
from overspill_lab.scheduler.preemption import NO_VICTIMS, NOT_HELPFUL, Candidate, Reasons, preempt, why_not_eligible
from overspill_lab.scheduler.room import NodeRoom
from overspill_objects.core import Pod
from overspill_objects.disruption import PodDisruptionBudget
from tests.support.lab_cases import GPU, node, pod, time

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "preemption.yaml").read_text())
BY_SCHEDULER = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def rows(section: str) -> Any:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in CASES[section]])


def described(facts: Mapping[str, Any]) -> Pod:
    """The pod of a case."""
    leaving = {"deletionTimestamp": time()} if facts.get("terminating") else {}
    reason = facts.get("disruption_reason")
    return pod(
        facts.get("name", "p"),
        requests={"cpu": f"{facts.get('cpu_m', 0)}m", "memory": str(facts.get("mem", 0))},
        metadata={"labels": facts.get("labels", {}), **leaving},
        spec={"priority": facts.get("priority", 0)},
        status={
            "startTime": time(facts["start"]) if "start" in facts else None,
            "conditions": [{**BY_SCHEDULER, "reason": reason}] if reason else [],
        },
    )


def rooms_of(row: Mapping[str, Any]) -> list[NodeRoom]:
    """The nodes of a case, all of one size, with their pods."""
    size = row.get("node_size", {"cpu_m": 500, "mem": 500})
    rooms: dict[str, NodeRoom] = {}
    for facts in row["pods"]:
        name = facts["node"]
        if name not in rooms:
            rooms[name] = NodeRoom(name)
            rooms[name].describe(node(name, cpu=f"{size['cpu_m']}m", memory=str(size["mem"])))
        rooms[name].add(ask_of(described(facts)))
    return list(rooms.values())


def budgets_of(row: Mapping[str, Any]) -> list[PodDisruptionBudget]:
    return [
        budget(one["selector"], allowed=one["allowed"], disrupted=one["disrupted"], name=f"b{at}")
        for at, one in enumerate(row.get("pdbs", ()))
    ]


def budget(
    labels: Mapping[str, str], *, allowed: int, disrupted: tuple[str, ...] | list[str] = (), name: str = "b"
) -> PodDisruptionBudget:
    document = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": dict(labels)}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, time())},
    }
    return msgspec.convert(document, type=PodDisruptionBudget)


def on_each(row: Mapping[str, Any]) -> dict[str, Candidate]:
    """What each node alone would have to lose."""
    asking = ask_of(described(row["preemptor"]))
    found = {room.name: preempt(asking, [room], nominated={}, budgets=budgets_of(row)) for room in rooms_of(row)}
    return {name: one for name, one in found.items() if isinstance(one, Candidate)}


@rows("preemption_pick_node")
def test_the_node_that_loses_least_is_chosen(row: Mapping[str, Any]) -> None:
    found = preempt(ask_of(described(row["preemptor"])), rooms_of(row), nominated={}, budgets=[])
    assert isinstance(found, Candidate)
    assert found.node_name in row["expect_node_one_of"]


@rows("preemption_victims")
def test_each_node_loses_as_few_as_will_do(row: Mapping[str, Any]) -> None:
    found = {
        name: {"victims": sorted(victim.name for victim in one.victims), "violations": one.violations}
        for name, one in on_each(row).items()
    }
    expected = row["expect_candidates"]
    if "candidate_limits" in row:
        # The original looked at four of the nodes only; this scheduler looks at all.
        found = {name: one for name, one in found.items() if name in expected}
    assert found == expected


@rows("preemption_eligible")
def test_who_may_preempt_again(row: Mapping[str, Any]) -> None:
    room = NodeRoom("node1")
    closed = row.get("nominated_status") == "UnschedulableAndUnresolvable"
    room.describe(node("node1", spec={"unschedulable": closed}))
    for facts in row["pods"]:
        room.add(ask_of(described(facts)))
    nominated = room if "nominated_node" in row["pod"] else None
    assert (why_not_eligible(ask_of(described(row["pod"])), nominated) is None) is row["expect_eligible"]


def room(name: str = "n", *guests: Pod, gpus: int = 2, **more: Any) -> NodeRoom:
    made = NodeRoom(name)
    made.describe(node(name, gpus=gpus, **more))
    for guest in guests:
        made.add(ask_of(guest))
    return made


def guest(name: str, priority: int = 0, gpus: int = 1, **more: Any) -> Pod:
    spec = {"priority": priority, **more.pop("spec", {})}
    return pod(name, requests={GPU: str(gpus)}, spec=spec, **more)


def asks(priority: int = 10, gpus: int = 1, **spec: Any) -> Ask:
    return ask_of(guest("asking", priority, gpus, spec=spec))


def why_not(asking: Ask, *rooms: NodeRoom) -> str:
    found = preempt(asking, rooms, nominated={}, budgets=[])
    assert isinstance(found, Reasons), found
    return found.message


def test_equals_are_no_victims() -> None:
    """PO-02."""
    assert why_not(asks(0), room("n", guest("a"))) == f"preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."


def test_nobody_goes_from_a_node_that_would_not_do_anyway() -> None:
    """PO-03."""
    cordoned = room("n", guest("a"), spec={"unschedulable": True})
    assert why_not(asks(), cordoned) == f"preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}."


def test_nobody_goes_when_that_is_not_enough() -> None:
    """PO-06."""
    assert "1 Insufficient nvidia.com/gpu" in why_not(asks(gpus=2), room("n", guest("a"), guest("equal", 10)))


def test_a_pod_slot_is_room_too() -> None:
    """PO-01: a pod without a priority counts as 0."""
    found = preempt(asks(1000), [room("n", pod("a"), pods=1)], nominated={}, budgets=[])
    assert isinstance(found, Candidate)
    assert [victim.name for victim in found.victims] == ["a"]


def test_of_two_broken_budgets_the_one_that_costs_the_lesser_pod() -> None:
    """PO-05."""
    rooms = [
        room("one", guest("a", 0, metadata={"labels": {"app": "x"}}), guest("high", 8)),
        room("two", guest("b", 0, metadata={"labels": {"app": "x"}}), guest("mid", 5)),
    ]
    found = preempt(asks(gpus=2), rooms, nominated={}, budgets=[budget({"app": "x"}, allowed=0)])
    assert isinstance(found, Candidate)
    assert (found.node_name, found.violations) == ("two", 1)


@pytest.mark.parametrize("labels", [{}, {"app": "other"}])
def test_an_empty_selector_guards_nobody_from_the_scheduler(labels: dict[str, str]) -> None:
    guarded = room("n", guest("a", metadata={"labels": {"app": "x"}}), gpus=1)
    found = preempt(asks(), [guarded], nominated={}, budgets=[budget(labels, allowed=0)])
    assert isinstance(found, Candidate)
    assert found.violations == 0


def test_who_never_preempts_is_told_so() -> None:
    assert why_not_eligible(asks(preemptionPolicy="Never"), None) == "not eligible due to preemptionPolicy=Never."


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=8),
    wanted=st.integers(1, 6),
    priority=st.integers(0, 4),
)
def test_victims_are_lesser_and_enough_and_none_too_many(
    sizes: list[tuple[int, int]], wanted: int, priority: int
) -> None:
    guests = [guest(f"g{at}", rank, gpus) for at, (rank, gpus) in enumerate(sizes)]
    full = room("n", *guests, gpus=sum(gpus for _, gpus in sizes))
    asking = asks(priority, wanted)
    found = preempt(asking, [full], nominated={}, budgets=[])
    if isinstance(found, Reasons):
        assert sum(gpus for rank, gpus in sizes if rank < priority) < wanted
        return
    assert all(victim.priority < priority for victim in found.victims)
    for spared in (None, *found.victims):
        left = full.copy()
        for victim in found.victims:
            if victim is not spared:
                left.remove(victim.uid)
        fits = isinstance(place(asking, [left], dice=Random(0)), Placed)
        assert fits is (spared is None)


def book(*guests: Pod, gpus: int = 2) -> Book:
    made = Book(scheduler_name="default-scheduler", dice=Random(3))
    made.put_node(node("n", gpus=gpus))
    for one in guests:
        made.put_pod(one)
    return made


def bound(name: str, priority: int = 0, gpus: int = 1, **more: Any) -> Pod:
    return guest(name, priority, gpus, spec={"nodeName": "n"}, **more)


def leaving(name: str, **more: Any) -> Pod:
    status = {"conditions": [BY_SCHEDULER]}
    return bound(name, metadata={"deletionTimestamp": time()}, status=status, **more)


def cycle(made: Book) -> dict[str, Decision]:
    decisions, _ = made.cycle(0, tries=100)
    return {one.ask.name: one for one in decisions}


def sent(decision: Decision) -> set[str]:
    return {victim.name for victim in decision.victims}


def test_a_preemptor_is_nominated_and_its_victims_are_told_once() -> None:
    made = book(bound("a"), bound("b"))
    made.put_pod(guest("urgent", 5, 2))
    decision = cycle(made)["urgent"]
    assert (decision.nominated, sent(decision)) == ("n", {"a", "b"})
    made.put_pod(leaving("a"))  # room has changed: the pod is looked at again
    assert sent(cycle(made)["urgent"]) == set()
    made.put_pod(leaving("b"))
    made.drop_pod("a")
    again = cycle(made)["urgent"]
    assert (again.nominated, sent(again)) == ("n", set())
    assert isinstance(again.placement, Unplaced)
    assert again.placement.message.endswith("not eligible due to a terminating pod on the nominated node.")
    made.drop_pod("b")
    assert cycle(made)["urgent"].placement == Placed(node_name="n")


def test_room_that_comes_piece_by_piece_is_kept_for_the_preemptor() -> None:
    made = book(bound("a"), bound("b"))
    made.put_pod(guest("urgent", 5, 2))
    cycle(made)
    made.drop_pod("a")
    made.put_pod(guest("lesser", 4))
    made.put_pod(guest("greater", 6))
    decisions = cycle(made)
    assert decisions["greater"].placement == Placed(node_name="n")
    assert isinstance(decisions["lesser"].placement, Unplaced)
    assert decisions["lesser"].victims == ()


def test_pods_of_one_kind_each_have_victims_of_their_own() -> None:
    made = book(bound("a"), bound("b"))
    for name in ("one", "two", "three"):
        made.put_pod(guest(name, 5))
    decisions = cycle(made)
    told = [sent(decision) for decision in decisions.values()]
    assert sorted(map(len, told)) == [0, 1, 1]
    assert set().union(*told) == {"a", "b"}


def test_a_claim_that_is_given_up_lets_others_in() -> None:
    made = book(bound("a"))
    made.put_pod(guest("urgent", 5, 2))
    cycle(made)
    made.put_pod(guest("lesser", 4))
    assert isinstance(cycle(made)["lesser"].placement, Unplaced)
    made.drop_pod("urgent")
    assert cycle(made)["lesser"].placement == Placed(node_name="n")


def test_a_more_important_pod_takes_a_nomination_away() -> None:
    made = book(bound("a"), gpus=1)
    made.put_pod(guest("urgent", 5))
    assert cycle(made)["urgent"].nominated == "n"
    made.put_pod(guest("king", 9))
    decisions = cycle(made)
    assert (decisions["king"].nominated, decisions["urgent"].nominated) == ("n", "")


def test_a_victim_that_could_not_be_told_is_chosen_again() -> None:
    made = book(bound("a"), gpus=1)
    made.put_pod(guest("urgent", 5))
    decision = cycle(made)["urgent"]
    made.not_preempted(decision.ask, decision.victims[0])
    assert sent(cycle(made)["urgent"]) == {"a"}


def test_a_nomination_survives_the_scheduler() -> None:
    """What a predecessor decided is read from the pod's status."""
    made = book(leaving("a"), gpus=1)
    made.put_pod(guest("urgent", 5, status={"nominatedNodeName": "n"}))
    decision = cycle(made)["urgent"]
    assert (decision.nominated, decision.victims) == ("n", ())


def test_pods_that_leave_for_another_reason_are_not_waited_for_but_their_room_is_counted_on() -> None:
    made = book(bound("a", metadata={"deletionTimestamp": time()}), bound("b"))
    made.put_pod(guest("urgent", 5, 2))
    assert sent(cycle(made)["urgent"]) == {"b"}


def test_two_lesser_victims_are_better_than_one_of_more_importance() -> None:
    """Only afterwards does the number count."""
    rooms = [room("mid", guest("m", 5, 2)), room("low", guest("a", 1), guest("b", 1))]
    found = preempt(asks(gpus=2), rooms, nominated={}, budgets=[])
    assert isinstance(found, Candidate)
    assert found.node_name == "low"


def test_an_equal_that_goes_by_preemption_is_not_waited_for() -> None:
    going = guest("equal", 10, status={"conditions": [BY_SCHEDULER]}, metadata={"deletionTimestamp": time()})
    assert why_not_eligible(asks(10), room("n", going)) is None


def test_who_is_being_evicted_already_costs_its_budget_nothing_more() -> None:
    rooms = [room("n", guest("a", metadata={"labels": {"app": "x"}}), gpus=1)]
    spent = budget({"app": "x"}, allowed=0, disrupted=["a"])
    found = preempt(asks(), rooms, nominated={}, budgets=[spent])
    assert isinstance(found, Candidate)
    assert found.violations == 0


def test_a_pod_without_labels_is_guarded_by_no_budget() -> None:
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    document = {"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": absent}}
    guarding = msgspec.convert(document, type=PodDisruptionBudget)
    found = [
        preempt(asks(), [room("n", guest("a", metadata={"labels": labels}), gpus=1)], nominated={}, budgets=[guarding])
        for labels in ({}, {"other": "x"})
    ]
    assert [one.violations for one in found if isinstance(one, Candidate)] == [0, 1]


def test_what_a_predecessor_began_is_waited_for_and_nobody_else_goes() -> None:
    made = book(leaving("a", priority=3), gpus=1)
    made.put_node(node("m", gpus=1))
    made.put_pod(guest("cheap", 0, spec={"nodeName": "m"}))
    made.put_pod(guest("urgent", 5, status={"nominatedNodeName": "n"}))
    decision = cycle(made)["urgent"]
    assert (decision.nominated, decision.victims) == ("n", ())
    assert isinstance(decision.placement, Unplaced)


def test_the_room_that_was_made_is_taken_even_if_better_has_come() -> None:
    made = book(bound("a"), bound("keeps", 9), gpus=2)
    made.put_pod(guest("urgent", 5))
    assert cycle(made)["urgent"].nominated == "n"
    made.put_node(node("m", gpus=1, cpu="1000", memory="1000Gi"))
    made.drop_pod("a")
    assert cycle(made)["urgent"].placement == Placed(node_name="n")
