"""An operator's order about a gate: read from annotations, obeyed until it expires, never guessed."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from overspill_decider.override import ANNOTATIONS, Malformed, Override, read_override
from overspill_decider.policy import decide
from overspill_decider.service import gate_of
from overspill_events.names import (
    GATE_ANNOTATION,
    GATE_BY_ANNOTATION,
    GATE_REASON_ANNOTATION,
    GATE_UNTIL_ANNOTATION,
    SWITCH_TAINT,
)
from overspill_events.reasons import GateReason, Verdict
from overspill_objects.core import Node
from tests.unit.overspill_decider.past import CLOSED, OPEN, Past, at

UNTIL = datetime(2030, 1, 1, 12, tzinfo=UTC)
BOTH = pytest.mark.parametrize("gate", [OPEN, CLOSED])


def ordered(gate, verdict, *, until=None, **more):
    return msgspec.structs.replace(gate, override=Override(verdict=verdict, until=until, **more))


def test_an_order_is_read_whole():
    read = read_override(
        {
            GATE_ANNOTATION: "closed",
            GATE_UNTIL_ANNOTATION: "2030-01-01T12:00:00Z",
            GATE_BY_ANNOTATION: "ada",
            GATE_REASON_ANNOTATION: "audit",
            "else": "x",
        }
    )
    assert read == Override(verdict=Verdict.CLOSED, until=UNTIL, by="ada", reason="audit")
    assert read_override({"else": "x"}) is None
    assert read_override({GATE_ANNOTATION: "open"}) == Override(verdict=Verdict.OPEN)


@pytest.mark.parametrize(
    ("annotations", "field", "accepted"),
    [
        ({GATE_ANNOTATION: "Open"}, GATE_ANNOTATION, "open, closed"),
        ({GATE_ANNOTATION: "unknown"}, GATE_ANNOTATION, "open, closed"),
        ({GATE_UNTIL_ANNOTATION: "2030-01-01T12:00:00Z"}, GATE_ANNOTATION, "open, closed"),
        ({GATE_ANNOTATION: "open", GATE_UNTIL_ANNOTATION: "tomorrow"}, GATE_UNTIL_ANNOTATION, "RFC 3339"),
        ({GATE_ANNOTATION: "open", GATE_UNTIL_ANNOTATION: "2030-01-01T12:00:00"}, GATE_UNTIL_ANNOTATION, "zone"),
    ],
)
def test_what_is_no_order_names_field_and_accepted_values(annotations, field, accepted):
    read = read_override(annotations)
    assert isinstance(read, Malformed)
    assert f"[{field}]" in read.problem
    assert accepted in read.problem


@BOTH
@pytest.mark.parametrize("verdict", [Verdict.OPEN, Verdict.CLOSED])
def test_an_order_decides_against_every_mark_and_without_samples(gate, verdict):
    for past in (Past(), Past().provider(0).samples(0, 200, 0.0), Past().provider(0).samples(0, 200, 20.0)):
        decision = decide(ordered(gate, verdict), past.state, past.rules, at(200))
        assert (decision.verdict, decision.reason) == (verdict, GateReason.BY_OPERATOR)


def test_an_order_to_open_says_that_there_is_nothing_to_buy():
    past = Past().samples(0, 10, 20.0)
    decision = decide(ordered(CLOSED, Verdict.OPEN, by="ada", reason="show"), past.state, past.rules, at(10))
    assert decision.verdict is Verdict.OPEN
    assert "by ada: show" in decision.detail
    assert "nothing to buy" in decision.detail
    closing = decide(ordered(OPEN, Verdict.CLOSED), past.state, past.rules, at(10))
    assert "nothing to buy" not in closing.detail


def test_an_expired_order_leaves_the_decision_to_the_marks():
    past = Past().provider(0).samples(0, 200, 5.0)
    gate = ordered(OPEN, Verdict.CLOSED, until=at(100))
    before, then = (
        decide(gate, past.state, past.rules, at(100) - timedelta(microseconds=1)),
        decide(gate, past.state, past.rules, at(200)),
    )
    assert before.reason is GateReason.BY_OPERATOR
    assert (then.verdict, then.reason) == (Verdict.OPEN, GateReason.BETWEEN_MARKS)


@BOTH
def test_a_paused_decider_moves_nothing_not_even_by_order(gate):
    past = Past().provider(0).samples(0, 200, 0.0)
    for one in (gate, ordered(gate, Verdict.OPEN), ordered(gate, Verdict.CLOSED)):
        decision = decide(one, past.state, past.rules, at(200), paused="paused by ada")
        assert (decision.verdict is Verdict.OPEN) == gate.is_open
        assert (decision.reason, decision.detail) == (GateReason.PAUSED, "paused by ada")


def test_a_malformed_order_is_told_beside_the_decision_by_the_marks():
    node = msgspec.convert(
        {
            "metadata": {"name": "v", "uid": "u", "annotations": {GATE_ANNOTATION: "ajar", "other": "1"}},
            "spec": {"taints": [{"key": SWITCH_TAINT, "effect": "NoSchedule"}]},
        },
        Node,
    )
    gate = gate_of(node)
    assert not gate.is_open
    assert gate.override is None
    assert gate.order == {GATE_ANNOTATION: "ajar"}
    assert set(gate.order) <= set(ANNOTATIONS)
    past = Past().provider(0).samples(0, 200, 5.0)
    decision = decide(gate, past.state, past.rules, at(200))
    assert decision.reason is GateReason.BETWEEN_MARKS
    assert "'ajar'; accepted: open, closed" in decision.detail
