"""`python -m overspill_bus topology`: make the streams as declared, or change them, and end.

Services that may not do that themselves (OVERSPILL_NATS_MAKES_STREAMS=false) wait until somebody has.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from overspill_bus.bus import connect
from overspill_bus.errors import ApiError, BusUnavailable
from overspill_bus.settings import BusSettings, Bytes, Replicas, Seconds, Topology
from overspill_runtime.clock import SystemClock
from overspill_runtime.settings import PREFIX, CommonSettings, SettingsError, load

SERVICE: Final = "topology"
_USAGE: Final = "usage: python -m overspill_bus topology\n"
_DEFAULTS: Final = Topology()


class Settings(CommonSettings, frozen=True, kw_only=True):
    """`OVERSPILL_TOPOLOGY_<NAME>`: limits of the streams, seconds and bytes."""

    max_age: Seconds = _DEFAULTS.max_age
    max_bytes: Bytes = _DEFAULTS.max_bytes
    duplicate_window: Seconds = _DEFAULTS.duplicate_window
    dead_letter_max_age: Seconds = _DEFAULTS.dead_letter_max_age
    dead_letter_max_bytes: Bytes = _DEFAULTS.dead_letter_max_bytes
    replicas: Replicas = _DEFAULTS.replicas

    @property
    def topology(self) -> Topology:
        """The streams' part of the settings."""
        return Topology(**{name: getattr(self, name) for name in Topology.__struct_fields__})


async def apply(settings: Settings) -> None:
    """Create or update the streams. Raises BusUnavailable, or ApiError when the server refuses."""
    bus_settings = BusSettings(
        cluster=settings.cluster,
        service=SERVICE,
        nats_url=settings.nats_url,
        credentials_file=settings.nats_credentials,
        topology=settings.topology,
    )
    async with connect(bus_settings, clock=SystemClock(), wait=True) as bus:
        await bus.ensure_topology()


def main(arguments: list[str]) -> int:
    """Exit codes: 0 the streams are as declared, 1 they are not, 2 arguments or settings that cannot be used."""
    if arguments != ["topology"]:
        sys.stderr.write(_USAGE)
        return 2
    file = os.environ.get(f"{PREFIX}SETTINGS", "").strip()
    try:
        settings = load(Settings, service=SERVICE, env=os.environ, file=Path(file) if file else None)
        asyncio.run(apply(settings))
    except SettingsError as error:
        sys.stderr.write(f"overspill {SERVICE}: {error}\n")
        return 2
    except (BusUnavailable, ApiError) as error:
        sys.stderr.write(f"overspill {SERVICE}: {error}\n")
        return 1
    sys.stderr.write("the streams are as declared\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
