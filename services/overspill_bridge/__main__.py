"""The bridge as a process: `python -m overspill_bridge`. One lease per virtual node."""

import sys
from functools import partial

from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.service import SERVICE, lead
from overspill_bridge.settings import Settings
from overspill_runtime.process import Process, start
from overspill_service.serving import serve


async def run(process: Process[Settings]) -> None:
    """Stand for election for the node that the settings name, and be its bridge when elected."""
    body = partial(lead, metrics=BridgeMetrics(process.registry))
    lease = f"overspill-bridge-{process.settings.node_name}"
    await serve(SERVICE, process.settings, body, lease=lease, process=process)


def main() -> None:
    """The whole program; exit codes 0, 1 (failed), 2 (settings)."""
    sys.exit(start(run, Settings, service=SERVICE))


if __name__ == "__main__":
    main()
