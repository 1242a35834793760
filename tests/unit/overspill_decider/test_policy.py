"""The gate's decisions, one rule at a time."""

import pytest

from overspill_decider.policy import decide, event_of, judge_drift, source_of
from overspill_decider.rules import Preference
from overspill_events.catalog import DriftCleared, DriftDetected, GateClosed, GateDecided, GateOpened
from overspill_events.reasons import GateReason, Source, UnknownCause, Verdict
from tests.unit.overspill_decider.past import CLOSED, OPEN, Past, at, rules

FULL, ROOM = 0.0, 20.0


def verdict(past, second, gate=CLOSED):
    decision = decide(gate, past.state, past.rules, at(second))
    return decision.verdict, decision.reason


def full_home(**changes):
    """Home is full from 0 to 100 s; the average has been low since 50 s. A provider sells."""
    return Past(rules(**changes)).provider(0).samples(0, 100, FULL)


def test_a_full_home_opens_the_gate_after_the_hold():
    past = Past().provider(0).samples(0, 70, FULL)
    assert verdict(past, 71) == (Verdict.CLOSED, GateReason.HOLDING_LOW)
    assert verdict(past.sample(80, FULL), 80) == (Verdict.OPEN, GateReason.HOME_FULL)
    assert verdict(past, 80, OPEN) == (Verdict.OPEN, GateReason.ALREADY)


def test_a_home_with_room_closes_the_gate_after_its_own_hold():
    past = Past().provider(0).samples(0, 100, ROOM)
    assert verdict(past, 109, OPEN) == (Verdict.OPEN, GateReason.HOLDING_HIGH)
    assert verdict(past.sample(110, ROOM), 110, OPEN) == (Verdict.CLOSED, GateReason.HOME_HAS_ROOM)
    assert verdict(past, 110, CLOSED) == (Verdict.CLOSED, GateReason.ALREADY)


def test_the_gate_does_not_close_before_pods_that_fit_no_home_node_are_placed():
    past = Past().provider(0).samples(0, 200, ROOM, stuck=1)
    assert verdict(past, 200, OPEN) == (Verdict.OPEN, GateReason.HOLDING_HIGH)
    assert verdict(past.sample(210, ROOM), 210, OPEN) == (Verdict.CLOSED, GateReason.HOME_HAS_ROOM)


@pytest.mark.parametrize("gate", [OPEN, CLOSED])
def test_between_the_marks_nothing_changes(gate):
    past = Past().provider(0).samples(0, 200, 5.0)
    assert verdict(past, 200, gate) == (Verdict.OPEN if gate.is_open else Verdict.CLOSED, GateReason.BETWEEN_MARKS)


def test_the_marks_themselves_count_as_beyond():
    assert verdict(Past().provider(0).samples(0, 100, 1.0), 100)[1] is GateReason.HOME_FULL
    assert verdict(Past().provider(0).samples(0, 110, 8.0), 110, OPEN)[1] is GateReason.HOME_HAS_ROOM


@pytest.mark.parametrize("gate", [OPEN, CLOSED])
def test_without_a_sample_the_gate_stays(gate):
    assert verdict(Past().provider(0), 10, gate) == (
        Verdict.OPEN if gate.is_open else Verdict.CLOSED,
        GateReason.SAMPLES_UNKNOWN,
    )


def test_stale_samples_hold():
    assert verdict(full_home(), 125) == (Verdict.OPEN, GateReason.HOME_FULL)
    assert verdict(full_home(), 126) == (Verdict.CLOSED, GateReason.SAMPLES_STALE)


def test_a_sample_is_stale_by_the_time_since_it_was_heard_too():
    """The decider's clock stands still or is behind: by the sample's time it would be fresh much longer."""
    past = full_home()
    heard = {silence: decide(CLOSED, past.state, past.rules, at(90), silence=silence) for silence in (25, 26)}
    assert heard[25].reason is GateReason.HOME_FULL
    assert (heard[26].verdict, heard[26].reason) == (Verdict.CLOSED, GateReason.SAMPLES_STALE)
    stuck = Past().provider(0).samples(0, 60, ROOM, stuck=1)
    assert judge_drift(CLOSED, stuck.state, stuck.rules, at(60), silence=26) == ()


def test_a_sample_that_is_far_ahead_is_not_fresh():
    assert verdict(full_home(), 75) == (Verdict.CLOSED, GateReason.HOLDING_LOW)
    assert verdict(full_home(), 74) == (Verdict.CLOSED, GateReason.SAMPLES_STALE)
    assert "ahead of the decider's clock" in decide(CLOSED, full_home().state, rules(), at(74)).detail
    stuck = Past().provider(0).samples(0, 100, ROOM, stuck=1)
    assert drift(stuck, 74) == []


@pytest.mark.parametrize(("free", "gate"), [(FULL, CLOSED), (ROOM, OPEN)], ids=["opening", "closing"])
def test_the_first_sample_after_a_silence_flips_nothing(free, gate):
    past = Past(rules(window=30, stale_after=60)).samples(0, 50, free, every=5).provider(3600).sample(3600, free)
    assert verdict(past, 3600, gate)[1] is GateReason.WINDOW_NOT_FULL


def test_an_unknown_sample_holds_and_is_not_zero():
    past = full_home().sample(110, UnknownCause.NOT_SYNCED)
    assert verdict(past, 110) == (Verdict.CLOSED, GateReason.SAMPLES_UNKNOWN)
    unknown = Past().provider(0).samples(0, 300, UnknownCause.NOT_SYNCED)
    assert verdict(unknown, 300) == (Verdict.CLOSED, GateReason.SAMPLES_UNKNOWN)
    assert verdict(unknown, 300, OPEN) == (Verdict.OPEN, GateReason.SAMPLES_UNKNOWN)


def test_a_short_past_holds():
    assert verdict(Past().provider(0).samples(0, 40, FULL), 40) == (Verdict.CLOSED, GateReason.WINDOW_NOT_FULL)


def test_the_query_decides_when_there_is_one():
    past = Past(rules(drift_tolerance=100)).provider(0).samples(0, 100, ROOM, FULL)
    assert source_of(past.state, past.rules) is Source.QUERY
    assert verdict(past, 100) == (Verdict.OPEN, GateReason.HOME_FULL)


def test_a_query_that_fails_is_not_replaced_by_the_cluster():
    past = Past().provider(0).samples(0, 100, FULL, UnknownCause.NO_SERIES)
    assert verdict(past, 100) == (Verdict.CLOSED, GateReason.SAMPLES_UNKNOWN)
    assert "no-series" in decide(CLOSED, past.state, past.rules, at(100)).detail


def test_the_operator_may_name_the_source():
    by_cluster = Past(rules(source=Preference.CLUSTER)).provider(0).samples(0, 100, FULL, UnknownCause.STALE)
    assert verdict(by_cluster, 100) == (Verdict.OPEN, GateReason.HOME_FULL)
    by_query = Past(rules(source=Preference.QUERY)).provider(0).samples(0, 100, FULL)
    assert verdict(by_query, 100) == (Verdict.CLOSED, GateReason.SAMPLES_UNKNOWN)


@pytest.mark.parametrize(
    "past",
    [
        Past().samples(0, 100, FULL),
        Past().provider(0, stock=0).samples(0, 100, FULL),
        Past().provider(0, stock=5, healthy=False).samples(0, 100, FULL),
        Past(rules(provider_stale_after=50)).provider(0).samples(0, 100, FULL),
    ],
    ids=["never-heard", "sold-out", "ill", "stale"],
)
def test_nothing_to_buy_keeps_the_gate_closed_but_closes_none(past):
    assert verdict(past, 100) == (Verdict.CLOSED, GateReason.NO_PROVIDER_STOCK)
    assert verdict(past, 100, OPEN) == (Verdict.OPEN, GateReason.ALREADY)


def test_a_provider_that_does_not_tell_its_stock_may_have_some():
    assert verdict(Past().provider(0, stock=None).samples(0, 100, FULL), 100)[0] is Verdict.OPEN


def test_one_provider_with_stock_is_enough():
    past = Past().provider(0, stock=0).provider(0, stock=3, name="other").samples(0, 100, FULL)
    assert verdict(past, 100)[0] is Verdict.OPEN


def test_an_unsettled_return_keeps_the_gate_closed_until_settled_or_expired():
    past = full_home().intended(90, until=120)
    assert verdict(past, 100) == (Verdict.CLOSED, GateReason.RETURN_UNSETTLED)
    assert verdict(past, 121)[0] is Verdict.OPEN
    assert verdict(past.settled(101), 101)[0] is Verdict.OPEN
    assert verdict(past.intended(102, until=200), 103)[1] is GateReason.RETURN_UNSETTLED


def drift(past, second, gate=CLOSED):
    """Judge, and put what comes out into the past, as the service does."""
    changes = judge_drift(gate, past.state, past.rules, at(second))
    for change in changes:
        past.tell(change, second)
    return [(type(change), change.kind) for change in changes]


def test_pods_stuck_behind_a_closed_gate_raise_drift_and_open_it():
    past = Past().provider(0).samples(0, 50, ROOM, ROOM, stuck=2)
    assert drift(past, 50) == []
    past.sample(60, ROOM, ROOM, stuck=2)
    assert drift(past, 60) == [(DriftDetected, "stuck-pods")]
    assert drift(past, 60) == []
    assert verdict(past, 60) == (Verdict.OPEN, GateReason.DRIFT)


def test_stuck_pods_behind_an_open_gate_are_no_drift_and_are_counted_anew_when_it_closes():
    past = Past().provider(0).samples(0, 100, ROOM, stuck=2)
    assert drift(past, 100, OPEN) == []
    past.tell(GateClosed(node="v", reason=GateReason.HOME_HAS_ROOM), 100).samples(110, 150, ROOM, stuck=2)
    assert drift(past, 150) == []
    assert drift(past.sample(160, ROOM, stuck=2), 160) == [(DriftDetected, "stuck-pods")]


def test_drift_keeps_the_gate_open_until_it_has_been_gone_for_a_while():
    """Else the gate would close as soon as the pods are placed, and open for the next ones."""
    past = Past().provider(0).samples(0, 120, ROOM, stuck=1)
    drift(past, 120)
    past.tell(GateOpened(node="v", reason=GateReason.DRIFT), 121).samples(130, 180, ROOM, stuck=0)
    assert drift(past, 180, OPEN) == []
    assert verdict(past, 180, OPEN) == (Verdict.OPEN, GateReason.DRIFT)
    past.sample(190, ROOM, stuck=0)
    assert drift(past, 190, OPEN) == [(DriftCleared, "stuck-pods")]
    assert verdict(past, 190, OPEN) == (Verdict.CLOSED, GateReason.HOME_HAS_ROOM)


def test_a_lasting_disagreement_raises_drift_and_opens():
    past = Past().provider(0).samples(0, 100, 2.0, ROOM)
    assert drift(past, 100) == []
    past.samples(110, 110, 2.0, ROOM)
    assert drift(past, 110) == [(DriftDetected, "disagreement")]
    assert verdict(past, 110) == (Verdict.OPEN, GateReason.DRIFT)


def test_sources_that_agree_that_home_has_room_raise_the_alarm_but_do_not_open():
    past = Past().provider(0).samples(0, 110, ROOM, 50.0)
    assert drift(past, 110) == [(DriftDetected, "disagreement")]
    assert verdict(past, 110) == (Verdict.CLOSED, GateReason.ALREADY)


def test_drift_needs_stock_and_settled_returns_like_every_opening():
    past = Past().samples(0, 110, 2.0, ROOM)
    drift(past, 110)
    assert verdict(past, 110) == (Verdict.CLOSED, GateReason.NO_PROVIDER_STOCK)
    past.provider(110).intended(110, until=200)
    assert verdict(past, 110) == (Verdict.CLOSED, GateReason.RETURN_UNSETTLED)


def test_drift_may_be_an_alarm_only():
    past = Past(rules(drift_opens=False)).provider(0).samples(0, 110, 2.0, ROOM)
    assert drift(past, 110) == [(DriftDetected, "disagreement")]
    assert verdict(past, 110) == (Verdict.CLOSED, GateReason.ALREADY)


def test_raised_drift_does_not_open_on_what_is_not_seen_now():
    past = Past().samples(0, 110, 2.0, ROOM)
    drift(past, 110)
    past.provider(111).sample(120, UnknownCause.NOT_SYNCED, UnknownCause.UNREACHABLE)
    assert verdict(past, 120) == (Verdict.CLOSED, GateReason.SAMPLES_UNKNOWN)
    assert verdict(past, 200) == (Verdict.CLOSED, GateReason.SAMPLES_STALE)


def test_a_gap_in_the_samples_does_not_count_as_lasting():
    past = Past().provider(0).sample(0, ROOM, stuck=1).sample(500, ROOM, stuck=1)
    assert drift(past, 500) == []


def test_drift_is_not_judged_on_stale_samples():
    past = Past().provider(0).samples(0, 60, ROOM, stuck=1)
    assert drift(past, 100) == []


def test_the_event_carries_the_numbers():
    past = full_home().intended(60, until=500).settled(61)
    decision = decide(CLOSED, past.state, past.rules, at(100))
    event = event_of(CLOSED, decision, past.state, past.rules, at(100))
    assert event == GateDecided(
        node="v",
        verdict=Verdict.OPEN,
        reason=GateReason.HOME_FULL,
        average=0.0,
        low_mark=1,
        high_mark=8,
        window_seconds=60,
        samples=6,
        source=Source.CLUSTER,
        held_since=at(50),
        hold_seconds=30,
        cluster_average=0.0,
        unsettled_returns=0,
        provider_stock=5,
    )
