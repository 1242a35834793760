"""The sampler with a real bus, the lab's API server and a scripted Prometheus."""

import os
import signal

import pytest

from overspill_events.catalog import CapacitySampled, LeadershipLost, LeadershipTaken, ServiceStarted, ServiceStopped
from overspill_events.names import SPILLABLE_LABEL, VIRTUAL_LABEL
from overspill_events.reasons import Source, UnknownCause
from overspill_runtime.settings import load
from overspill_sampler.service import LEASE, SERVICE, body
from overspill_sampler.settings import Settings
from overspill_service import serve
from tests.support.house import eventually, house, running
from tests.support.prometheus import scripted_prometheus


@pytest.fixture
async def home(tmp_path):
    async with house(tmp_path) as home:
        yield home


def sampler(home, **env):
    env = {f"OVERSPILL_SAMPLER_{name}": str(value) for name, value in {"INTERVAL": "0.2", **env}.items()}
    return serve(SERVICE, load(Settings, service=SERVICE, env=home.env(**env)), body, lease=LEASE)


def a_sample(home, holds):
    """Wait until the newest sample's reading of a source is as described."""

    async def newest():
        samples = await home.events(CapacitySampled)
        readings = {reading.source: reading for reading in samples[-1].event.readings} if samples else {}
        return readings if readings and holds(readings) else None

    return eventually(newest, describe="a sample")


async def test_samples_follow_the_cluster(home):
    await home.node("n1", 8)
    await home.node("v", 100, labels={VIRTUAL_LABEL: "true"})
    await home.pod("a", 3, on="n1")
    await home.pod("b", 2, labels={SPILLABLE_LABEL: "true"})
    async with running(sampler(home)):
        readings = await a_sample(home, lambda r: r[Source.CLUSTER].free == 5)
        cluster = readings[Source.CLUSTER]
        assert (cluster.total, cluster.used, cluster.largest_block, cluster.room["2"]) == (8, 3, 5, 2)
        assert (cluster.waiting_pods, cluster.waiting_gpus) == (1, 2)
        assert Source.QUERY not in readings
        await home.node("n2", 4)
        await a_sample(home, lambda r: r[Source.CLUSTER].free == 9)
    told = [type(one.event) for one in await home.events()]
    assert told[:2] == [ServiceStarted, LeadershipTaken]
    assert told[-2:] == [LeadershipLost, ServiceStopped]


async def test_both_sources_are_in_one_event_and_the_query_is_never_zero_by_accident(home):
    await home.node("n1", 8)
    async with scripted_prometheus() as prometheus:
        prometheus.says("4")
        env = {"PROMETHEUS_URL": prometheus.url, "QUERY": "sum(free)", "PROMETHEUS_TOKEN": "hush", "QUERY_TIMEOUT": 0.5}
        async with running(sampler(home, **env)):
            readings = await a_sample(home, lambda r: r[Source.QUERY].free == 4)
            assert readings[Source.CLUSTER].free == 8
            asked = prometheus.asked[0]
            assert (asked["query"], asked["authorization"]) == ("sum(free)", "Bearer hush")
            assert (asked["timeout"], asked["lookback_delta"]) == ("0.5", "150.0"), (
                "plain numbers: no unit takes fractions"
            )
            for change, cause in (
                (prometheus.says, UnknownCause.NO_SERIES),
                (lambda: prometheus.says("1", "2"), UnknownCause.MANY_SERIES),
                (lambda: prometheus.says("NaN"), UnknownCause.NOT_A_NUMBER),
                (lambda: prometheus.says("1", age=1000), UnknownCause.STALE),
                (lambda: prometheus.says("1", warnings=("partial",)), UnknownCause.WARNED),
                (lambda: prometheus.fails(422, "execution", "many-to-many"), UnknownCause.REFUSED),
                (lambda: setattr(prometheus, "hang", True), UnknownCause.UNREACHABLE),
            ):
                change()
                readings = await a_sample(home, lambda r, cause=cause: r[Source.QUERY].unknown is cause)
                assert readings[Source.QUERY].free is None
                assert readings[Source.CLUSTER].free == 8, "one source's trouble is not the other's"
    started = (await home.events(ServiceStarted))[0].event
    assert "hush" not in str(started)


async def test_prometheus_away_is_unreachable(home):
    await home.node("n1", 8)
    async with running(sampler(home, PROMETHEUS_URL="http://127.0.0.1:9", QUERY="x")):
        readings = await a_sample(home, lambda r: r[Source.QUERY].unknown is not None)
        assert readings[Source.QUERY].unknown is UnknownCause.UNREACHABLE


async def test_a_watch_that_has_gone_silent_is_unknown_and_not_the_last_number(home):
    await home.node("n1", 8)
    async with running(sampler(home, STALE_AFTER="0.6")):
        readings = await a_sample(home, lambda r: r[Source.CLUSTER].unknown is not None)
        cluster = readings[Source.CLUSTER]
        assert (cluster.unknown, cluster.free) == (UnknownCause.NOT_SYNCED, None)
        assert "silent" in cluster.detail


async def test_samples_made_while_the_bus_was_away_arrive_later_in_order(home):
    await home.node("n1", 8)
    async with running(sampler(home)):
        await a_sample(home, lambda r: r[Source.CLUSTER].free == 8)
        os.kill(home.nats.pid, signal.SIGKILL)
        await home.node("n2", 4)
        await home.nats.restart()
        await a_sample(home, lambda r: r[Source.CLUSTER].free == 12)
    samples = await home.events(CapacitySampled)
    assert [one.envelope.time for one in samples] == sorted(one.envelope.time for one in samples)
    numbers = [one.envelope.sequence for one in await home.events() if one.envelope.source.endswith("/sampler")]
    assert numbers == list(range(1, len(numbers) + 1)), "no gap: the record shows that nothing was lost"


async def test_started_again_it_goes_on(home):
    await home.node("n1", 8)
    async with running(sampler(home)):
        await a_sample(home, lambda r: r[Source.CLUSTER].free == 8)
    await home.pod("a", 8, on="n1")
    async with running(sampler(home)):
        await a_sample(home, lambda r: r[Source.CLUSTER].free == 0)
