"""The average of a window."""

import pytest

from overspill_decider.window import Track, extend
from tests.unit.overspill_decider.past import at, rules


def track(*samples, the_rules=None):
    result = Track()
    for second, free in samples:
        result = extend(result, at=at(second), free=free, rules=the_rules or rules())
    return result


def test_the_average_is_unknown_until_enough_of_the_window_is_spoken_for():
    assert track((0, 5)).average is None
    assert track(*((s, 5) for s in range(0, 41, 10))).average is None
    assert track(*((s, 5) for s in range(0, 51, 10))).average == 5


def test_samples_weigh_by_the_time_they_speak_for():
    """Three quick samples of 8 weigh no more than the ten seconds they cover."""
    dense = [(0, 2), (20, 2), (40, 2), (50, 2), (52, 8), (55, 8), (60, 8)]
    assert track(*dense).average == pytest.approx((2 * 50 + 8 * 10) / 60)


def test_after_a_gap_the_past_begins_anew():
    """22 s without a sample are spoken for by the next one; after 40 s nothing is known of the window."""
    before = [(s, 5) for s in range(0, 61, 10)]
    assert track(*before, (82, 9)).average == pytest.approx((5 * 38 + 9 * 22) / 60)
    gap = track(*before, (100, 9))
    assert (gap.average, gap.known) == (None, 1)
    again = track(*before, *((s, 9) for s in range(100, 161, 10)))
    assert again == track(*((s, 9) for s in range(100, 161, 10)))


@pytest.mark.parametrize("free", [1, 9])
def test_no_hold_survives_a_gap_though_one_sample_could_speak_for_the_whole_window(free):
    """A short window with patience for old samples: what was so before an hour of silence has not lasted since."""
    short = rules(window=30, stale_after=60)
    resumed = track(*((s, free) for s in range(0, 61, 5)), (3600, free), the_rules=short)
    assert (resumed.low_since, resumed.high_since) == (None, None)
    later = track(*((s, free) for s in range(0, 61, 5)), *((s, free) for s in range(3600, 3631, 5)), the_rules=short)
    assert (later.low_since or later.high_since) == at(3625)


def test_unknown_time_is_left_out_and_never_counted_as_zero():
    samples = [(s, None if s == 30 else 6) for s in range(0, 71, 10)]
    assert track(*samples).average == 6
    assert track(*((s, None) for s in range(0, 71, 10))).average is None


def test_the_past_leaves_the_window():
    assert track(*((s, 100) for s in range(0, 61, 10)), *((s, 0) for s in range(70, 121, 10))).average == 0


def test_since_when_it_is_beyond_a_mark():
    low = track(*((s, 1) for s in range(0, 81, 10)))
    assert (low.low_since, low.high_since) == (at(50), None)
    high = track(*((s, 9) for s in range(0, 81, 10)))
    assert (high.low_since, high.high_since) == (None, at(50))
    between = track(*((s, 1) for s in range(0, 81, 10)), (90, 30))
    assert (between.low_since, between.high_since) == (None, None)


def test_a_sample_twice_or_late_changes_nothing():
    once = track(*((s, 5) for s in range(0, 61, 10)))
    assert extend(once, at=at(60), free=100, rules=rules()) is once
    assert extend(once, at=at(30), free=100, rules=rules()) is once
