"""Which spilled pods return, in which order, and why the others stay."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from overspill_events.catalog import EvictionRefused, OwnerRef, PodRef, ReturnIntended
from overspill_events.envelope import Envelope
from overspill_events.names import VIRTUAL_LABEL
from overspill_events.reasons import HoldReason, RefusalReason
from overspill_evictor.memory import Failures, OpenReturn, Refusal
from overspill_evictor.policy import Hold, Plan, Return, decide
from overspill_evictor.snapshot import Rules, Snapshot
from tests.unit.overspill_evictor.cluster import GPU, NOW, RULES, home, pod, quota, replica_set, snapshot, virtual


def plan_of(state: Snapshot, rules: Rules = RULES, **more: Any) -> Plan:
    return decide(state, NOW, rules, **more)


def rules(**changes: Any) -> Rules:
    return msgspec.structs.replace(RULES, **changes)


def returned(plan: Plan) -> list[str]:
    return [one.pod.metadata.name for one in plan.returns]


def only_hold(plan: Plan) -> Hold:
    assert plan.returns == ()
    assert len(plan.holds) == 1
    return plan.holds[0]


def serving(count: int, *, name: str = "web") -> list[Any]:
    """Replicas of the owner at home, so that it is not at its floor."""
    return [pod(f"{name}-home-{i}", node="home-1", owner=name, gpus=0) for i in range(count)]


def open_return(name: str, *, owner: str = "web", home_node: str = "home-1", gpus: int = 1, **more: Any) -> OpenReturn:
    intent = ReturnIntended(
        pod=PodRef(namespace="team", name=name, uid=f"p-{name}"),
        owner=OwnerRef(kind="ReplicaSet", name=owner, uid=f"rs-{owner}"),
        node="virtual-1",
        home_node=home_node,
        gpus=gpus,
        expires_at=NOW + timedelta(seconds=300),
    )
    envelope = Envelope(
        id=f"intent-{name}", type=intent.spec.type, source="/overspill/x/evictor", time=NOW - timedelta(seconds=10),
        subject="s", epoch="1-aaaa", sequence=1, correlation_id="c",
    )  # fmt: skip
    return OpenReturn(intent=intent, envelope=envelope, siblings=frozenset(), **more)


def refusal(name: str, reason: RefusalReason, *, seconds_ago: float, **more: Any) -> Refusal:
    event = EvictionRefused(
        pod=PodRef(namespace="team", name=name, uid=f"p-{name}"), node="virtual-1", reason=reason, **more
    )
    return Refusal(event=event, at=NOW - timedelta(seconds=seconds_ago))


def test_a_pod_returns_with_the_numbers_that_led_to_it() -> None:
    """Room at home, gate settled, old enough, owner above its floor."""
    plan = plan_of(snapshot(home(gpus=4), virtual(), pod("away", gpus=2), *serving(2)))
    assert plan.holds == ()
    (one,) = plan.returns
    assert (one.home_node, one.home_free_gpus, one.gpus) == ("home-1", 4, 2)
    assert (one.ready_replicas, one.floor, one.age_seconds, one.is_running) == (3, 1, 1000, True)
    assert one.owner == OwnerRef(kind="ReplicaSet", name="web", uid="rs-web")


def test_pods_that_are_not_ours_to_move_are_not_even_judged() -> None:
    """Not opted in, at home, on their way out, finished: no answer at all."""
    state = snapshot(
        home(), virtual(), pod("stranger", spillable=False), pod("at-home", node="home-1"),
        pod("leaving", leaving=True), pod("done", phase="Succeeded"), pod("waiting", node="", phase="Pending"),
    )  # fmt: skip
    assert plan_of(state) == Plan(returns=(), holds=())


@pytest.mark.parametrize(
    ("reason", "objects", "more"),
    [
        (HoldReason.NOT_SYNCED, [virtual(ready=False), pod("away")], {}),
        (HoldReason.GATE_OPEN, [virtual(closed=False), pod("away")], {}),
        (HoldReason.GATE_OPEN, [virtual(), pod("away")], {"gate_closed_for": {}}),
        (HoldReason.GATE_SETTLING, [virtual(), pod("away")], {"closed_for": 59}),
        (HoldReason.OWNER_NOT_SUPPORTED, [virtual(), pod("away", owner=None)], {}),
        (HoldReason.OWNER_NOT_SUPPORTED, [virtual(), pod("away", owner_kind="Job")], {}),
        (HoldReason.OWNER_UNKNOWN, [virtual(), pod("away", owner="gone")], {}),
        (HoldReason.BAD_ANNOTATION, [virtual(), pod("away", annotations={"overspill.dev/floor": "two"})], {}),
        (HoldReason.BAD_ANNOTATION, [virtual(), pod("away", annotations={"overspill.dev/floor": "0"})], {}),
        (HoldReason.TOO_YOUNG, [virtual(), pod("away", age=299)], {}),
        (HoldReason.TOO_YOUNG, [virtual(), pod("away", age=None)], {}),
        (HoldReason.OWNER_BACKOFF, [virtual(), pod("away")], {"failures": {"rs-web": Failures(count=1, last=NOW)}}),
        (HoldReason.AT_FLOOR, [virtual(), pod("away")], {}),
        (HoldReason.NO_HOME_FIT, [virtual(), pod("away", gpus=9), *serving(1)], {}),
        (HoldReason.FIT_UNKNOWN, [virtual(), pod("away", schedulerName="other"), *serving(1)], {}),
    ],
)
def test_every_reason_to_stay(reason: HoldReason, objects: list[Any], more: dict[str, Any]) -> None:
    """The rule that speaks first names itself."""
    plan = plan_of(snapshot(home(), *objects, **more))
    assert only_hold(plan).reason is reason


EXTERNAL = {"key": "overspill.dev/external", "operator": "Exists"}


def node_affinity(operator: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": VIRTUAL_LABEL, "operator": operator}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    "spec",
    [{}, {"nodeSelector": {VIRTUAL_LABEL: "true"}}, {"affinity": node_affinity("Almost")}],
    ids=["tolerated", "selected", "not to be judged"],
)
def test_the_open_gate_of_another_virtual_node_holds_who_could_pass_it(spec: dict[str, Any]) -> None:
    """Its own is closed, but the successor could spill through the other one, or nobody can tell; which, is told."""
    away = pod("away", tolerations=[EXTERNAL], **spec)
    hold = only_hold(plan_of(snapshot(home(), virtual(), virtual("virtual-2", closed=False), away, *serving(1))))
    assert hold.reason is HoldReason.GATE_OPEN
    assert "virtual-2" in hold.detail


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tolerations": [EXTERNAL], "nodeSelector": {"pool": "one"}},
        {"tolerations": [EXTERNAL], "affinity": node_affinity("DoesNotExist")},
    ],
    ids=["not tolerated", "not selected", "not wanted"],
)
def test_a_gate_that_the_successor_cannot_pass_holds_nobody(spec: dict[str, Any]) -> None:
    """Tolerations, selector and affinity keep it off the other virtual node."""
    at_home = home()
    labelled = msgspec.structs.replace(at_home.metadata, labels={"pool": "one"})
    at_home = msgspec.structs.replace(at_home, metadata=labelled)
    away = pod("away", **spec)
    state = snapshot(at_home, virtual(), virtual("virtual-2", closed=False), away, *serving(1))
    assert returned(plan_of(state)) == ["away"]


def test_exactly_old_enough_and_exactly_settled_pass() -> None:
    """The limits themselves are enough."""
    state = snapshot(home(), virtual(), pod("away", age=300), *serving(1), closed_for=60)
    assert returned(plan_of(state)) == ["away"]


def test_a_pod_that_does_not_run_returns_first_at_any_age_and_costs_no_replica() -> None:
    """No stock at the provider: it waits for an instance and comes home as soon as there is room."""
    waiting = pod("no-stock", phase="Pending", age=1, owner="solo")
    state = snapshot(
        home(gpus=1),
        virtual(),
        pod("old", age=9999),
        *serving(2),
        waiting,
        replica_set(),
        replica_set("solo", replicas=1),
    )
    plan = plan_of(state)
    assert returned(plan) == ["no-stock"]
    assert not plan.returns[0].is_running
    assert [hold.reason for hold in plan.holds] == [HoldReason.NO_HOME_FIT]


def test_order_is_priority_then_longest_away_then_more_gpus() -> None:
    """A fixed total order, whatever the order of the list."""
    away = [
        pod("young", owner="a", age=400),
        pod("old", owner="b", age=800),
        pod("important", owner="c", age=400, priority=10),
        pod("old-and-big", owner="d", age=800, gpus=2),
    ]
    owners = [replica_set(name, replicas=2) for name in "abcd"]
    rest = [s for name in "abcd" for s in serving(1, name=name)]
    expected = ["important", "old-and-big", "old", "young"]
    assert returned(plan_of(snapshot(home(), virtual(), *away, *owners, *rest))) == expected
    assert returned(plan_of(snapshot(home(), virtual(), *reversed(away), *owners, *rest))) == expected


def test_one_place_is_given_once() -> None:
    """Two candidates, room for one: one return."""
    owners = [replica_set("a", replicas=2), replica_set("b", replicas=2)]
    state = snapshot(
        home(gpus=1), virtual(), pod("one", owner="a"), pod("two", owner="b"), *owners, *serving(1, name="a"), *serving(1, name="b")
    )  # fmt: skip
    plan = plan_of(state)
    assert len(plan.returns) == 1
    assert only_reason(plan) is HoldReason.NO_HOME_FIT


def only_reason(plan: Plan) -> HoldReason:
    (hold,) = plan.holds
    return hold.reason


def test_the_book_holds_room_for_returns_under_way() -> None:
    """An evicted pod's place is not given to another while its successor is on the way."""
    gone = open_return("gone", owner="other", evicted_at=NOW)
    state = snapshot(home(gpus=1), virtual(), pod("away"), *serving(1), open_returns=(gone,))
    assert only_hold(plan_of(state)).reason is HoldReason.NO_HOME_FIT


def test_a_successor_that_is_bound_at_home_is_counted_once() -> None:
    """Its room is taken by itself, no longer by the book: the second GPU is free for the next."""
    gone = open_return("gone", owner="other", evicted_at=NOW)
    heir = pod("heir", owner="other", node="home-1", age=5)
    owners = [replica_set(), replica_set("other")]
    state = snapshot(home(gpus=2), virtual(), pod("away"), heir, *serving(1), *owners, open_returns=(gone,))
    assert returned(plan_of(state)) == ["away"]


def test_a_pending_successor_is_no_stranger_in_the_queue() -> None:
    """It waits for the very room that is booked for it, and does not block others as well."""
    gone = open_return("gone", owner="other", evicted_at=NOW)
    heir = pod("heir", owner="other", node="", phase="Pending", age=5)
    owners = [replica_set(), replica_set("other")]
    state = snapshot(home(gpus=2), virtual(), pod("away"), heir, *serving(1), *owners, open_returns=(gone,))
    assert returned(plan_of(state)) == ["away"]


def test_waiting_pods_of_equal_priority_come_first_and_lower_ones_do_not() -> None:
    """The room they need is theirs; a pod of lower priority may wait."""
    waiting = pod("waiting", node="", phase="Pending", owner=None, spillable=False, priority=5)
    away = pod("away", priority=5)
    plan = plan_of(snapshot(home(gpus=1), virtual(), away, waiting, *serving(1)))
    assert only_reason(plan) is HoldReason.WAITING_POD_FIRST
    lower = pod("waiting", node="", phase="Pending", owner=None, spillable=False, priority=4)
    assert returned(plan_of(snapshot(home(gpus=1), virtual(), away, lower, *serving(1)))) == ["away"]


def test_gated_pods_do_not_wait_for_room() -> None:
    """The scheduler does not look at them yet."""
    gated = pod("gated", node="", phase="Pending", owner=None, schedulingGates=[{"name": "overspill.dev/admission"}])
    assert returned(plan_of(snapshot(home(gpus=1), virtual(), pod("away"), gated, *serving(1)))) == ["away"]


def test_a_stuck_pod_keeps_the_node_that_is_nearest_to_having_room() -> None:
    """Eight GPUs are waited for: the node with six free is not nibbled at, the one with two free may be."""
    stuck = pod("stuck", node="", phase="Pending", owner=None, spillable=False, gpus=8)
    busy = [pod("busy-1", node="home-1", owner=None, gpus=2), pod("busy-2", node="home-2", owner=None, gpus=6)]
    state = snapshot(home("home-1"), home("home-2"), virtual(), pod("away"), stuck, *busy, *serving(1))
    assert [one.home_node for one in plan_of(state).returns] == ["home-2"]


def test_a_waiting_pod_that_cannot_be_judged_holds_everybody_behind_it() -> None:
    """Unknown is never read as harmless."""
    odd = pod("odd", node="", phase="Pending", owner=None, spillable=False, schedulerName="other")
    hold = only_hold(plan_of(snapshot(home(), virtual(), pod("away"), odd, *serving(1))))
    assert hold.reason is HoldReason.WAITING_POD_FIRST
    assert "team/odd" in hold.detail


def test_floor_counts_ready_pods_less_those_that_leave() -> None:
    """Three ready, floor two, one leaving already: nobody else goes."""
    floor = replica_set(annotations={"overspill.dev/floor": "2"})
    state = snapshot(home(), virtual(), pod("a"), pod("b"), *serving(1), floor, open_returns=(open_return("a"),))
    plan = plan_of(state, rules(max_in_flight_per_owner=2))
    hold = only_hold(plan)
    assert (hold.reason, hold.needed, hold.available) == (HoldReason.AT_FLOOR, 3, 2)


def test_floor_is_counted_down_inside_one_plan() -> None:
    """Four ready, floor two: two leave, not three."""
    floor = replica_set(replicas=4, annotations={"overspill.dev/floor": "2"})
    state = snapshot(home(), virtual(), pod("a"), pod("b"), pod("c"), *serving(1), floor)
    plan = plan_of(state, rules(max_in_flight_per_owner=9))
    assert returned(plan) == ["a", "b"]
    assert only_reason(plan) is HoldReason.AT_FLOOR


def test_pods_of_one_owner_leave_one_after_the_other() -> None:
    """In flight per owner, also within one plan."""
    plan = plan_of(snapshot(home(), virtual(), pod("a"), pod("b"), *serving(1)))
    assert returned(plan) == ["a"]
    assert only_reason(plan) is HoldReason.OWNER_IN_FLIGHT


def test_an_owner_that_shrinks_makes_no_successor() -> None:
    """More pods than wanted: an eviction now would only be lost."""
    plan = plan_of(snapshot(home(), virtual(), pod("away"), *serving(2), replica_set(replicas=2)))
    hold = only_hold(plan)
    assert hold.reason is HoldReason.OWNER_IN_FLIGHT
    assert "wants 2 pods and has 3" in hold.detail


def test_limits_per_cycle_and_in_flight() -> None:
    """The rest waits its turn."""
    names = [f"o{i}" for i in range(4)]
    owners = [replica_set(name, replicas=2) for name in names]
    state = snapshot(
        home(), virtual(), *owners, *[pod(f"p{n}", owner=n) for n in names], *[s for n in names for s in serving(1, name=n)]
    )  # fmt: skip
    plan = plan_of(state, rules(max_per_cycle=3))
    assert len(plan.returns) == 3
    assert only_reason(plan) is HoldReason.CYCLE_LIMIT
    assert len(plan_of(state, rules(max_in_flight=2)).returns) == 2
    assert len(plan_of(state, slots=1).returns) == 1
    assert plan_of(state, rules(max_per_cycle=0)).returns == ()


def test_a_refusal_by_a_budget_is_not_repeated_at_once() -> None:
    """The numbers of the budget are in the reason; after the wait the pod is asked for again."""
    objects = [home(), virtual(), pod("away"), *serving(1)]
    late = refusal("away", RefusalReason.PDB, seconds_ago=29, pdb="team/web", disruptions_allowed=0)
    hold = only_hold(plan_of(snapshot(*objects, refusals={"p-away": late})))
    assert (hold.reason, hold.detail, hold.needed, hold.available) == (HoldReason.PDB, "team/web", 1, 0)
    old = refusal("away", RefusalReason.PDB, seconds_ago=30)
    assert returned(plan_of(snapshot(*objects, refusals={"p-away": old}))) == ["away"]


def test_a_budget_that_refused_one_replica_holds_its_siblings() -> None:
    """They would be refused too; other owners and pods that do not run are asked about."""
    owners = [replica_set(replicas=4), replica_set("other", replicas=2)]
    away = [pod("refused"), pod("sibling"), pod("stranger", owner="other"), pod("no-instance", phase="Pending")]
    late = {"p-refused": refusal("refused", RefusalReason.PDB, seconds_ago=1, pdb="web")}
    state = snapshot(home(), virtual(), *away, *owners, *serving(1), *serving(1, name="other"), refusals=late)
    plan = plan_of(state, rules(max_in_flight_per_owner=9))
    assert returned(plan) == ["no-instance", "stranger"]
    assert {hold.reason for hold in plan.holds} == {HoldReason.PDB}


def test_throttling_and_observing_hold_no_single_pod() -> None:
    """They are about the loop, not about the pod."""
    objects = [home(), virtual(), pod("away"), *serving(1)]
    for reason in (RefusalReason.THROTTLED, RefusalReason.OBSERVING):
        refusals = {"p-away": refusal("away", reason, seconds_ago=0)}
        assert returned(plan_of(snapshot(*objects, refusals=refusals))) == ["away"]


def test_backoff_doubles_with_every_failure() -> None:
    """600 s, 1200 s, …, at most an hour."""
    objects = [home(), virtual(), pod("away"), *serving(1)]
    for count, seconds in [(1, 600), (2, 1200), (3, 2400), (9, 3600), (400, 3600)]:
        early = Failures(count=count, last=NOW - timedelta(seconds=seconds - 1))
        late = Failures(count=count, last=NOW - timedelta(seconds=seconds))
        assert only_hold(plan_of(snapshot(*objects, failures={"rs-web": early}))).needed == seconds
        assert returned(plan_of(snapshot(*objects, failures={"rs-web": late}))) == ["away"]


def test_quota_must_have_headroom_for_the_successor() -> None:
    """While the old pod ends, both count."""
    objects = [home(), virtual(), pod("away", gpus=2), *serving(1)]
    full = quota(hard={f"requests.{GPU}": "4"}, used={f"requests.{GPU}": "3"})
    hold = only_hold(plan_of(snapshot(*objects, full)))
    assert (hold.reason, hold.needed, hold.available) == (HoldReason.QUOTA, 2, 1)
    room = quota(hard={f"requests.{GPU}": "5", "pods": "9"}, used={f"requests.{GPU}": "3", "pods": "2"})
    assert returned(plan_of(snapshot(*objects, room))) == ["away"]


def test_quota_is_counted_down_inside_one_plan() -> None:
    """Room for one more pod: one return, not two."""
    owners = [replica_set("a", replicas=2), replica_set("b", replicas=2)]
    tight = quota(hard={"pods": "5"}, used={"pods": "4"})
    state = snapshot(
        home(), virtual(), pod("one", owner="a"), pod("two", owner="b"), *owners, *serving(1, name="a"), *serving(1, name="b"), tight
    )  # fmt: skip
    plan = plan_of(state)
    assert len(plan.returns) == 1
    assert only_reason(plan) is HoldReason.QUOTA


def test_uncountable_home_is_unknown_not_empty() -> None:
    """A node whose numbers cannot be read: no place is given anywhere."""
    broken = msgspec.structs.replace(home("home-2"), status=msgspec.structs.replace(home().status, allocatable={GPU: "many"}))  # fmt: skip
    hold = only_hold(plan_of(snapshot(home(), broken, virtual(), pod("away"), *serving(1))))
    assert hold.reason is HoldReason.FIT_UNKNOWN


def test_cordoned_and_tainted_homes_are_no_targets() -> None:
    """Only room that the scheduler would use counts."""
    cordoned = home("home-1", unschedulable=True)
    tainted = home("home-2", taints=[{"key": "maintenance", "effect": "NoExecute"}])
    plan = plan_of(snapshot(cordoned, tainted, virtual(), pod("away"), *serving(1)))
    assert only_reason(plan) is HoldReason.NO_HOME_FIT


def test_every_answer_is_for_a_different_pod() -> None:
    """Each spilled pod has exactly one answer."""
    plan = plan_of(snapshot(home(), virtual(), pod("a"), pod("b"), pod("c", phase="Pending"), *serving(1)))
    answers: list[Return | Hold] = [*plan.returns, *plan.holds]
    assert sorted(one.pod.metadata.name for one in answers) == ["a", "b", "c"]


def test_a_plan_made_again_counts_what_was_begun_once() -> None:
    """Two pods, room for two, the first is intended: the second still returns; without its room it stays and says why.

    The first one, asked about again, is leaving already.
    """
    first, second = pod("a", owner="a"), pod("b", owner="b")
    owners = [replica_set("a", replicas=2), replica_set("b", replicas=2)]
    rest = [virtual(), first, second, *owners, *serving(1, name="a"), *serving(1, name="b")]
    intended = msgspec.structs.replace(open_return("a", owner="a"), siblings=frozenset({"p-a-home-0"}))
    begun = {"open_returns": (intended,)}
    again = plan_of(snapshot(home(gpus=2), *rest, **begun))
    answer = again.about(second)
    assert isinstance(answer, Return)
    assert (answer.home_node, answer.home_free_gpus) == ("home-1", 1)
    assert isinstance(gone := again.about(first), Hold)
    assert (gone.reason, gone.detail) == (HoldReason.UNKNOWN, "it is gone or leaving already")
    filler = pod("filler", node="home-1", owner=None, spillable=False)
    assert isinstance(short := plan_of(snapshot(home(gpus=2), *rest, filler, **begun)).about(second), Hold)
    assert short.reason is HoldReason.NO_HOME_FIT
