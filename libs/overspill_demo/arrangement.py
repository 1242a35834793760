"""How the services are set for a story of minutes: everything that takes minutes or hours in earnest takes seconds.

Pure data and its parsing; it must not know how processes are started.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from overspill_events.names import SERVICES

VIRTUAL_NODE: Final = "overspill-external"
MAX_EXTERNAL_GPUS: Final = 300
HOURS_PER_SECOND: Final = 0.1  # at the provider: a second of the demo is billed as six minutes

Settings = dict[str, dict[str, str]]

ARRANGEMENT: Final[Mapping[str, Mapping[str, str]]] = {
    "sampler": {"OVERSPILL_SAMPLER_INTERVAL": "0.5"},
    "decider": {
        "OVERSPILL_DECIDER_INTERVAL": "0.5",
        "OVERSPILL_DECIDER_LOW_MARK": "12",
        "OVERSPILL_DECIDER_HIGH_MARK": "60",
        "OVERSPILL_DECIDER_WINDOW": "3",
        "OVERSPILL_DECIDER_OPEN_HOLD": "2",
        "OVERSPILL_DECIDER_CLOSE_HOLD": "3",
        "OVERSPILL_DECIDER_STALE_AFTER": "5",
        "OVERSPILL_DECIDER_DRIFT_AFTER": "15",
        "OVERSPILL_DECIDER_PROVIDER_STALE_AFTER": "30",
    },
    "evictor": {
        "OVERSPILL_EVICTOR_INTERVAL": "1",
        "OVERSPILL_EVICTOR_MIN_POD_AGE": "3",
        "OVERSPILL_EVICTOR_MAX_PER_CYCLE": "6",
        "OVERSPILL_EVICTOR_GATE_SETTLE": "2",
        "OVERSPILL_EVICTOR_RETURN_TIMEOUT": "60",  # none may expire in a story, on a machine of any speed
        "OVERSPILL_EVICTOR_MAX_IN_FLIGHT": "24",
        "OVERSPILL_EVICTOR_MAX_IN_FLIGHT_PER_OWNER": "4",
        "OVERSPILL_EVICTOR_REFUSAL_RETRY": "3",
        "OVERSPILL_EVICTOR_BACKOFF": "5",
        "OVERSPILL_EVICTOR_BACKOFF_MAX": "20",
    },
    "admitter": {"OVERSPILL_ADMITTER_INTERVAL": "0.5"},
    "bridge": {
        "OVERSPILL_BRIDGE_NODE_NAME": VIRTUAL_NODE,
        "OVERSPILL_BRIDGE_MAX_EXTERNAL_GPUS": str(MAX_EXTERNAL_GPUS),
        "OVERSPILL_BRIDGE_POLL_INTERVAL": "0.5",
        "OVERSPILL_BRIDGE_SAMPLE_SILENCE": "5",
        "OVERSPILL_BRIDGE_RESYNC_INTERVAL": "5",
        "OVERSPILL_BRIDGE_LIST_LAG": "2",
        "OVERSPILL_BRIDGE_RETRY_MIN": "0.2",
        "OVERSPILL_BRIDGE_RETRY_MAX": "2",
        "OVERSPILL_BRIDGE_OFFERING_COOLDOWN": "2",
        "OVERSPILL_BRIDGE_GC_INTERVAL": "1",
        "OVERSPILL_BRIDGE_GC_GRACE": "3",
    },
    "recorder": {},
}


class ArrangementError(ValueError):
    """A `--setting` that cannot be read; the message says how to write it."""


def arranged(overrides: Sequence[str]) -> Settings:
    """The demo's settings with the caller's `SERVICE:OVERSPILL_NAME=VALUE` on top. Raises ArrangementError."""
    settings = {service: dict(values) for service, values in ARRANGEMENT.items()}
    for override in overrides:
        service, colon, assignment = override.partition(":")
        name, equals, value = assignment.partition("=")
        if not (colon and equals) or service not in settings or not name.startswith("OVERSPILL_"):
            services = ", ".join(SERVICES)
            raise ArrangementError(f"{override!r}: write SERVICE:OVERSPILL_NAME=VALUE with SERVICE one of {services}")
        settings[service][name] = value
    return settings
