"""For how long a gate has been seen closed, with the lab's API server and a clock that can be moved."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

from overspill_evictor.cluster import Cluster
from overspill_evictor.memory import Memory
from overspill_kube.client import connect
from overspill_kube.settings import KubeSettings, WatchTiming
from overspill_runtime.clock import SystemClock
from tests.component.overspill_evictor.home import VIRTUAL, Home
from tests.support.house import PATIENCE_S, house, running

HOUR = 3600.0


class MovedClock(SystemClock):
    """The machine's clock, moved: `wall` and `steady` seconds ahead."""

    wall = 0.0
    steady = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.wall)

    def monotonic(self) -> float:
        return super().monotonic() + self.steady


@contextlib.asynccontextmanager
async def looking(folder: Path, clock: MovedClock, *, stale: float) -> AsyncIterator[Cluster]:
    """At a virtual node whose gate is closed; without a word for longer than `stale` seconds nothing is known."""
    timing = WatchTiming(silence_seconds=0.5, stale_seconds=stale, backoff_seconds=(0.05, 0.1))
    async with contextlib.AsyncExitStack() as stack:
        built = await stack.enter_async_context(house(folder))
        await Home(built).build()
        settings = KubeSettings(kubeconfig=str(built.kubeconfig), watch=timing)
        client = await stack.enter_async_context(connect(settings, clock=clock))
        cluster = Cluster(client, clock)
        await stack.enter_async_context(running(cluster.run()))
        await asyncio.wait_for(cluster.wait_synced(), PATIENCE_S)
        yield cluster


def closed_for(cluster: Cluster, memory: Memory | None = None) -> float:
    return cluster.snapshot(memory or Memory(), paused=None).gate_closed_for[VIRTUAL]


async def test_only_time_that_passed_counts_and_no_jump_of_the_wall_clock(tmp_path: Path) -> None:
    """An hour's jump is nothing, an hour is an hour; a closing that the decider told of later counts from then."""
    clock = MovedClock()
    async with looking(tmp_path, clock, stale=2 * HOUR) as cluster:
        clock.wall += HOUR
        assert closed_for(cluster) < HOUR
        clock.steady += HOUR
        assert closed_for(cluster) >= HOUR
        memory = Memory()
        memory.gate_closed_at[VIRTUAL] = clock.now()
        assert closed_for(cluster, memory) < HOUR


async def test_time_in_which_the_cluster_was_not_heard_does_not_count(tmp_path: Path) -> None:
    """After an interruption the settling begins anew, though the node looks as it did before."""
    clock = MovedClock()
    async with looking(tmp_path, clock, stale=HOUR / 2) as cluster:
        clock.steady += HOUR
        assert cluster.nodes.synced_for() == 0
        await asyncio.wait_for(cluster.wait_synced(), PATIENCE_S)
        assert closed_for(cluster) < HOUR
