"""How a moment is written for people: everywhere the same, and never without its zone."""

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC to the second, such as 2030-01-31T18:00:00Z: `--since` and Kubernetes accept it, too."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
