"""How a moment is written for people: everywhere the same, and never without its zone."""

from datetime import UTC, datetime


def stamp(moment: datetime, *, to: str = "seconds") -> str:
    """RFC 3339 in UTC, such as 2030-01-31T18:00:00Z: `--since` and Kubernetes accept it, too. `to` milliseconds where
    the order within a second matters.
    """
    try:
        return moment.astimezone(UTC).isoformat(timespec=to).replace("+00:00", "Z")
    except OverflowError:  # somebody's "for ever": in UTC it would lie outside the years 1 to 9999
        return moment.isoformat(timespec=to)
