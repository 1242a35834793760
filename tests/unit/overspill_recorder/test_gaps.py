"""Which numbers of a source are missing."""

from hypothesis import given
from hypothesis import strategies as st

from overspill_recorder.gaps import Gap, Numbers, starting_at


def missing(numbers: Numbers) -> set[int]:
    return {n for gap in numbers.gaps for n in range(gap.first, gap.last + 1)}


def fold(sequences: list[int], numbers: Numbers | None = None) -> Numbers:
    numbers = numbers or Numbers()
    for sequence in sequences:
        numbers = numbers.seen(sequence)
    return numbers


def test_numbers_without_a_hole_have_no_gap() -> None:
    """1, 2, 3: nothing is missing."""
    assert fold([1, 2, 3]) == Numbers(highest=3)


def test_a_skipped_number_is_a_gap() -> None:
    """1, 4: 2 and 3 are missing, two events."""
    numbers = fold([1, 4])
    assert numbers.gaps == (Gap(first=2, last=3),)
    assert numbers.gaps[0].missing == 2


def test_a_source_that_starts_above_one_lost_its_head() -> None:
    """The first number seen is 3: 1 and 2 are missing."""
    assert fold([3]).gaps == (Gap(first=1, last=2),)


def test_an_old_source_of_a_young_ledger_lost_nothing() -> None:
    """What was before the ledger began is not judged, what is skipped afterwards is."""
    assert missing(fold([8, 10], starting_at(8))) == {9}


@given(st.lists(st.integers(min_value=1, max_value=60), max_size=80))
def test_missing_is_what_was_never_seen_whatever_the_order(sequences: list[int]) -> None:
    """Redelivery and repetition in any order: the gaps are exactly the unseen numbers below the highest, disjoint."""
    numbers = fold(sequences)
    assert numbers.highest == max(sequences, default=0)
    assert missing(numbers) == set(range(1, numbers.highest + 1)) - set(sequences)
    assert sum(gap.missing for gap in numbers.gaps) == len(missing(numbers))
