"""Bind → Running of 500 pods on the virtual node, with the lab's API server, a real nats-server and the lab's cloud.

Pods are bound at creation (`spec.nodeName`), paced, as a scheduler would. "Running" is when a watch of the API server
shows it, so the figure holds everything between: bridge, provider and status. The cloud's own provisioning is set to
nearly nothing and is told beside the figures.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from overspill_kube.informer import Change, Informer
from overspill_kube.resources import NODES, PODS
from overspill_objects.core import Pod
from tests.bench.figures import milliseconds
from tests.support.bridge_place import NODE, Place, bridge_place

PODS_COUNT: Final = 500
PER_SECOND: Final = 100
CLOUD: Final = ("--queue-seconds", "0", "--provision-seconds", "0", "--start-seconds", "0", "--stop-seconds", "0")


async def measure(folder: Path) -> dict[str, Any]:
    """Every pod's time, and the whole."""
    offerings = folder / "offerings.json"
    offerings.write_text('[{"id":"a","gpuType":"a100","gpus":1,"region":"r","pricePerHour":1.0,"stock":1000}]')
    async with bridge_place(folder, *CLOUD, "--offerings", str(offerings)) as place:
        await place.start_bridge(poll_interval="0.1")
        await place.eventually(lambda: place.client.get(NODES, NODE))
        times, seconds = await _bind_all(place)
    return {
        "pods": PODS_COUNT,
        "paced_per_s": PER_SECOND,
        "provider_poll_s": 0.1,
        "bind_to_running": milliseconds(times),
        "running_per_s": round(PODS_COUNT / seconds, 1),
    }


async def _bind_all(place: Place) -> tuple[list[float], float]:
    bound: dict[str, float] = {}
    running: dict[str, float] = {}
    everything = asyncio.Event()

    def changed(change: Change[Pod]) -> None:
        pod = change.object
        if pod.status.phase == "Running":
            running.setdefault(pod.metadata.name, time.perf_counter())
        if len(running) == PODS_COUNT:
            everything.set()

    informer = Informer(place.client, PODS, on_change=changed)
    watching = asyncio.create_task(informer.run())
    await informer.wait_synced()
    start = time.perf_counter()

    async def bind(number: int) -> None:
        name = f"pod-{number}"
        bound[name] = time.perf_counter()
        await place.pod(name)

    async with asyncio.TaskGroup() as tasks:
        for number in range(PODS_COUNT):
            tasks.create_task(bind(number))
            await asyncio.sleep(max(0.0, start + (number + 1) / PER_SECOND - time.perf_counter()))
    await everything.wait()
    seconds = time.perf_counter() - start
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return [running[name] - bound[name] for name in bound], seconds
