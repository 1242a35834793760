"""The arithmetic of the figures: what is printed is what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import milliseconds, percentile, ratios
from tests.bench.machine import busy_share, with_machine

SECONDS = st.lists(st.floats(0, 1000), min_size=1, max_size=300)


def test_a_hundred_values_have_the_percentiles_that_everybody_expects():
    values = [number / 1000 for number in range(100, 0, -1)]
    assert milliseconds(values) == {"p50_ms": 51.0, "p99_ms": 100.0, "max_ms": 100.0}


def test_one_value_is_each_of_them():
    assert milliseconds([0.25]) == {"p50_ms": 250.0, "p99_ms": 250.0, "max_ms": 250.0}


def test_nothing_measured_is_no_figure():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(SECONDS, st.floats(0, 1))
def test_a_percentile_is_a_measured_value_that_enough_others_do_not_exceed(values, share):
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


@given(SECONDS)
def test_percentiles_are_in_order(values):
    figures = list(milliseconds(values).values())
    assert figures == sorted(figures)


def test_ratios_are_of_the_same_figures():
    assert ratios({"p50_ms": 30.0, "p99_ms": 80.0}, {"p99_ms": 40.0, "p50_ms": 10.0}) == {"p50_ms": 3.0, "p99_ms": 2.0}


def test_a_ratio_to_nothing_is_unknown():
    assert ratios({"p50_ms": 30.0}, {"p50_ms": 0.0}) == {"p50_ms": None}


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [((100, 200), (150, 300), 0.5), ((100, 200), (100, 300), 1.0), ((100, 200), (200, 300), 0.0)],
)
def test_the_machine_was_busy_when_it_was_not_idle(before, after, share):
    assert busy_share(before, after) == share


@pytest.mark.parametrize(("before", "after"), [(None, (1, 2)), ((1, 2), None), ((1, 2), (1, 2))])
def test_without_two_different_readings_the_share_is_unknown(before, after):
    assert busy_share(before, after) is None


async def test_of_a_process_that_is_not_there_everything_is_unknown():
    async def work():
        return {"pods": 1}

    figures = await with_machine(work(), pid=2**22 + 1)
    assert figures["pods"] == 1
    assert figures["process_cpu_s"] is None
    assert figures["process_rss_mib"] is None
