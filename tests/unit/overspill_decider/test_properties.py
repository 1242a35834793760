"""What holds for every past: unknown is never zero, marks are monotonic, nothing flaps, replay decides the same."""

from hypothesis import given
from hypothesis import strategies as st

from overspill_decider.policy import Gate, decide, event_of, judge_drift
from overspill_decider.state import State, apply
from overspill_decider.window import Track, extend
from overspill_events.catalog import GateClosed, GateOpened
from overspill_events.reasons import GateReason, UnknownCause, Verdict
from tests.unit.overspill_decider.past import RULES, Past, at

FREE = st.one_of(st.integers(0, 30).map(float), st.sampled_from([UnknownCause.STALE, UnknownCause.NO_SERIES]))
NUMBERS = st.integers(0, 30).map(float)


@st.composite
def pasts(draw, value=FREE):
    """Samples at irregular times, with and without a query, and a provider."""
    past, second = Past(), 0.0
    past.provider(0, stock=draw(st.sampled_from([None, 0, 3])))
    with_query = draw(st.booleans())
    for _ in range(draw(st.integers(1, 25))):
        second += draw(st.sampled_from([1.0, 5.0, 10.0, 10.0, 10.0, 40.0]))
        past.sample(second, draw(value), draw(value) if with_query else None, stuck=draw(st.integers(0, 1)))
    return past, second


gates = st.booleans().map(lambda is_open: Gate(node="v", uid="u", is_open=is_open))


def flips(decision, gate):
    return (decision.verdict is Verdict.OPEN) != gate.is_open


@given(pasts(), gates)
def test_a_flip_rests_on_a_known_average_beyond_its_mark(drawn, gate):
    past, second = drawn
    decision = decide(gate, past.state, RULES, at(second))
    if flips(decision, gate):
        track = past.state.query if past.state.query.points else past.state.cluster
        assert track.last.free is not None
        assert track.average is not None
        assert track.average <= RULES.low_mark if decision.verdict is Verdict.OPEN else track.average >= RULES.high_mark


@given(pasts(st.sampled_from([UnknownCause.STALE, UnknownCause.NOT_SYNCED, UnknownCause.NOT_A_NUMBER])), gates)
def test_the_unknown_alone_never_flips_a_gate(drawn, gate):
    past, second = drawn
    assert not flips(decide(gate, past.state, RULES, at(second)), gate)


@given(st.lists(st.tuples(st.sampled_from([1, 5, 10, 20]), st.one_of(st.none(), NUMBERS)), max_size=30))
def test_an_average_lies_between_the_known_values(samples):
    track, second, known = Track(), 0, []
    for step, free in samples:
        second += step
        track = extend(track, at=at(second), free=free, rules=RULES)
        known += [] if free is None else [free]
    if track.average is not None:
        assert min(known) - 1e-9 <= track.average <= max(known) + 1e-9


@given(st.lists(st.floats(0.001, 24), min_size=10, max_size=30), NUMBERS)
def test_samples_that_are_all_alike_have_exactly_that_average(steps, free):
    track, second = Track(), 0.0
    for step in steps:
        second += step
        track = extend(track, at=at(second), free=free, rules=RULES)
    assert track.average in {None, free}


@given(pasts(NUMBERS), st.integers(0, 10).map(float))
def test_marks_are_monotonic(drawn, more):
    """More free GPUs in every sample never open a gate that stays closed with less, nor keep one open that closes."""
    past, second = drawn
    richer = Past().provider(0)
    poorer = Past().provider(0)
    for event, envelope in past.history[1:]:
        seconds = (envelope.time - at(0)).total_seconds()
        cluster = event.readings[0].free
        poorer.sample(seconds, cluster)
        richer.sample(seconds, cluster + more)
    for is_open in (False, True):
        gate = Gate(node="v", uid="u", is_open=is_open)
        with_less, with_more = (decide(gate, p.state, RULES, at(second)).verdict for p in (poorer, richer))
        assert not (with_less is Verdict.CLOSED and with_more is Verdict.OPEN)


@given(NUMBERS, st.one_of(st.none(), NUMBERS), st.integers(0, 1), gates)
def test_without_outside_change_no_gate_flips_twice(cluster, query, stuck, gate):
    past, count = Past(), 0
    for second in range(0, 1200, 10):
        past.provider(second).sample(second, cluster, query, stuck=stuck)
        for change in judge_drift(gate, past.state, RULES, at(second)):
            past.tell(change, second)
        decision = decide(gate, past.state, RULES, at(second))
        past.tell(event_of(gate, decision, past.state, RULES, at(second)), second)
        if flips(decision, gate):
            count += 1
            gate = Gate(node="v", uid="u", is_open=not gate.is_open)
            result = GateOpened if gate.is_open else GateClosed
            past.tell(result(node="v", reason=decision.reason), second)
    assert count <= 1


@given(pasts(), gates, st.integers(0, 40))
def test_replaying_the_past_decides_the_same(drawn, gate, later):
    past, second = drawn
    again = State()
    for event, envelope in past.history:
        again = apply(again, event, envelope, pool="default", rules=RULES)
        again = apply(again, event, envelope, pool="default", rules=RULES)
    assert again == past.state
    now = at(second + later)
    assert decide(gate, again, RULES, now) == decide(gate, past.state, RULES, now)


@given(pasts(), gates)
def test_nothing_is_decided_on_samples_that_have_gone_stale(drawn, gate):
    past, second = drawn
    now = at(second + RULES.stale_after + 1)
    decision = decide(gate, past.state, RULES, now)
    assert (decision.reason, flips(decision, gate)) == (GateReason.SAMPLES_STALE, False)
    assert judge_drift(gate, past.state, RULES, now) == ()
