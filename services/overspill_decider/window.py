"""Samples over time: the average of a window, and since when it has been beyond a mark.

A sample speaks for the time since the one before it, so that irregular sampling does not weigh wrong. After a gap of
more than `stale_after` seconds the past begins anew: nobody saw what was so meanwhile, and nothing was seen to last.
The average is known only when enough of the window is spoken for. Everything is evaluated at the times of samples, so
that the same samples always give the same history.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from overspill_decider.rules import Rules


class Point(Struct, frozen=True):
    """One reading: free GPUs, or None for unknown, standing for the time from `since` to `at`."""

    since: datetime
    at: datetime
    free: float | None


class Track(Struct, frozen=True, kw_only=True):
    """One source's past, as far as decisions need it."""

    points: tuple[Point, ...] = ()
    average: float | None = None
    low_since: datetime | None = None  # the average has been at or below the low mark since
    high_since: datetime | None = None

    @property
    def last(self) -> Point | None:
        return self.points[-1] if self.points else None

    @property
    def known(self) -> int:
        """Samples in the window that have a number."""
        return sum(point.free is not None for point in self.points)


def extend(track: Track, *, at: datetime, free: float | None, rules: Rules) -> Track:
    """The track with one more sample. A sample that is not younger than the last changes nothing."""
    last = track.last
    if last is not None and at <= last.at:
        return track
    if last is not None and at - last.at > seconds(rules.stale_after):
        track, last = Track(), None
    since = last.at if last is not None else at
    horizon = at - seconds(rules.window)
    kept = tuple(point for point in track.points if point.at > horizon)
    points = (*kept, Point(since, at, free))
    average = average_of(points, at=at, rules=rules)
    low = average is not None and average <= rules.low_mark
    high = average is not None and average >= rules.high_mark
    return replace(
        track,
        points=points,
        average=average,
        low_since=(track.low_since or at) if low else None,
        high_since=(track.high_since or at) if high else None,
    )


def average_of(points: Iterable[Point], *, at: datetime, rules: Rules) -> float | None:
    """Time-weighted average over the window that ends at `at`; None when too little of the window is spoken for."""
    start = at - seconds(rules.window)
    spoken = weighted = 0.0
    for point in points:
        if point.free is not None:
            weight = (point.at - max(point.since, start)).total_seconds()
            spoken += weight
            weighted += weight * point.free
    if spoken <= 0 or spoken < rules.min_coverage * rules.window:
        return None
    # Rounded, so that samples which all lie on a mark have an average which does, too.
    return round(weighted / spoken, 9)


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)
