"""The queue of keys: exclusive, patient, and it forgets nothing."""

import asyncio
import contextlib

import pytest

from overspill_bridge.settings import Settings
from overspill_bridge.work import WorkQueue
from overspill_runtime.clock import ManualClock, SystemClock
from overspill_runtime.settings import SettingsError, load


@contextlib.asynccontextmanager
async def running(handle, *, clock=None, errors=None):
    queue = WorkQueue(
        handle,
        clock=clock or SystemClock(),
        retry_min=0.01,
        retry_max=0.04,
        on_error=lambda key, error: errors.append((key, error)) if errors is not None else None,
    )
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- the condition is a plain value
            await asyncio.sleep(0.005)


async def test_a_key_is_never_worked_on_twice_at_once_and_a_change_meanwhile_is_not_lost():
    active, most, runs = 0, 0, 0
    release = asyncio.Event()

    async def handle(_):
        nonlocal active, most, runs
        active, runs = active + 1, runs + 1
        most = max(most, active)
        await release.wait()
        active -= 1

    async with running(handle) as queue:
        queue.add("a")
        await until(lambda: runs == 1)
        for _ in range(5):
            queue.add("a")
        release.set()
        await until(lambda: runs == 2 and queue.running == 0)
        await asyncio.sleep(0.05)
        assert (most, runs) == (1, 2)


async def test_a_slow_key_delays_no_other():
    done = []

    async def handle(key):
        if key == "slow":
            await asyncio.sleep(3600)
        done.append(key)

    async with running(handle) as queue:
        queue.add("slow")
        for number in range(50):
            queue.add(str(number))
        await until(lambda: len(done) == 50)


async def test_a_failing_key_is_tried_for_ever_and_reported_each_time():
    errors, tries = [], 0

    async def handle(_):
        nonlocal tries
        tries += 1
        if tries <= 30:
            raise RuntimeError(tries)

    async with running(handle, errors=errors) as queue:
        queue.add("a")
        await until(lambda: tries == 31)
    assert len(errors) == 30, "thirty failures, more than any limit of tries"


async def test_pauses_double_up_to_the_cap_and_begin_anew_after_a_success():
    queue = WorkQueue(None, clock=ManualClock(), retry_min=1.0, retry_max=10.0, on_error=None)
    assert [queue.backoff("a") for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert [queue.backoff("b") for _ in range(2)] == [1, 2]
    for _ in range(2000):
        queue.backoff("a")
    assert queue.backoff("a") == 10
    queue.succeeded("a")
    assert queue.backoff("a") == 1


async def test_the_earlier_of_two_plans_counts():
    done = []

    async def handle(key):
        done.append(key)

    async with running(handle) as queue:
        queue.add("a", 3600)
        queue.add("a", 0.01)
        queue.add("a", 1800)
        await until(lambda: done == ["a"])
        assert queue.waiting == 0


async def test_what_a_handler_asks_for_is_planned():
    runs = 0

    async def handle(_):
        nonlocal runs
        runs += 1
        return 0.01 if runs < 3 else None

    async with running(handle) as queue:
        queue.add("a")
        await until(lambda: runs == 3)
        await asyncio.sleep(0.05)
        assert runs == 3


async def test_cancellation_reaches_every_handler_and_is_awaited():
    cleaned = []

    async def handle(key):
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(key)

    async with running(handle) as queue:
        queue.add("a")
        queue.add("b")
        await until(lambda: queue.running == 2)
    assert sorted(cleaned) == ["a", "b"]


# --- settings ---

GOOD = {"OVERSPILL_BRIDGE_PROVIDERS": "fake=http://h:1?token=secret"}


def test_settings_need_only_providers():
    assert load(Settings, service="bridge", env=GOOD).max_external_gpus == 64


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MAX_EXTERNAL_GPUS", "0", ">= 1"),
        ("POLL_INTERVAL", "-1", "> 0"),
        ("NODE_NAME", "Not_A_Name", "matching"),
        ("RETRY_MAX", "0.5", "retry_min"),
        ("SAMPLE_SILENCE", "1", "poll_interval"),
        ("PROVIDERS", "fake=ftp://h?token=secret", "ftp"),
        ("POLL_INTERVALL", "1", "OVERSPILL_BRIDGE_POLL_INTERVAL"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_accepted(name, value, words):
    with pytest.raises(SettingsError) as error:
        load(Settings, service="bridge", env=GOOD | {f"OVERSPILL_BRIDGE_{name}": value})
    assert f"OVERSPILL_BRIDGE_{name}" in str(error.value)
    assert words in str(error.value)
    assert "secret" not in str(error.value).replace("(a secret)", "")


def test_without_providers_there_is_nothing_to_bridge_to():
    with pytest.raises(SettingsError, match="OVERSPILL_BRIDGE_PROVIDERS"):
        load(Settings, service="bridge", env={})
