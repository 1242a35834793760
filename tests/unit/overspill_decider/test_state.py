"""The fold: idempotent, bounded, and honest about what the record lacks."""

from overspill_decider.policy import decide, is_news
from overspill_decider.state import State, apply, missing_result, with_result
from overspill_events.catalog import (
    CapacitySampled,
    DriftCleared,
    DriftDetected,
    GateClosed,
    GateDecided,
    GateOpened,
    ServiceStarted,
)
from overspill_events.reasons import GateReason, Verdict
from tests.unit.overspill_decider.past import CLOSED, RULES, Past, at


def decided(verdict, reason):
    return GateDecided(
        node="v", verdict=verdict, reason=reason, average=0.5, low_mark=1, high_mark=8, window_seconds=60, samples=6
    )


def missing(past, *, is_open):
    found = missing_result(past.state, "v", is_open=is_open)
    return None if found is None else (type(found[0]), found[0].reason, found[1].id if found[1] else None)


def test_replaying_everything_twice_gives_the_same_state():
    past = (
        Past().provider(0).samples(0, 100, 0.0, 20.0, stuck=1).intended(50, until=500).settled(60).intended(70, until=400, uid="p2")
        .tell(decided(Verdict.OPEN, GateReason.HOME_FULL), 100)
        .tell(GateOpened(node="v", reason=GateReason.HOME_FULL), 101)
        .tell(DriftDetected(node="v", kind="stuck-pods"), 102)
        .tell(DriftCleared(node="v", kind="stuck-pods"), 103)
    )  # fmt: skip
    again = past.state
    for event, envelope in past.history:
        again = apply(again, event, envelope, pool="default", rules=RULES)
    assert again == past.state


def test_other_pools_and_other_events_change_nothing():
    past = Past()
    past.tell(CapacitySampled(pool="other", resource="x", readings=()), 0)
    past.tell(ServiceStarted(service="x", version="1", mode="act"), 1)
    assert past.state == State()
    assert apply(State(), None, past.history[0][1], pool="default", rules=RULES) == State()


def test_returns_whose_time_is_over_leave_the_books():
    past = Past()
    for number in range(100):
        past.intended(number * 10, until=number * 10 + 15, uid=f"p{number}")
    assert len(past.state.returns) <= 2


def test_a_new_gate_is_closed_and_lacks_nothing():
    assert missing(Past(), is_open=False) is None


def test_a_crash_between_effect_and_result_is_completed_with_its_cause():
    past = Past().tell(decided(Verdict.OPEN, GateReason.HOME_FULL), 0)
    assert missing(past, is_open=True) == (GateOpened, GateReason.HOME_FULL, "e1")
    assert missing(past, is_open=False) is None
    past.tell(GateOpened(node="v", reason=GateReason.HOME_FULL), 1)
    assert missing(past, is_open=True) is None
    past.tell(decided(Verdict.CLOSED, GateReason.HOME_HAS_ROOM), 2)
    assert missing(past, is_open=False) == (GateClosed, GateReason.HOME_HAS_ROOM, "e3")


def test_a_change_by_hand_is_told_without_blaming_an_old_decision():
    past = (
        Past()
        .tell(decided(Verdict.OPEN, GateReason.HOME_FULL), 0)
        .tell(GateOpened(node="v", reason=GateReason.HOME_FULL), 1)
    )
    assert missing(past, is_open=False) == (GateClosed, GateReason.UNKNOWN, None)
    past.tell(GateClosed(node="v", reason=GateReason.UNKNOWN), 2)
    assert missing(past, is_open=True) == (GateOpened, GateReason.UNKNOWN, None)


def test_a_flip_is_decided_anew_once_its_decision_was_carried_out():
    past = Past().provider(0).samples(0, 100, 0.0)
    decision = decide(CLOSED, past.state, RULES, at(100))
    assert is_news(CLOSED, decision, past.state)
    past.tell(decided(Verdict.OPEN, GateReason.HOME_FULL), 100)
    assert not is_news(CLOSED, decision, past.state), "decided, not carried out yet"
    past.tell(GateOpened(node="v", reason=GateReason.HOME_FULL), 101)
    assert is_news(CLOSED, decision, past.state), "carried out, and yet closed: a new node, or somebody's hand"


def test_what_was_said_counts_until_the_stream_gives_it_back():
    past = Past().tell(decided(Verdict.OPEN, GateReason.HOME_FULL), 0)
    said = with_result(past.state, "v", is_open=True, at=at(1))
    assert missing_result(said, "v", is_open=True) is None
    past.state = said
    past.tell(GateOpened(node="v", reason=GateReason.HOME_FULL), 1)
    assert past.state.gate("v").result.sequence == 2
