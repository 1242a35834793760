"""The scheduler's books: who waits, who holds room, and that no node is promised twice."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from overspill_lab.scheduler.book import Book
from overspill_lab.scheduler.placing import Placed, Unplaced
from overspill_objects.core import Pod
from tests.support.lab_cases import GPU, node, pod

GPUS = 4


def book(*nodes: str) -> Book:
    made = Book(scheduler_name="default-scheduler", dice=Random(3))
    for name in nodes:
        made.put_node(node(name, gpus=GPUS))
    return made


def outcome(made: Book, *, now: float = 0, tries: int = 100) -> dict[str, str | None]:
    """Pod → node, or None."""
    decisions, _ = made.cycle(now, tries=tries)
    return {one.ask.name: one.placement.node_name if isinstance(one.placement, Placed) else None for one in decisions}


def asking(name: str, gpus: int = 1, **more: object) -> Pod:
    return pod(name, requests={GPU: str(gpus)}, **more)  # type: ignore[arg-type]


def bound(waiting: Pod, node_name: str) -> Pod:
    return asking(
        waiting.metadata.name, int(waiting.spec.containers[0].resources.requests[GPU]), spec={"nodeName": node_name}
    )


def test_higher_priority_goes_first_then_the_older() -> None:
    made = book("a")
    for name, priority, created in (("late", 5, "12:00:02"), ("low", 0, "12:00:00"), ("early", 5, "12:00:01")):
        made.put_pod(
            asking(name, 2, spec={"priority": priority}, metadata={"creationTimestamp": f"2026-11-30T{created}Z"})
        )
    assert outcome(made) == {"early": "a", "late": "a", "low": None}


def test_a_placed_pod_holds_its_room_before_the_api_server_says_so() -> None:
    made = book("a")
    made.put_pod(asking("one", GPUS))
    assert outcome(made) == {"one": "a"}
    made.put_pod(asking("one", GPUS))  # the watch has not seen the binding yet
    made.put_pod(asking("two", 1))
    assert outcome(made) == {"two": None}


def test_a_binding_that_failed_gives_the_room_back_after_a_while() -> None:
    made = book("a")
    made.put_pod(asking("one", GPUS))
    (decision,), _ = made.cycle(0, tries=1)
    made.unassume(decision.ask, not_before=10)
    assert outcome(made, now=5) == {}
    assert made.next_try() == 10
    assert outcome(made, now=10) == {"one": "a"}


def test_a_binding_that_was_seen_meanwhile_is_not_undone() -> None:
    made = book("a")
    made.put_pod(asking("one", GPUS))
    (decision,), _ = made.cycle(0, tries=1)
    made.put_pod(bound(asking("one", GPUS), "a"))
    made.unassume(decision.ask, not_before=0)
    made.put_pod(asking("two", 1))
    assert outcome(made) == {"two": None}


def test_an_ended_pod_frees_its_node() -> None:
    made = book("a")
    made.put_pod(bound(asking("one", GPUS), "a"))
    made.put_pod(asking("two"))
    assert outcome(made) == {"two": None}
    made.put_pod(asking("one", GPUS, spec={"nodeName": "a"}, status={"phase": "Succeeded"}))
    assert outcome(made) == {"two": "a"}


def test_who_is_gated_or_somebody_elses_or_leaving_is_not_placed() -> None:
    made = book("a")
    made.put_pod(asking("gated", spec={"schedulingGates": [{"name": "g"}]}))
    made.put_pod(asking("foreign", spec={"schedulerName": "other"}))
    made.put_pod(asking("leaving", metadata={"deletionTimestamp": "2026-11-30T12:00:00Z"}))
    assert outcome(made) == {}
    made.put_pod(asking("gated"))
    assert outcome(made) == {"gated": "a"}


def test_a_pod_is_tried_again_only_when_room_may_have_come() -> None:
    """The second cycle must not work: its answer is known. `tries=0` would leave a pod that really has to be tried."""
    made = book("a")
    made.put_pod(bound(asking("holder", GPUS), "a"))
    made.put_pod(asking("waiting"))
    outcome(made)
    decisions, left = made.cycle(1, tries=0)
    assert (len(decisions), left) == (1, False)
    made.put_node(node("a", gpus=GPUS, labels={"new": "label"}))
    assert made.cycle(2, tries=0) == ([], True)


def test_a_cycle_ends_after_its_tries_and_says_that_some_are_left() -> None:
    made = book("a")
    for at in range(3):
        made.put_pod(asking(f"p{at}"))
    decisions, left = made.cycle(0, tries=2)
    assert (len(decisions), left) == (2, True)
    decisions, left = made.cycle(0, tries=2)
    assert (len(decisions), left) == (1, False)


def test_a_lost_node_takes_nobody_and_its_pods_still_count_when_it_returns() -> None:
    made = book("a")
    made.put_pod(bound(asking("holder", GPUS), "a"))
    made.drop_node("a")
    made.put_pod(asking("waiting"))
    (decision,), _ = made.cycle(0, tries=5)
    assert isinstance(decision.placement, Unplaced)
    assert decision.placement.message == "no nodes available to schedule pods"
    made.put_node(node("a", gpus=GPUS))
    assert outcome(made) == {"waiting": None}


class NeverTwice(RuleBasedStateMachine):
    """Whatever the order of arrivals, bindings, failures and ends: no node holds more than it has."""

    def __init__(self) -> None:
        super().__init__()
        self.book = book("a", "b")
        self.waiting: dict[str, int] = {}
        self.placed: dict[str, tuple[int, str]] = {}
        self.asks: dict[str, object] = {}
        self.count = 0

    @rule(gpus=st.integers(1, GPUS))
    def arrive(self, gpus: int) -> None:
        self.count += 1
        name = f"p{self.count}"
        self.waiting[name] = gpus
        self.book.put_pod(asking(name, gpus))

    @rule(tries=st.integers(1, 5))
    def decide(self, tries: int) -> None:
        for decision in self.book.cycle(0, tries=tries)[0]:
            if isinstance(decision.placement, Placed):
                name = decision.ask.name
                self.placed[name] = (self.waiting.pop(name), decision.placement.node_name)
                self.asks[name] = decision.ask

    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        if self.placed:
            name = data.draw(st.sampled_from(sorted(self.placed)))
            gpus, node_name = self.placed[name]
            self.book.put_pod(bound(asking(name, gpus), node_name))
            self.asks.pop(name, None)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        if self.asks:
            name = data.draw(st.sampled_from(sorted(self.asks)))
            self.book.unassume(self.asks.pop(name), not_before=0)  # type: ignore[arg-type]
            self.waiting[name] = self.placed.pop(name)[0]

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.placed:
            name = data.draw(st.sampled_from(sorted(self.placed)))
            del self.placed[name]
            self.asks.pop(name, None)
            self.book.drop_pod(name)

    @invariant()
    def fits(self) -> None:
        held: Counter[str] = Counter()
        for gpus, node_name in self.placed.values():
            held[node_name] += gpus
        assert all(amount <= GPUS for amount in held.values()), held


TestNeverTwice = NeverTwice.TestCase
TestNeverTwice.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, GPUS), max_size=12))
def test_nobody_waits_while_a_node_has_room(sizes: list[int]) -> None:
    made = book("a", "b", "c")
    for at, gpus in enumerate(sizes):
        made.put_pod(asking(f"p{at}", gpus))
    placements = outcome(made)
    free = Counter(dict.fromkeys("abc", GPUS))
    for at, gpus in enumerate(sizes):
        if (node_name := placements[f"p{at}"]) is not None:
            free[node_name] -= gpus
    left = [gpus for at, gpus in enumerate(sizes) if placements[f"p{at}"] is None]
    assert all(gpus > max(free.values()) for gpus in left)
