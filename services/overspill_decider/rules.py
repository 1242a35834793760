"""What the operator decides about gates, as the policy needs it. Must not know where the values come from."""

from enum import StrEnum

from msgspec import Struct


class Preference(StrEnum):
    """Which source the marks are compared with. The other never takes its place: it may mean something else."""

    AUTO = "auto"  # the operator's query when the samples carry one, the cluster's own count otherwise
    QUERY = "query"
    CLUSTER = "cluster"


class Rules(Struct, frozen=True, kw_only=True):
    """Marks in free GPUs, times in seconds."""

    low_mark: float
    high_mark: float
    window: float
    open_hold: float
    close_hold: float
    stale_after: float
    min_coverage: float  # part of the window that samples must speak for
    drift_after: float
    drift_tolerance: float
    drift_opens: bool
    provider_stale_after: float
    source: Preference
