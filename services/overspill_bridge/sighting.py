"""One instance of ours as it was last seen, and one create whose outcome is not known. Pure data and what it proves.

Conclusions of absence rest on complete lists alone; how many it takes is said here and nowhere else.
"""

from msgspec import Struct

from overspill_events.names import POD_UID_TAG
from overspill_events.reasons import InstanceEnd
from overspill_providers.protocol import Instance, InstanceState

LOST_AFTER = 2  # complete lists in a row that lack an instance before it counts as gone


class Sighting(Struct, frozen=True, kw_only=True):
    """One instance of ours, as last seen. Times are monotonic seconds."""

    provider: str
    instance: Instance
    noted_at: float
    created_here: bool = False  # this process has the answer to its create
    listed: bool = False  # has been in a list
    misses: int = 0  # complete lists in a row without it
    ending: InstanceEnd | None = None  # this process has had a termination accepted, and why
    ended_at: float | None = None

    @property
    def pod_uid(self) -> str:
        return self.instance.tags[POD_UID_TAG]

    def is_gone(self, *, now: float, list_lag: float) -> bool:
        """Whether complete lists prove that it is not there any more; one is enough after our own termination."""
        if self.instance.state is InstanceState.GONE:
            return True
        if not self.listed and now - self.noted_at < list_lag:
            return False
        return self.misses >= (1 if self.ending is not None and self.listed else LOST_AFTER)

    def is_living(self, *, now: float, list_lag: float) -> bool:
        """Whether it may hold GPUs."""
        return self.instance.is_living and not self.is_gone(now=now, list_lag=list_lag)


class Flight(Struct, frozen=True, kw_only=True):
    """A create whose outcome is not known: asked and unanswered, or answered ambiguously at `since`."""

    provider: str
    offering: str
    gpus: int
    since: float
    is_ambiguous: bool = False
    misses: int = 0  # complete lists begun since then without it

    def is_disproved(self, *, now: float, list_lag: float) -> bool:
        """Whether lists say that the create had no effect, so that asking again is safe."""
        return self.is_ambiguous and self.misses >= LOST_AFTER and now - self.since >= list_lag
