"""The decider with a real bus and the lab's API server; the test speaks for sampler, bridge and evictor."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from datetime import timedelta

import nats
import pytest

from overspill_bus import BusSettings, connect
from overspill_decider.service import LEASE, SERVICE, SWITCH, body
from overspill_decider.settings import Settings
from overspill_events.catalog import (
    CapacitySampled,
    DriftCleared,
    DriftDetected,
    GateClosed,
    GateDecided,
    GateOpened,
    Offering,
    OwnerRef,
    PodRef,
    ProviderSampled,
    Reading,
    ReturnIntended,
    ReturnSettled,
    ServiceStarted,
)
from overspill_events.names import BASE_TAINT, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_events.reasons import GateReason, Place, Source, UnknownCause, Verdict
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_runtime.clock import SystemClock
from overspill_runtime.process import process as process_of
from overspill_runtime.settings import load
from overspill_service import serve
from tests.support.house import CLUSTER, PATIENCE_S, eventually, house, running

NODE = "virtual"
TAINTS = (
    {"key": BASE_TAINT, "effect": "NoSchedule"},
    {"key": "team", "value": "a", "effect": "PreferNoSchedule"},
    {"key": SWITCH_TAINT, "effect": "NoSchedule"},
)
SHORT = {
    "INTERVAL": "0.2", "WINDOW": "1", "OPEN_HOLD": "0.4", "CLOSE_HOLD": "0.4", "STALE_AFTER": "1.5", "DRIFT_AFTER": "0.6",
    "MIN_COVERAGE": "0.5", "LOW_MARK": "1", "HIGH_MARK": "8",
}  # fmt: skip


class Neighbours:
    """What the other services would say: samples every 0.15 s of whatever the test sets, and a provider."""

    def __init__(self, home):
        self.home = home
        self.free, self.query, self.stuck = 20.0, None, 0
        self.provider(stock=3)

    def provider(self, *, stock):
        offering = Offering(id="a", gpu_type="G", gpus=1, region="r", price_per_hour=1.0, stock=stock)
        self.home.others.emit(ProviderSampled(provider="fake", healthy=True, offerings=(offering,)))

    def sample(self):
        now = SystemClock().now()
        cause = self.free if isinstance(self.free, UnknownCause) else None
        numbers = {} if cause else {"free": self.free, "stuck_pods": self.stuck}
        readings = [Reading(source=Source.CLUSTER, observed_at=now, unknown=cause, **numbers)]
        if self.query is not None:
            readings.append(Reading(source=Source.QUERY, observed_at=now, free=self.query))
        self.home.others.emit(CapacitySampled(pool="default", resource="nvidia.com/gpu", readings=tuple(readings)))

    async def talk(self):
        while True:
            self.sample()
            await asyncio.sleep(0.15)


@pytest.fixture
async def home(tmp_path):
    async with house(tmp_path) as home:
        await home.node(NODE, 100, labels={VIRTUAL_LABEL: "true"}, taints=TAINTS)
        yield home


@pytest.fixture
async def neighbours(home):
    neighbours = Neighbours(home)
    talking = asyncio.create_task(neighbours.talk())
    yield neighbours
    talking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await talking


def env_of(home, **env):
    return home.env(**{f"OVERSPILL_DECIDER_{k}": v for k, v in SHORT.items()}, **env)


def decider(home, **env):
    return serve(SERVICE, load(Settings, service=SERVICE, env=env_of(home, **env)), body, lease=LEASE)


async def taints(home):
    node = await home.kube.get(NODES, NODE)
    return {taint.key for taint in node.spec.taints}


async def gate_is(home, *, is_open):
    async def asked():
        return (SWITCH_TAINT not in await taints(home)) == is_open

    await eventually(asked, describe=f"gate open={is_open}")


async def told(home, *types, count=1):
    """Wait until so many events of these types are on the record."""

    async def asked():
        events = await home.events(*types)
        return events if len(events) >= count else None

    return await eventually(asked, describe=f"{count} of {[t.__name__ for t in types]}")


async def decided(home, reason):
    async def asked():
        events = await home.events(GateDecided)
        return events[-1].event if events and events[-1].event.reason is reason else None

    return await eventually(asked, describe=f"decision {reason}")


async def flips(home):
    return [(type(one.event), one.event.reason) for one in await home.events(GateOpened, GateClosed)]


OPENED, CLOSED = (GateOpened, GateReason.HOME_FULL), (GateClosed, GateReason.HOME_HAS_ROOM)


async def test_it_opens_when_home_is_full_and_closes_when_there_is_room(home, neighbours):
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        neighbours.free = 0.0
        await gate_is(home, is_open=True)
        assert await taints(home) == {BASE_TAINT, "team"}, "nobody else's taint is touched"
        neighbours.free = 20.0
        await gate_is(home, is_open=False)
        await told(home, GateClosed)
        assert await taints(home) == {BASE_TAINT, "team", SWITCH_TAINT}
    assert await flips(home) == [OPENED, CLOSED]


async def test_every_flip_names_its_decision_and_every_decision_its_sample(home, neighbours):
    neighbours.free = 0.0
    async with running(decider(home)):
        (opened,) = await told(home, GateOpened)
    everything = {one.envelope.id: one for one in await home.events()}
    decision = everything[opened.envelope.causation_id]
    assert (decision.event.verdict, decision.event.reason) == (Verdict.OPEN, GateReason.HOME_FULL)
    assert (decision.event.average, decision.event.low_mark, decision.event.provider_stock) == (0.0, 1.0, 3)
    assert decision.envelope.stream_sequence < opened.envelope.stream_sequence
    sample = everything[decision.envelope.causation_id]
    assert isinstance(sample.event, CapacitySampled)
    assert sample.envelope.correlation_id == decision.envelope.correlation_id == opened.envelope.correlation_id


async def test_round_after_round_without_a_change_says_and_writes_nothing(home, neighbours):
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        before = len(await home.events(GateDecided)), await home.kube.get(NODES, NODE)
        sampled = len(await home.events(CapacitySampled))
        await told(home, CapacitySampled, count=sampled + 10)
        assert (len(await home.events(GateDecided)), await home.kube.get(NODES, NODE)) == before


async def test_unknown_and_silence_hold_the_gate(home, neighbours):
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        neighbours.free = UnknownCause.NOT_SYNCED
        decision = await decided(home, GateReason.SAMPLES_UNKNOWN)
        assert decision.verdict is Verdict.CLOSED
        neighbours.sample = lambda: None
        await decided(home, GateReason.SAMPLES_STALE)
    assert await flips(home) == []


class ClockAhead(SystemClock):
    """Of a machine whose time is an hour too early."""

    def now(self):
        return super().now() + timedelta(hours=1)


async def test_a_sample_from_a_clock_ahead_hides_no_true_one(home, neighbours):
    settings = BusSettings(cluster=CLUSTER, service="sampler", nats_url=home.nats.url)
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        async with connect(settings, clock=ClockAhead(), wait=True) as ahead:
            reading = Reading(source=Source.CLUSTER, observed_at=ClockAhead().now(), free=20.0)
            await ahead.publish(CapacitySampled(pool="default", resource="nvidia.com/gpu", readings=(reading,)))
        neighbours.free = 0.0
        await gate_is(home, is_open=True)


class ClockOfOurs(SystemClock):
    """The decider's own: behind by what the test sets, or standing still."""

    def __init__(self, *, behind=timedelta()):
        self.behind, self.stands_at = behind, None

    def now(self):
        return self.stands_at or super().now() - self.behind


@contextlib.asynccontextmanager
async def deciding_by(clock, home):
    settings = load(Settings, service=SERVICE, env=env_of(home))
    async with (
        process_of(settings, service=SERVICE, clock=clock) as own,
        running(serve(SERVICE, settings, body, lease=LEASE, process=own)),
    ):
        yield


async def test_silence_is_noticed_though_its_own_clock_stands_still(home, neighbours):
    clock = ClockOfOurs()
    async with deciding_by(clock, home):
        await decided(home, GateReason.ALREADY)
        neighbours.sample = lambda: None
        clock.stands_at = clock.now()
        await decided(home, GateReason.SAMPLES_STALE)


async def test_samples_far_ahead_of_its_own_clock_move_no_gate(home, neighbours):
    """Which of the clocks is wrong nobody knows: it holds, and says so."""
    neighbours.free = 0.0
    async with deciding_by(ClockOfOurs(behind=timedelta(hours=1)), home):
        decision = await decided(home, GateReason.SAMPLES_STALE)
        assert "ahead of the decider's clock" in decision.detail
        sampled = len(await home.events(CapacitySampled))
        await told(home, CapacitySampled, count=sampled + 20)
    assert (await flips(home), SWITCH_TAINT in await taints(home)) == ([], True)


async def test_it_does_not_open_without_stock_nor_during_a_return(home, neighbours):
    neighbours.free = 0.0
    neighbours.provider(stock=0)
    async with running(decider(home)):
        await decided(home, GateReason.NO_PROVIDER_STOCK)
        pod = PodRef(namespace="ml", name="p", uid="u")
        owner = OwnerRef(kind="ReplicaSet", name="r", uid="r")
        expiry = SystemClock().now() + timedelta(seconds=600)
        home.others.emit(ReturnIntended(pod=pod, owner=owner, node=NODE, home_node="n1", gpus=1, expires_at=expiry))
        neighbours.provider(stock=3)
        decision = await decided(home, GateReason.RETURN_UNSETTLED)
        assert decision.unsettled_returns == 1
        assert SWITCH_TAINT in await taints(home)
        home.others.emit(ReturnSettled(pod=pod, place=Place.HOME))
        await gate_is(home, is_open=True)


async def test_stuck_pods_behind_the_closed_gate_raise_drift_open_it_and_clear(home, neighbours):
    neighbours.query, neighbours.free, neighbours.stuck = 20.0, 20.0, 2
    async with running(decider(home)):
        (raised,) = await told(home, DriftDetected)
        assert (raised.event.kind, raised.event.stuck_pods) == ("stuck-pods", 2)
        await gate_is(home, is_open=True)
        neighbours.stuck = 0
        await told(home, DriftCleared)
        await gate_is(home, is_open=False)
        await told(home, GateClosed)
    assert await flips(home) == [(GateOpened, GateReason.DRIFT), CLOSED]


async def test_a_query_that_says_room_while_the_cluster_is_full_is_noticed(home, neighbours):
    neighbours.query, neighbours.free = 20.0, 0.0
    async with running(decider(home)):
        (raised,) = await told(home, DriftDetected)
        assert (raised.event.kind, raised.event.query_average, raised.event.cluster_average) == (
            "disagreement",
            20.0,
            0.0,
        )
        await gate_is(home, is_open=True)


async def test_observing_decides_and_touches_nothing(home, neighbours):
    neighbours.free = 0.0
    async with running(decider(home, OVERSPILL_MODE="observe")):
        await decided(home, GateReason.HOME_FULL)
        before = len(await home.events(CapacitySampled))
        await told(home, CapacitySampled, count=before + 5)
    assert (await flips(home), SWITCH_TAINT in await taints(home)) == ([], True)
    assert len([one for one in await home.events(GateDecided) if one.event.reason is GateReason.HOME_FULL]) == 1


async def test_with_the_bus_away_nothing_flips_and_afterwards_it_goes_on(home, neighbours):
    """The samples that say "full" cannot arrive, and a decision that cannot be told is not carried out."""
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        os.kill(home.nats.pid, signal.SIGKILL)
        neighbours.free = 0.0
        for _ in range(20):  # four seconds: longer than window and hold together
            await asyncio.sleep(0.2)
            assert SWITCH_TAINT in await taints(home)
        await home.nats.restart()
        await gate_is(home, is_open=True)
        await told(home, GateOpened)
    assert await flips(home) == [OPENED]


async def test_a_stream_made_anew_is_believed_though_its_numbers_are_small(home, neighbours):
    """Drift that was raised at a high number is cleared in the new stream, once, and the gate it kept open closes."""
    for _ in range(2000):
        home.others.emit(ServiceStarted(service="others", version="1", mode="act"))
    assert await home.others.flush(PATIENCE_S)
    neighbours.query, neighbours.free, neighbours.stuck = 20.0, 20.0, 2
    async with running(decider(home)):
        await told(home, DriftDetected)
        await gate_is(home, is_open=True)
        await told(home, GateOpened)
        client = await nats.connect(home.nats.url)
        await client.jetstream().delete_stream("EVENTS")
        await client.close()
        neighbours.stuck = 0
        await gate_is(home, is_open=False)
        await told(home, GateClosed)
    assert [type(one.event) for one in await home.events(DriftDetected, DriftCleared, GateOpened, GateClosed)] == [
        DriftCleared,
        GateClosed,
    ]


async def test_it_starts_with_the_bus_away(home, neighbours):
    neighbours.free = 0.0
    os.kill(home.nats.pid, signal.SIGKILL)
    async with running(decider(home)):
        for _ in range(10):
            await asyncio.sleep(0.2)
            assert SWITCH_TAINT in await taints(home)
        await home.nats.restart()
        await gate_is(home, is_open=True)


async def test_a_restart_remembers_how_long_it_has_been_low(home, neighbours):
    """Window and hold are rebuilt from the record: a decider that starts late decides at once."""
    neighbours.free = 0.0
    await told(home, CapacitySampled, count=12)
    async with running(decider(home)):
        first = (await told(home, GateDecided))[0].event
        assert (first.verdict, first.reason, first.samples >= 3) == (Verdict.OPEN, GateReason.HOME_FULL, True)


async def test_a_crash_between_effect_and_result_is_completed_by_the_next_start(home, neighbours):
    neighbours.free = 0.0
    decision = GateDecided(
        node=NODE, verdict=Verdict.OPEN, reason=GateReason.HOME_FULL, average=0.25, low_mark=1, high_mark=8,
        window_seconds=1, samples=5,
    )  # fmt: skip
    settings = BusSettings(cluster=CLUSTER, service=SERVICE, nats_url=home.nats.url)
    async with connect(settings, clock=SystemClock()) as former_self:
        published = await former_self.publish(decision)
    node = await home.kube.get(NODES, NODE)
    await set_taints(home.kube, NODE, remove=[SWITCH], expect_uid=node.metadata.uid)
    async with running(decider(home)):
        (opened,) = await told(home, GateOpened)
        await decided(home, GateReason.ALREADY)
    assert (opened.event.reason, opened.event.average) == (GateReason.HOME_FULL, 0.25)
    assert opened.envelope.causation_id == published.envelope.id
    assert await flips(home) == [OPENED]


async def test_a_decision_whose_effect_is_missing_is_carried_out_and_not_decided_twice(home, neighbours):
    neighbours.free = 0.0
    await told(home, CapacitySampled, count=12)
    async with running(decider(home, OVERSPILL_MODE="observe")):
        await decided(home, GateReason.HOME_FULL)
    async with running(decider(home)):
        (opened,) = await told(home, GateOpened)
    opening = [one for one in await home.events(GateDecided) if one.event.reason is GateReason.HOME_FULL]
    assert [one.envelope.id for one in opening] == [opened.envelope.causation_id]


async def test_a_gate_changed_by_hand_is_told_and_set_right(home, neighbours):
    async with running(decider(home)):
        await decided(home, GateReason.ALREADY)
        node = await home.kube.get(NODES, NODE)
        await set_taints(home.kube, NODE, remove=[SWITCH], expect_uid=node.metadata.uid)
        await told(home, GateClosed)
        await gate_is(home, is_open=False)
    assert await flips(home) == [(GateOpened, GateReason.UNKNOWN), CLOSED]


async def test_a_node_made_anew_is_another_gate(home, neighbours):
    neighbours.free = 0.0
    async with running(decider(home)):
        await gate_is(home, is_open=True)
        await told(home, GateOpened)
        assert isinstance(await home.kube.delete(NODES, NODE), Done)
        await home.node(NODE, 100, labels={VIRTUAL_LABEL: "true"}, taints=TAINTS)
        await told(home, GateOpened, count=2)
        await gate_is(home, is_open=True)
    assert await flips(home) == [OPENED, (GateClosed, GateReason.UNKNOWN), OPENED]


@contextlib.asynccontextmanager
async def process(home):
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "overspill_decider", env={**os.environ, **env_of(home)}, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        _, err = await child.communicate()
        lines = [json.loads(line) for line in err.decode().splitlines() if line.startswith("{")]
        assert not [line for line in lines if line["event"] == "failed"], lines


@pytest.mark.parametrize("killed_at", [GateReason.HOLDING_LOW, GateReason.HOME_FULL])
async def test_killed_in_the_middle_and_started_again_it_ends_the_same(home, neighbours, killed_at):
    async with process(home):
        await decided(home, GateReason.ALREADY)
        neighbours.free = 0.0

        async def reached():
            return any(one.event.reason is killed_at for one in await home.events(GateDecided))

        await eventually(reached)
    async with process(home):
        await gate_is(home, is_open=True)
        await told(home, GateOpened)
        before = len(await home.events(CapacitySampled))
        await told(home, CapacitySampled, count=before + 10)
    assert await flips(home) == [OPENED]
