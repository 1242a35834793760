"""What an operator can turn on the admitter. Durations in seconds."""

from typing import Annotated

from msgspec import Meta

from overspill_admitter.policy import Rules
from overspill_events.catalog import RETURN_SECONDS_MAX
from overspill_events.names import GPU_RESOURCE
from overspill_runtime.settings import CommonSettings


class Settings(CommonSettings, frozen=True, kw_only=True):
    """Fields are read from OVERSPILL_ADMITTER_<FIELD>."""

    resource: str = GPU_RESOURCE
    interval: Annotated[float, Meta(gt=0)] = 1.0  # between decisions; changes meanwhile are looked at together
    home_flavors: tuple[str, ...] = ()  # home even if they carry the label of virtual nodes
    # How far back the stream is read at start: at least as far as a booking can be old.
    memory: Annotated[float, Meta(ge=RETURN_SECONDS_MAX)] = 86_400.0
    parallel: Annotated[int, Meta(ge=1, le=64)] = 16  # releases sent at the same time
    retry: Annotated[float, Meta(ge=0)] = 10.0  # before a workload is released again that the API server refused

    @property
    def rules(self) -> Rules:
        """The part of the settings that the policy judges by."""
        return Rules(home_flavors=self.home_flavors)
