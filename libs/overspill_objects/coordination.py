"""Leases: who leads. Their times are written by other machines' clocks and must never be compared with ours."""

from overspill_objects.meta import ObjectMeta
from overspill_objects.view import Time, View


class LeaseSpec(View, frozen=True, kw_only=True):
    """Empty `holder_identity`: nobody leads. Duration in whole seconds."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: int = 0


class Lease(View, frozen=True, kw_only=True):
    """A lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
