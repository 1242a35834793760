"""Numbers across streams, and what the fold makes of them."""

from msgspec.structs import replace

from overspill_decider.numbering import Numbering
from overspill_decider.policy import active_drifts
from overspill_decider.state import State, apply
from overspill_events.catalog import DriftCleared, DriftDetected, GateDecided
from overspill_events.reasons import GateReason, Verdict
from tests.unit.overspill_decider.past import RULES, Past


def test_one_stream_keeps_its_numbers():
    """What was acknowledged is ahead of what following has handed over."""
    numbering = Numbering()
    assert [numbering.heard(10), numbering.of(14), numbering.heard(12), numbering.heard(14)] == [10, 14, 12, 14]


def test_a_stream_made_anew_goes_on_beyond_every_number_before():
    numbering = Numbering()
    numbering.heard(100)
    numbering.of(107)
    assert [numbering.heard(1), numbering.of(3), numbering.heard(2), numbering.heard(3)] == [108, 110, 109, 110]
    assert numbering.heard(1) == 111


def test_what_a_new_stream_says_counts():
    """A drift raised at 100,000 is cleared at 7 of the next stream, and its decisions replace the old one."""
    numbering, state = Numbering(), State()
    decision = GateDecided(
        node="v", verdict=Verdict.OPEN, reason=GateReason.DRIFT, average=20, low_mark=1, high_mark=8,
        window_seconds=60, samples=6,
    )  # fmt: skip
    past = (
        Past()
        .tell(decision, 0)
        .tell(DriftDetected(node="v", kind="stuck-pods"), 1)
        .tell(DriftCleared(node="v", kind="stuck-pods"), 2)
        .tell(replace(decision, verdict=Verdict.CLOSED, reason=GateReason.HOME_HAS_ROOM), 3)
    )
    active = []
    for (event, envelope), sequence in zip(past.history, (99_999, 100_000, 7, 8), strict=True):
        numbered = replace(envelope, stream_sequence=numbering.heard(sequence))
        state = apply(state, event, numbered, pool="default", rules=RULES)
        active.append(list(active_drifts(state, "v")))
    assert active == [[], ["stuck-pods"], [], []]
    assert state.gate("v").decided.reason is GateReason.HOME_HAS_ROOM
