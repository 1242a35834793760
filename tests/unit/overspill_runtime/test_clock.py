"""The manual clock wakes sleepers in order, and only when told."""

import asyncio

import pytest

from overspill_runtime.clock import ManualClock


async def test_sleepers_wake_in_order_of_their_time():
    clock = ManualClock()
    woken = []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(s)) for s in (3, 1, 2)]
    await asyncio.sleep(0)
    clock.advance(0.5)
    await asyncio.sleep(0)
    assert woken == []
    clock.advance(2)
    await asyncio.sleep(0)
    assert woken == [1, 2]
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    clock.advance(10)
    assert (clock.monotonic(), woken) == (12.5, [1, 2])


def test_now_and_monotonic_move_together_and_never_back():
    clock = ManualClock()
    before = clock.now()
    clock.advance(90)
    assert (clock.now() - before).total_seconds() == 90
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
