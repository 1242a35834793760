"""How a moment is written for people: everywhere the same, and never without its zone."""

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC to the second, such as 2030-01-31T18:00:00Z: `--since` and Kubernetes accept it, too."""
    try:
        return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except OverflowError:  # somebody's "for ever": in UTC it would lie outside the years 1 to 9999
        return moment.isoformat(timespec="seconds")
