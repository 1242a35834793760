"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def stamp(when: datetime) -> str:
    """Whole seconds, UTC: `metav1.Time`."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(when: datetime) -> str:
    """With microseconds, UTC: `metav1.MicroTime`, as leases have it."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
