"""The sampler's Prometheus client, and what stands in for Prometheus elsewhere, judged by a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from overspill_events.catalog import CapacitySampled, Reading
from overspill_events.reasons import Source, UnknownCause
from overspill_kube.outcomes import Done
from overspill_kube.resources import PRIORITY_CLASSES
from overspill_lab.metrics.query import FREE_GPUS, FREE_GPUS_BESIDES_LOWEST
from overspill_runtime.clock import SystemClock
from overspill_runtime.settings import load
from overspill_sampler.prometheus import LARGEST_ANSWER, Prometheus
from overspill_sampler.service import LEASE, SERVICE, body
from overspill_sampler.settings import Settings
from overspill_service import serve
from tests.cluster import prometheus as starter
from tests.cluster.controlplane import build
from tests.cluster.controlplane.program import StartError
from tests.support.house import eventually, house, running
from tests.support.lab_apiserver import lab_part
from tests.support.prometheus import ScriptedPrometheus, scripted_prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

BULK = 3000
OLD_S = 60.0
SERIES = """\
# TYPE one gauge
one 7
# TYPE few gauge
few{n="1"} 1
few{n="2"} 2
# TYPE broken gauge
broken NaN
"""


@pytest.fixture(scope="module", autouse=True)
def _built(request: pytest.FixtureRequest) -> None:
    # The first build takes minutes: whoever waits for it should read how it goes.
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        build.prometheus()


@contextlib.asynccontextmanager
async def target(text: str) -> AsyncIterator[str]:
    """Something to scrape; yields its URL and is gone after the block."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def read(url: str, query: str, *, timeout: float = 20.0, stale_after: float = 150.0) -> Reading:
    """What the sampler's client makes of a server's answer."""
    async with aiohttp.ClientSession() as session:
        client = Prometheus(session, url=url, query=query, token="hush", timeout=timeout, clock=SystemClock())
        return await client.read(stale_after=stale_after)


async def asked(url: str, query: str, **more: str) -> tuple[int, dict[str, Any]]:
    """The answer itself."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api/v1/query", data={"query": query, **more}) as answer,
    ):
        return answer.status, await answer.json()


async def until(url: str, query: str, holds: Callable[[Reading], bool], *, stale_after: float = 150.0) -> Reading:
    """Ask until the reading is as described."""

    last: Reading | None = None

    async def holding() -> bool:
        nonlocal last
        last = await read(url, query, stale_after=stale_after)
        return holds(last)

    try:
        await eventually(holding, describe=query)
    except AssertionError as error:
        raise AssertionError(f"{error}; read: {last}") from None
    assert last is not None
    return last


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    """A real server that scrapes `SERIES`, many series of one name, and a sample that was old already.

    Four times a second, from this process: when that stands still, a series ends and begins anew. So what depends on a
    series is waited for.
    """
    bulk = "# TYPE bulk gauge\n" + "".join(f'bulk{{n="{n}"}} {n}\n' for n in range(BULK))
    old = f"# TYPE old gauge\nold 5 {(time.time() - OLD_S) * 1000:.0f}\n"
    async with target(SERIES + bulk + old) as scraped, starter.prometheus({"test": scraped}) as server:
        await until(server.url, "sum_over_time(up[1m]) > 3", lambda reading: reading.unknown is None)
        yield server.url


@pytest.mark.parametrize(
    ("query", "free"),
    [("one", 7), ("sum(few)", 3), ("scalar(one)", 7), ("0.25", 0.25), ("one - 7", 0), ("one == 7", 7)],
)
async def test_one_number_is_a_number(url: str, query: str, free: float) -> None:
    reading = await until(url, query, lambda reading: reading.free is not None)
    assert (reading.free, reading.unknown, reading.detail) == (free, None, "")


@pytest.mark.parametrize(
    ("query", "cause", "said"),
    [
        ("nothing", UnknownCause.NO_SERIES, "no series"),
        ("one == 8", UnknownCause.NO_SERIES, "no series"),
        ("sum(nothing)", UnknownCause.NO_SERIES, "no series"),
        ("few", UnknownCause.MANY_SERIES, "2 series"),
        ("bulk", UnknownCause.MANY_SERIES, f"{BULK} series"),
        ("broken", UnknownCause.NOT_A_NUMBER, "NaN"),
        ("scalar(few)", UnknownCause.NOT_A_NUMBER, "NaN"),
        ("one / 0", UnknownCause.NOT_A_NUMBER, "'+Inf'"),
        ("-1 / 0", UnknownCause.NOT_A_NUMBER, "'-Inf'"),
        ("sum(", UnknownCause.REFUSED, "HTTP 400: bad_data: "),
        ("", UnknownCause.REFUSED, "HTTP 400: bad_data: "),
        ("few + on() few", UnknownCause.REFUSED, "HTTP 422: execution: "),
        ("one[1m]", UnknownCause.REFUSED, "neither an instant vector nor a scalar"),
        ('"seven"', UnknownCause.REFUSED, "neither an instant vector nor a scalar"),
        ("quantile(2, few)", UnknownCause.WARNED, "PromQL warning: quantile value should be between 0 and 1, got 2"),
        ("sum(one) + count(quantile(2, few))", UnknownCause.WARNED, "PromQL warning"),  # for all that it is 8
    ],
)
async def test_everything_else_is_unknown_with_its_cause(url: str, query: str, cause: UnknownCause, said: str) -> None:
    reading = await until(url, query, lambda reading: reading.unknown == cause)
    assert (reading.unknown, reading.free) == (cause, None), reading
    assert said in reading.detail


async def test_an_info_is_a_remark_and_the_number_stands(url: str) -> None:
    """The real server calls a query's style into question with an info, and an incomplete answer with a warning."""
    query = "sum(one) + sum(rate(one[1m]))"
    _, answer = await asked(url, query)
    assert "warnings" not in answer
    reading = await until(url, query, lambda reading: reading.free is not None)
    assert (reading.free, reading.unknown) == (7, None)
    assert reading.detail.startswith("PromQL info: metric might not be a counter")


async def test_an_answer_too_large_for_one_number_is_refused(url: str) -> None:
    wide = "x" * (2 * LARGEST_ANSWER // BULK)
    query = f'label_replace(bulk, "wide", "{wide}", "", "")'
    reading = await until(url, query, lambda reading: reading.unknown is not UnknownCause.NO_SERIES)
    assert (reading.unknown, reading.free) == (UnknownCause.REFUSED, None)
    assert f"more than {LARGEST_ANSWER} bytes" in reading.detail


async def test_a_time_limit_may_have_a_fraction(url: str) -> None:
    assert (await read(url, "7", timeout=20.5)).free == 7
    status, answer = await asked(url, "one", timeout="20.5s")
    assert (status, answer["errorType"]) == (400, "bad_data"), "why the limit is sent without a unit"


async def test_an_old_sample_is_not_a_number_of_now(url: str) -> None:
    """Prometheus answers with the sample as if it were of now, and only leaves it out when told how old is too old."""
    _, answer = await asked(url, "old")
    ((at, value),) = (series["value"] for series in answer["data"]["result"])
    assert value == "5"
    assert at > time.time() - OLD_S / 2, "the timestamp does not betray its age"

    reading = await read(url, "old", stale_after=OLD_S / 2)
    assert (reading.unknown, reading.free) == (UnknownCause.NO_SERIES, None)
    assert "samples of the last 30 s" in reading.detail
    assert (await read(url, "old", stale_after=100 * OLD_S)).free == 5


async def test_a_target_that_has_gone_leaves_no_number() -> None:
    """Most series end with the first scrape that fails; those with timestamps of their own end with their age."""
    stamped = f"# TYPE stamped gauge\nstamped 5 {time.time() * 1000:.0f}\n"
    async with contextlib.AsyncExitStack() as going:
        scraped = await going.enter_async_context(target(SERIES + stamped))
        async with starter.prometheus({"test": scraped}, "--query.lookback-delta=2s") as server:
            for query, free in (("one", 7), ("stamped", 5)):
                await until(server.url, query, lambda reading, free=free: reading.free == free, stale_after=3600)
            await going.aclose()

            reading = await until(server.url, "one", lambda reading: reading.free is None, stale_after=3600)
            assert reading.unknown is UnknownCause.NO_SERIES
            reading = await until(server.url, "stamped", lambda reading: reading.free is None, stale_after=2)
            assert reading.unknown is UnknownCause.NO_SERIES
            # What is too old is the sampler's setting, whatever the server's own limit is.
            assert (await asked(server.url, "stamped"))[1]["data"]["result"] == []
            assert (await read(server.url, "stamped", stale_after=3600)).free == 5


def _stands_still(pid: int) -> bool:
    """Whether the kernel has stopped all of its threads, which takes it a moment."""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in threads)


async def test_a_server_that_hangs_or_has_ended_is_unreachable(url: str) -> None:
    async with starter.prometheus() as server:
        assert (await read(server.url, "1")).free == 1
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await eventually(lambda: asyncio.to_thread(_stands_still, server.pid), describe="every thread is stopped")
            reading = await read(server.url, "1", timeout=0.3)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert (reading.unknown, reading.detail) == (UnknownCause.UNREACHABLE, "no answer in 0.3 s")
        assert (await read(server.url, "1")).free == 1

        await server.stop()
        reading = await read(server.url, "1")
        assert (reading.unknown, reading.free) == (UnknownCause.UNREACHABLE, None)
    reading = await read(f"{url}/elsewhere", "1")
    assert (reading.unknown, reading.detail[:9]) == (UnknownCause.REFUSED, "HTTP 404:")


async def test_the_labs_numbers_are_the_real_ones(tmp_path: Path) -> None:
    """The lab answers a few queries by itself; a real server that scrapes the lab gives the same numbers."""
    async with contextlib.AsyncExitStack() as stack:
        home = await stack.enter_async_context(house(tmp_path))
        lab = (await stack.enter_async_context(lab_part("metrics", "--kubeconfig", str(home.kubeconfig))))["url"]
        real = (await stack.enter_async_context(starter.prometheus({"lab": lab}))).url

        async def both(free: float | None, besides_lowest: float | None) -> None:
            for query, number in ((FREE_GPUS, free), (FREE_GPUS_BESIDES_LOWEST, besides_lowest)):
                for server in (lab, real):
                    reading = await until(server, query, lambda reading, number=number: reading.free == number)
                    assert reading.unknown is (UnknownCause.NO_SERIES if number is None else None), (server, reading)

        await until(real, "up", lambda reading: reading.free == 1)
        await both(None, None)  # no node, no series: not a zero
        await home.node("n1", 8)
        await home.node("n2", 8)
        await home.pod("held", 3, on="n1")
        await both(13, 13)
        for name, value in (("low", -10), ("high", 1000)):
            made = await home.kube.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
            assert isinstance(made, Done), made
        await home.pod("least", 4, on="n2", priorityClassName="low")
        await home.pod("most", 1, on="n2", priorityClassName="high")
        await both(8, 12)
        reading = await until(real, "overspill_lab_gpus_free", lambda reading: reading.free is not None)
        assert reading.free == 8

        env = {"OVERSPILL_SAMPLER_INTERVAL": "0.2", "OVERSPILL_SAMPLER_QUERY_TIMEOUT": "9.5"}
        env |= {"OVERSPILL_SAMPLER_PROMETHEUS_URL": real, "OVERSPILL_SAMPLER_QUERY": FREE_GPUS}
        settings = load(Settings, service=SERVICE, env=home.env(**env))
        async with running(serve(SERVICE, settings, body, lease=LEASE)):

            async def agreed() -> bool:
                samples = await home.events(CapacitySampled)
                free = {one.source: one.free for one in samples[-1].event.readings} if samples else {}
                return free == {Source.CLUSTER: 8, Source.QUERY: 8}

            await eventually(agreed, describe="both sources of a sample say the same")


def shape(value: Any) -> Any:
    """What an answer is made of, without what it is about: the labels of a series are as many as they are."""
    if isinstance(value, dict):
        return {key: "labels" if key == "metric" else shape(inner) for key, inner in value.items()}
    if isinstance(value, list) and len(value) == 2 and not isinstance(value[0], (dict, str)):
        return [shape(inner) for inner in value]  # a sample
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


async def same(real: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """The real server answers so, at the latest when it has scraped again."""
    seen: list[Any] = []

    async def is_same() -> bool:
        seen.append(await real())
        return seen[-1] == expected

    with contextlib.suppress(AssertionError):
        await eventually(is_same)
    assert seen[-1] == expected


def _warns(script: ScriptedPrometheus) -> None:
    script.says("+Inf", warnings=("PromQL warning: quantile",))


def _informs(script: ScriptedPrometheus) -> None:
    script.says("0", infos=("PromQL info: not a counter",))


@pytest.mark.parametrize(
    ("query", "scripted"),
    [
        ("one", lambda script: script.says("7")),
        ("nothing", lambda script: script.says()),
        ("few", lambda script: script.says("1", "2")),
        ("broken", lambda script: script.says("NaN")),
        ("quantile(2, few)", _warns),
        ("rate(one[1m])", _informs),
        ("sum(", lambda script: script.fails(400, "bad_data", "parse error")),
        ("few + on() few", lambda script: script.fails(422, "execution", "many-to-many")),
    ],
)
async def test_the_scripted_answers_have_the_real_shapes(
    url: str, query: str, scripted: Callable[[ScriptedPrometheus], None]
) -> None:
    async with scripted_prometheus() as script:
        scripted(script)
        status, ours = await asked(script.url, query)

        async def real() -> tuple[Any, ...]:
            real_status, answer = await asked(url, query)
            return real_status, shape(answer), answer.get("errorType")

        await same(real, (status, shape(ours), ours.get("errorType")))


async def test_the_lab_refuses_as_the_real_one_does(url: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        home = await stack.enter_async_context(house(tmp_path))
        lab = (await stack.enter_async_context(lab_part("metrics", "--kubeconfig", str(home.kubeconfig))))["url"]
        await home.node("n1", 8)
        await until(lab, FREE_GPUS, lambda reading: reading.free == 8)
        for query, more in (("sum(", {}), ("", {}), (FREE_GPUS, {"time": "yesterday"})):
            (real_status, real), (status, ours) = await asked(url, query, **more), await asked(lab, query, **more)
            assert (status, shape(ours), ours["errorType"]) == (real_status, shape(real), real["errorType"])
        _, ours = await asked(lab, FREE_GPUS)

        async def real_shape() -> Any:
            return shape((await asked(url, "sum(one)"))[1])

        await same(real_shape, shape(ours))
        assert [series["metric"] for series in ours["data"]["result"]] == [{}]


async def test_nothing_is_left_of_a_server() -> None:
    async with starter.prometheus() as one, starter.prometheus() as two:
        assert one.url != two.url
        folders = [server.program.log.parent for server in (one, two)]
    for server, folder in zip((one, two), folders, strict=True):
        assert server.program.process.returncode is not None
        assert not folder.exists()


async def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(StartError, match=r"prometheus ended with \d+; (?s:.*)no-such-flag"):
        async with starter.prometheus(None, "--no-such-flag"):
            pytest.fail("it started")
