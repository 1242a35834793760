"""Bind → Running of 500 pods on the virtual node, with the lab's API server, a real nats-server and the lab's cloud.

The figure holds everything between: bridge, provider and status. The cloud's own provisioning is set to nothing, and
the bridge's other settings to those of production; how often it polls the provider is told beside the figures.
"""

from pathlib import Path
from typing import Any, Final

from overspill_kube.resources import NODES
from tests.bench.machine import with_machine
from tests.bench.pacing import bind_to_running
from tests.support.bridge_place import NODE, Place, bridge_place

PODS_COUNT: Final = 500
PER_SECOND: Final = 100
POLL_S: Final = 0.1
CLOUD: Final = ("--queue-seconds", "0", "--provision-seconds", "0", "--start-seconds", "0", "--stop-seconds", "0")
CALM: Final = {
    "sample_silence": "30",
    "resync_interval": "60",
    "list_lag": "30",
    "gc_interval": "30",
    "gc_grace": "120",
}
GPUS: Final = 4000


async def measure(folder: Path) -> dict[str, Any]:
    """The figures of the lab."""
    async with bridge_place(folder, *CLOUD, "--offerings", str(offerings(folder))) as place:
        pid = await start(place)
        binding = bind_to_running(place.client, place.pod, pods=PODS_COUNT, per_second=PER_SECOND)
        return {"provider_poll_s": POLL_S} | await with_machine(binding, pid=pid)


def offerings(folder: Path) -> Path:
    """A file with one cheap offering, enough of it."""
    file = folder / "offerings.json"
    file.write_text(f'[{{"id":"a","gpuType":"a100","gpus":1,"region":"r","pricePerHour":1.0,"stock":{GPUS}}}]')
    return file


async def start(place: Place) -> int:
    """Start the bridge; its process id, once its node is there."""
    await place.start_bridge(poll_interval=str(POLL_S), max_external_gpus=str(GPUS), **CALM)
    await place.eventually(lambda: place.client.get(NODES, NODE))
    return place.bridge_pid
