"""What an operator can turn on the evictor. Durations in seconds."""

from typing import Annotated

from msgspec import Meta

from overspill_events.catalog import RETURN_SECONDS_MAX
from overspill_events.names import GPU_RESOURCE
from overspill_evictor.snapshot import Rules
from overspill_runtime.settings import CommonSettings, FieldError

Seconds = Annotated[float, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]


class Settings(CommonSettings, frozen=True, kw_only=True):
    """Fields are read from OVERSPILL_EVICTOR_<FIELD>; the defaults are careful ones for production."""

    resource: str = GPU_RESOURCE
    interval: Annotated[float, Meta(gt=0)] = 60.0  # between cycles
    gate_settle: Seconds = 300.0  # the gate must have been closed that long, seen by this process
    min_pod_age: Seconds = 600.0  # of a running pod; one that does not run returns at any age
    max_per_cycle: Annotated[int, Meta(ge=0)] = 5  # 0: nobody returns
    max_in_flight: AtLeastOne = 10  # returns that are not settled, over all owners
    max_in_flight_per_owner: AtLeastOne = 1
    default_floor: AtLeastOne = 1  # ready replicas that stay; more by the annotation overspill.dev/floor
    # Until then the successor must be placed; the room is booked, and others look no further back for bookings.
    return_timeout: Annotated[float, Meta(gt=0, le=RETURN_SECONDS_MAX)] = 600.0
    refusal_retry: Seconds = 60.0  # before a refused eviction is asked again
    backoff: Seconds = 600.0  # of an owner after its first failed return, doubling
    backoff_max: Seconds = 21_600.0
    memory: Annotated[float, Meta(gt=0)] = 86_400.0  # how far back the stream is read at start
    parallel: Annotated[int, Meta(ge=1, le=32)] = 4  # evictions sent at the same time

    def __post_init__(self) -> None:
        if self.backoff_max < self.backoff:
            raise FieldError("backoff_max", self.backoff_max, f"at least OVERSPILL_EVICTOR_BACKOFF ({self.backoff:g})")
        if self.memory < self.return_timeout:
            raise FieldError(
                "memory", self.memory, f"at least OVERSPILL_EVICTOR_RETURN_TIMEOUT ({self.return_timeout:g})"
            )

    @property
    def rules(self) -> Rules:
        """The part of the settings that the policy judges by."""
        return Rules(**{field: getattr(self, field) for field in Rules.__struct_fields__})
