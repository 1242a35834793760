"""Which services an operator has paused, as the ConfigMap `overspill-control` says it. Pure.

One key per service, one JSON object as value: `until` (RFC 3339; absent: until resumed), `reason`, `by`, and for the
bridge `leaving` (true while Overspill is being uninstalled). An entry that cannot be read was meant to stop something:
it pauses, and says which field is wrong.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from overspill_events.catalog import Time
from overspill_events.moments import stamp

PAUSABLE: Final = ("decider", "evictor", "admitter", "bridge")  # those that have effects


class Pause(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One service's entry."""

    until: Time | None = None
    reason: str = ""
    by: str = ""
    leaving: bool = False

    def holds(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        end = "until resumed" if self.until is None else f"until {stamp(self.until)}"
        who = f" by {self.by}" if self.by else ""
        return f"paused {end}{who}" + (f": {self.reason}" if self.reason else "")


def pause_of(data: Mapping[str, str], service: str, *, now: datetime) -> Pause | None:
    """The pause that holds for a service now; None when it is to work."""
    text = data.get(service)
    if text is None:
        return None
    try:
        pause = msgspec.json.decode(text, type=Pause)
    except msgspec.DecodeError as error:
        accepted = "a JSON object with until (RFC 3339 with its zone), reason, by, leaving"
        return Pause(reason=f"data.{service} cannot be read: {error}; accepted: {accepted}")
    return pause if pause.holds(now) else None


def entry_of(pause: Pause) -> str:
    """The entry as it is written."""
    return msgspec.json.encode(pause).decode()
