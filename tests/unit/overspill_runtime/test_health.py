"""Liveness is the process alone; readiness is what it needs."""

import asyncio

from overspill_runtime.clock import ManualClock
from overspill_runtime.health import Health


def test_a_silent_loop_is_not_live():
    clock = ManualClock()
    health = Health(clock)
    assert health.live() == {"loop": None}
    clock.advance(11)
    assert health.live() == {"loop": "no heartbeat for 11.0 s"}
    health.beat()
    assert health.live() == {"loop": None}


async def test_an_essential_task_that_ended_is_not_live():
    health = Health(ManualClock())
    task = asyncio.create_task(asyncio.sleep(0))
    health.essential("follow", task)
    assert health.live()["follow"] is None
    await task
    assert health.live()["follow"] == "has ended"


def test_a_failing_check_is_told_and_a_broken_one_is_not_healthy():
    health = Health(ManualClock())
    health.check("bus", lambda: "not connected")
    health.check("broken", lambda: 1 / 0)
    assert health.ready()["bus"] == "not connected"
    assert "ZeroDivisionError" in health.ready()["broken"]
    health.check("bus", lambda: None)
    assert health.ready()["bus"] is None
