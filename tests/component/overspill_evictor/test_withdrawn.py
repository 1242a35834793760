"""A return that the stream did not take evicts nobody, and is never told later as if it had been intended."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from overspill_events.catalog import PodHeld, ReturnIntended
from overspill_events.names import NO_SCHEDULE, SWITCH_TAINT
from overspill_events.reasons import HoldReason
from overspill_evictor.service import LEASE, SERVICE, run
from overspill_kube.effects import TaintsSet, set_taints
from overspill_kube.resources import NODES
from overspill_objects.core import Taint
from overspill_runtime.process import process
from overspill_service import serve
from tests.component.overspill_evictor.home import HOME, VIRTUAL, Home
from tests.support.house import eventually, house, running


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Home]:
    async with house(tmp_path) as built:
        yield Home(built)


async def open_gate(place: Home) -> None:
    node = await place.kube.get(NODES, VIRTUAL)
    assert node is not None
    switch = Taint(key=SWITCH_TAINT, effect=NO_SCHEDULE)
    assert isinstance(await set_taints(place.kube, VIRTUAL, remove=[switch], expect_uid=node.metadata.uid), TaintsSet)


async def test_a_return_refused_by_the_stream_is_withdrawn(place: Home) -> None:
    """The server falls silent, so that the intent waits behind an event that was sent before it."""
    await place.build(closed=False)
    await place.replica(on=HOME)
    await place.replica(on=VIRTUAL)
    settings = place.settings(MAX_PER_CYCLE="1")
    async with (
        process(settings, service=SERVICE) as own,
        running(serve(SERVICE, settings, run, lease=LEASE, process=own)),
    ):

        def count(name: str, **labels: str) -> float:
            return own.registry.get_sample_value(name, labels) or 0.0

        async def on_its_way() -> bool:
            return count("overspill_bus_buffered_events") == 1

        async def given_up() -> bool:
            return count("overspill_evictor_idle_cycles_total", cause="unavailable") > 0

        async def all_held() -> bool:
            return (
                count("overspill_evictor_held_pods", reason=HoldReason.GATE_OPEN.value) == len(await place.pods()) - 1
            )

        async def told_of(name: str) -> bool:
            return name in [one.pod.name for one in await place.told(PodHeld)]

        await place.until_told(PodHeld)
        os.kill(place.house.nats.pid, signal.SIGSTOP)
        await place.replica(on=VIRTUAL)
        await eventually(on_its_way, describe="another pod's hold is on its way")
        await place.close_gate()
        await eventually(given_up, describe="a return is given up")
        await open_gate(place)
        last = await place.replica(on=VIRTUAL)
        await eventually(all_held, describe="nobody is to return any more")
        assert await place.leaving() == set(), "evicted, and the stream does not have it"
        await place.house.nats.kill()
        await place.house.nats.restart()
        await eventually(lambda: told_of(last))
        # Whatever was said before this hold stands before it.
        assert await place.told(ReturnIntended) == [], "told, and it never happened"
        assert await place.leaving() == set()
