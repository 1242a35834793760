"""Every knob of the decider: `OVERSPILL_DECIDER_<NAME>`, seconds and free GPUs."""

from typing import Annotated

from msgspec import Meta

from overspill_decider.rules import Preference, Rules
from overspill_events.catalog import RETURN_SECONDS_MAX
from overspill_runtime.settings import CommonSettings, FieldError

Seconds = Annotated[float, Meta(gt=0)]
Duration = Annotated[float, Meta(ge=0)]


class Settings(CommonSettings, frozen=True, kw_only=True):
    """`low_mark` and below: home is full; `high_mark` and above: home has room; in between nothing changes."""

    pool: str = "default"  # whose samples
    interval: Seconds = 5.0  # decide at least this often; each sample also wakes the decider
    low_mark: Annotated[float, Meta(ge=0)] = 1.0
    high_mark: Annotated[float, Meta(gt=0)] = 8.0
    window: Seconds = 300.0  # of the average
    open_hold: Duration = 120.0  # how long the average must have been low
    close_hold: Duration = 600.0
    stale_after: Seconds = 60.0  # a sample older than this is no basis, nor does one speak for longer
    min_coverage: Annotated[float, Meta(gt=0, le=1)] = 0.8  # part of the window that samples must speak for
    drift_after: Seconds = 600.0  # how long a disagreement, or pods behind a closed gate, must last
    drift_tolerance: Annotated[float, Meta(ge=0)] = 4.0  # free GPUs by which query and cluster may differ
    drift_opens: bool = True  # False: alarm only
    provider_stale_after: Seconds = 300.0
    source: Preference = Preference.AUTO

    def __post_init__(self) -> None:
        if self.high_mark <= self.low_mark:
            raise FieldError("high_mark", self.high_mark, f"a number above low_mark ({self.low_mark:g})")

    def rules(self) -> Rules:
        """The part that the policy judges by."""
        return Rules(**{name: getattr(self, name) for name in Rules.__struct_fields__})

    def look_back(self) -> float:
        """Seconds of the past that a restart has to read again: windows and holds, twice over, and open returns."""
        return max(RETURN_SECONDS_MAX, 2 * max(self.window, self.open_hold, self.close_hold, self.drift_after))
