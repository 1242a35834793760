"""An admission that the stream did not take releases nothing, and is never told later as if it had been made."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from overspill_admitter.service import LEASE, SERVICE, run
from overspill_events.catalog import AdmissionDeferred, WorkloadAdmitted, WorkloadQueued
from overspill_events.reasons import DeferReason
from overspill_kube.client import PatchKind
from overspill_kube.outcomes import Done
from overspill_kube.resources import CLUSTER_QUEUES
from overspill_runtime.process import process
from overspill_service import serve
from tests.component.overspill_admitter.hall import Hall
from tests.support.house import eventually, house, running

BEFORE_ITS_ADMISSION = 1  # event of a workload: that it is queued


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with house(tmp_path) as built:
        yield Hall(built)


async def stop_queue(hall: Hall, policy: str) -> None:
    stopped = {"spec": {"stopPolicy": policy}}
    assert isinstance(await hall.kube.patch(CLUSTER_QUEUES, "training", stopped, kind=PatchKind.MERGE), Done)


async def test_an_admission_refused_by_the_stream_is_withdrawn(hall: Hall) -> None:
    """The server falls silent, so that the admission waits behind an event that was sent before it."""
    await hall.build()
    await hall.job("first")
    settings = hall.settings()
    async with (
        process(settings, service=SERVICE) as own,
        running(serve(SERVICE, settings, run, lease=LEASE, process=own)),
    ):

        async def under_way() -> bool:
            return own.registry.get_sample_value("overspill_bus_buffered_events") == BEFORE_ITS_ADMISSION + 1

        async def decided_anew() -> bool:
            held = {"reason": DeferReason.QUEUE_STOPPED.value}
            return own.registry.get_sample_value("overspill_admitter_waiting_workloads", held) == 1

        await hall.until_released("first")
        os.kill(hall.house.nats.pid, signal.SIGSTOP)
        await hall.job("second")
        await eventually(under_way, describe="the admission is on its way to the stream")
        await stop_queue(hall, "Hold")
        await eventually(decided_anew, describe="the admission is given up")
        assert await hall.released() == {"first"}, "released, and the stream does not have it"
        await hall.house.nats.kill()
        await hall.house.nats.restart()
        deferred, *_ = await hall.until_told(AdmissionDeferred)
        assert (deferred.workload.name, deferred.reason) == ("second", DeferReason.QUEUE_STOPPED)
        assert [one.workload.name for one in await hall.told(WorkloadQueued)] == ["first", "second"]
        # Whatever was said before the deferral stands before it.
        assert [one.workload.name for one in await hall.told(WorkloadAdmitted)] == ["first"], "told, and never happened"
        await stop_queue(hall, "None")
        await hall.until_released("second")
    assert [one.workload.name for one in await hall.told(WorkloadAdmitted)] == ["first", "second"]
