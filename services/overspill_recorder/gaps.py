"""Which numbers of a source are missing: the arithmetic behind the promise that no event is lost unseen.

Every process numbers its own events from 1 within its epoch, and the stream keeps a process's order. A number that
was skipped is therefore a lost event, unless an unacknowledged batch is redelivered after younger ones: then the gap
shrinks again. Pure; it must not know where numbers come from or where gaps are kept.
"""

from msgspec import Struct

FIRST_NUMBER = 1


class Gap(Struct, frozen=True, kw_only=True, order=True):
    """Numbers `first` to `last` of one source and epoch, both included, were never recorded."""

    first: int
    last: int

    @property
    def missing(self) -> int:
        """How many events are missing."""
        return self.last - self.first + 1


class Numbers(Struct, frozen=True, kw_only=True):
    """What is known of one source and epoch: the highest number recorded (0: none yet) and the gaps below it."""

    highest: int = 0
    gaps: tuple[Gap, ...] = ()

    def seen(self, sequence: int) -> "Numbers":
        """After `sequence` was recorded. A number seen before changes nothing."""
        if sequence > self.highest:
            skipped = (Gap(first=self.highest + 1, last=sequence - 1),) if sequence > self.highest + 1 else ()
            return Numbers(highest=sequence, gaps=self.gaps + skipped)
        return Numbers(highest=self.highest, gaps=tuple(part for gap in self.gaps for part in _without(gap, sequence)))


def starting_at(sequence: int) -> Numbers:
    """A source whose numbers up to `sequence` may have left the stream before the ledger began: none counts as lost."""
    return Numbers(highest=sequence)


def _without(gap: Gap, sequence: int) -> tuple[Gap, ...]:
    if not gap.first <= sequence <= gap.last:
        return (gap,)
    before = (Gap(first=gap.first, last=sequence - 1),) if gap.first < sequence else ()
    after = (Gap(first=sequence + 1, last=gap.last),) if sequence < gap.last else ()
    return before + after
