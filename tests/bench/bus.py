"""Events from publish to handled, through a real nats-server: latency when paced, rate when not."""

import asyncio
import time
from typing import Any, Final

from overspill_bus import Bus, BusSettings, Recorded, connect
from overspill_bus.testing import nats_server
from overspill_events.catalog import GateOpened
from overspill_events.reasons import GateReason
from overspill_events.subjects import STREAM_SUBJECTS
from overspill_runtime.clock import SystemClock
from tests.bench.figures import milliseconds

PACED: Final = 1000
PACE_S: Final = 0.005
BURST: Final = 10_000


async def measure() -> dict[str, Any]:
    """Publisher and durable consumer are two connections of this process."""
    async with (
        nats_server() as server,
        connect(
            BusSettings(cluster="bench", service="decider", nats_url=server.url), clock=SystemClock(), wait=True
        ) as bus,
        connect(
            BusSettings(cluster="bench", service="recorder", nats_url=server.url), clock=SystemClock(), wait=True
        ) as ear,
    ):
        await bus.ensure_topology()
        latencies = await _paced(bus, ear)
        rate = await _burst(bus, ear)
    return {"paced_per_s": round(1 / PACE_S), "publish_to_handled": milliseconds(latencies), "events_per_s": rate}


async def _paced(bus: Bus, ear: Bus) -> list[float]:
    sent: dict[str, float] = {}
    latencies: list[float] = []
    everything = asyncio.Event()

    async def handle(recorded: Recorded) -> None:
        latencies.append(time.perf_counter() - sent[recorded.envelope.id])
        if len(latencies) == PACED:
            everything.set()

    consuming = asyncio.create_task(ear.consume("bench-paced", [STREAM_SUBJECTS], handle))
    start = time.perf_counter()
    for number in range(PACED):
        envelope = bus.emit(GateOpened(node=f"node-{number % 50}", reason=GateReason.HOME_FULL))
        sent[envelope.id] = time.perf_counter()
        await asyncio.sleep(max(0.0, start + (number + 1) * PACE_S - time.perf_counter()))
    await everything.wait()
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    return latencies


async def _burst(bus: Bus, ear: Bus) -> int:
    """From the first emit until the last is handled in batches, as the recorder does."""
    count = 0
    everything = asyncio.Event()

    async def handle(batch: list[Recorded]) -> None:
        nonlocal count
        count += len(batch)
        if count >= PACED + BURST:
            everything.set()

    start = time.perf_counter()
    consuming = asyncio.create_task(ear.consume_batches("bench-burst", [STREAM_SUBJECTS], handle))
    for number in range(BURST):
        bus.emit(GateOpened(node=f"node-{number % 50}", reason=GateReason.HOME_FULL))
    await everything.wait()
    seconds = time.perf_counter() - start
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    return round(BURST / seconds)
