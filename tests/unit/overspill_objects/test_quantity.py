"""Quantities are exact, and nonsense is refused by name."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_objects.quantity import parse_quantity

FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100m", "0.1"),
        ("1.5Gi", "1610612736"),
        ("8e9", "8000000000"),
        ("12E2", "1200"),
        ("1E", "1000000000000000000"),
        ("-2", "-2"),
        ("+.5", "0.5"),
        ("5.", "5"),
        ("250u", "0.00025"),
        ("3n", "0.000000003"),
        (4, "4"),
        (0.5, "0.5"),
    ],
)
def test_what_kubernetes_accepts(text: str | float, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@given(st.sampled_from(sorted(FACTORS)), st.data())
def test_whole_numbers_are_exact_under_every_suffix(suffix: str, data: st.DataObject) -> None:
    """Up to the largest quantity that an API server holds."""
    count = data.draw(st.integers(min_value=0, max_value=(2**63 - 1) // FACTORS[suffix]))
    assert parse_quantity(f"{count}{suffix}") == count * FACTORS[suffix]


@given(st.lists(st.integers(min_value=1, max_value=9999), min_size=1, max_size=50))
def test_a_sum_of_millis_is_not_rounded(millis: list[int]) -> None:
    assert sum((parse_quantity(f"{value}m") for value in millis), Decimal(0)) == Decimal(sum(millis)) / 1000


@pytest.mark.parametrize(
    "text", ["", " 1", "1 Gi", "1gi", "one", "1e", "e3", "1Gim", "0x10", "NaN", "Infinity", "1,5", True]
)
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)
