"""The evictor with a real bus and the lab's API server."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from overspill_events.catalog import (
    EvictionRefused,
    GateClosed,
    LeadershipTaken,
    OwnerRef,
    PodEvicted,
    PodHeld,
    PodRef,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.reasons import GateReason, HoldReason, Place, RefusalReason
from overspill_evictor import service
from overspill_evictor.cluster import Cluster
from overspill_kube.client import Client
from overspill_kube.resources import PODS
from overspill_runtime.clock import Clock, SystemClock
from tests.component.overspill_evictor.home import HOME, VIRTUAL, Home
from tests.component.overspill_evictor.proxy import Fault, eviction_proxy
from tests.support.house import eventually, house


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Home]:
    async with house(tmp_path) as built:
        yield Home(built)


async def test_a_spilled_pod_comes_home(place: Home) -> None:
    """Intent, eviction and settlement, each the cause of the next, back to the closing of the gate."""
    await place.build()
    away = await place.replica(on=VIRTUAL)
    await place.replica(on=HOME)
    await place.replica(on=HOME)
    closed = await place.house.others.publish(GateClosed(node=VIRTUAL, reason=GateReason.HOME_HAS_ROOM))
    async with place.evictor(), place.kept(3):
        (settled,) = await place.until_told(ReturnSettled)
    assert (settled.pod.name, settled.place, settled.node) == (away, Place.HOME, HOME)
    chain = await place.house.events(ReturnIntended, PodEvicted, ReturnSettled)
    assert [type(one.event) for one in chain] == [ReturnIntended, PodEvicted, ReturnSettled]
    intent = chain[0]
    assert intent.envelope.causation_id == closed.envelope.id
    assert [one.envelope.causation_id for one in chain[1:]] == [intent.envelope.id] * 2
    assert len({one.envelope.correlation_id for one in chain}) == 1
    assert isinstance(intent.event, ReturnIntended)
    assert (intent.event.ready_replicas, intent.event.floor, intent.event.home_free_gpus) == (3, 1, 6)


async def test_replicas_come_home_one_after_the_other_and_never_below_the_floor(place: Home) -> None:
    """Three replicas away, floor two: at every look at least two are ready, and all come home."""
    await place.build()
    for _ in range(3):
        await place.replica(on=VIRTUAL, **{"overspill.dev/floor": "2"})
    async with place.evictor():
        await place.until_told(PodEvicted)
        await asyncio.sleep(1)  # several cycles without a successor: the next must wait
        assert len(await place.told(PodEvicted)) == 1
        async with place.kept(3):
            settled = await place.until_told(ReturnSettled, 3)
    assert {one.place for one in settled} == {Place.HOME}
    assert {pod.spec.node_name for pod in (await place.pods()).values()} == {HOME}
    ready = [one.ready_replicas for one in await place.told(ReturnIntended)]
    assert min(ready) >= 3


async def test_an_open_gate_holds_everybody_and_says_so_once(place: Home) -> None:
    """GATE_OPEN in one event per pod, however many cycles; after the closing it goes on."""
    await place.build(closed=False)
    await place.replica(on=VIRTUAL)
    await place.replica(on=HOME)
    async with place.evictor(MAX_PER_CYCLE="1"):
        await place.until_told(PodHeld)
        await asyncio.sleep(1)
        assert [held.reason for held in await place.told(PodHeld)] == [HoldReason.GATE_OPEN]
        await place.close_gate()
        await place.until_told(PodEvicted)


async def test_a_pod_without_an_instance_returns_first_at_any_age(place: Home) -> None:
    """Bound and not running: no minimum age; the running one is too young."""
    await place.build(gpus=8)
    await place.replica(on=HOME)
    running_ = await place.replica(on=VIRTUAL)
    waiting = await place.replica(on=VIRTUAL, phase="Pending")
    year = str(3600 * 24 * 365 * 50)
    async with place.evictor(MIN_POD_AGE=year):
        (evicted,) = await place.until_told(PodEvicted)
        assert evicted.pod.name == waiting
    held = {one.pod.name: one.reason for one in await place.told(PodHeld)}
    assert held[running_] is HoldReason.TOO_YOUNG


async def test_a_budget_refuses_and_its_numbers_are_on_record(place: Home) -> None:
    """Asked as a dry run, told once, no intent; when the budget allows it the pod returns."""
    await place.build()
    await place.replica(on=HOME)
    away = await place.replica(on=VIRTUAL)
    await place.budget(allowed=0)
    async with place.evictor():
        (refused,) = await place.until_told(EvictionRefused)
        assert (refused.reason, refused.pdb, refused.pod.name) == (RefusalReason.PDB, "web", away)
        assert (refused.disruptions_allowed, refused.current_healthy, refused.desired_healthy) == (0, 2, 2)
        await asyncio.sleep(1.5)  # asked again meanwhile
        assert len(await place.told(EvictionRefused)) == 1
        assert await place.told(ReturnIntended) == []
        assert await place.leaving() == set()
        assert HoldReason.PDB in [held.reason for held in await place.told(PodHeld)]
        await place.budget(allowed=1)
        await place.until_told(PodEvicted)


async def test_observing_decides_and_does_nothing(place: Home) -> None:
    """Every decision on record, no intent, no eviction."""
    await place.build()
    await place.replica(on=HOME)
    away = await place.replica(on=VIRTUAL)
    async with place.evictor(MODE="observe"):
        (refused,) = await place.until_told(EvictionRefused)
        await asyncio.sleep(1)
    assert (refused.reason, refused.message) == (RefusalReason.OBSERVING, f"would evict {away} for {HOME}")
    assert len(await place.told(EvictionRefused)) == 1
    assert await place.told(ReturnIntended, PodEvicted) == []
    assert await place.leaving() == set()


async def test_without_the_bus_nobody_is_evicted(place: Home) -> None:
    """NATS away: the evictor holds still; back again, it goes on."""
    await place.build(closed=False)
    await place.replica(on=HOME)
    away = await place.replica(on=VIRTUAL)
    async with place.evictor():
        await place.until_told(PodHeld)
        await place.house.nats.kill()
        await place.close_gate()
        await asyncio.sleep(2)
        assert await place.leaving() == set()
        await place.house.nats.restart()
        (evicted,) = await place.until_told(PodEvicted)
        assert evicted.pod.name == away


async def test_a_return_that_spilled_again_backs_its_owner_off(place: Home) -> None:
    """The successor landed on the virtual node: told as such, and the owner rests."""
    await place.build()
    await place.replica(on=HOME)
    await place.replica(on=VIRTUAL)
    async with place.evictor(BACKOFF="600"), place.kept(2, on=VIRTUAL):
        (settled,) = await place.until_told(ReturnSettled)
        assert (settled.place, settled.node) == (Place.VIRTUAL, VIRTUAL)

        async def rests() -> bool:
            return HoldReason.OWNER_BACKOFF in [held.reason for held in await place.told(PodHeld)]

        await eventually(rests)
        assert len(await place.told(PodEvicted)) == 1


async def test_a_successor_that_never_comes_frees_the_room(place: Home) -> None:
    """The return expires; that counts as failed."""
    await place.build()
    await place.replica(on=HOME)
    await place.replica(on=VIRTUAL)
    async with place.evictor(RETURN_TIMEOUT="1.5"):
        (settled,) = await place.until_told(ReturnSettled)
    assert (settled.place, settled.successor) == (Place.EXPIRED, None)


async def test_pods_under_one_budget_leave_one_after_the_other(place: Home) -> None:
    """The budget allows one: the second is asked about when the first is counted, so that no intent comes to nothing."""
    await place.build(replicas=4)
    await place.replica(on=HOME)
    await place.replica(on=HOME)
    for _ in range(2):
        await place.replica(on=VIRTUAL)
    await place.budget(allowed=1)
    async with place.evictor(MAX_IN_FLIGHT_PER_OWNER="2"):
        await place.until_told(EvictionRefused)
        await place.until_told(PodEvicted)
    assert len(await place.told(ReturnIntended)) == 1
    assert len(await place.leaving()) == 1


async def test_a_throttling_server_slows_the_whole_loop(place: Home, tmp_path: Path) -> None:
    """429 without a budget's cause: told with the server's wish, nobody else is asked for meanwhile, then it goes on."""
    await place.build()
    await place.replica(on=HOME)
    for _ in range(2):
        await place.replica(on=VIRTUAL)
    async with eviction_proxy(place.house.kubeconfig, tmp_path) as (proxy, kubeconfig):
        proxy.faults.append(Fault.THROTTLE)
        async with place.evictor(KUBECONFIG=str(kubeconfig), MAX_IN_FLIGHT_PER_OWNER="2"):
            (refused,) = await place.until_told(EvictionRefused)
            assert (refused.reason, refused.retry_after_seconds) == (RefusalReason.THROTTLED, 2)
            (settled,) = await place.until_told(ReturnSettled)
            assert settled.place is Place.NOT_EVICTED
            await asyncio.sleep(1)
            assert proxy.evictions == 1
            await place.until_told(PodEvicted, 2)


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST])
async def test_an_eviction_without_an_answer_is_found_out(place: Home, tmp_path: Path, fault: Fault) -> None:
    """The cluster tells whether it happened: told once as evicted, or as not evicted and tried again."""
    await place.build()
    await place.replica(on=HOME)
    away = await place.replica(on=VIRTUAL)
    async with eviction_proxy(place.house.kubeconfig, tmp_path) as (proxy, kubeconfig):
        proxy.faults.append(fault)
        async with place.evictor(KUBECONFIG=str(kubeconfig)), place.kept(2):

            async def at_home() -> bool:
                return Place.HOME in [one.place for one in await place.told(ReturnSettled)]

            await eventually(at_home)
    assert [one.pod.name for one in await place.told(PodEvicted)] == [away]
    places = [one.place for one in await place.told(ReturnSettled)]
    assert places == ([Place.HOME] if fault is Fault.LOSE_ANSWER else [Place.NOT_EVICTED, Place.HOME])
    assert len(await place.told(ReturnIntended)) == len(places)


async def test_home_that_fills_up_while_the_trial_lasts_gets_nobody(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last room is taken after plan and look, and the evictor has heard of it: no intent, no eviction, told why."""
    await place.build(gpus=1, replicas=2)
    for _ in range(2):
        await place.replica(on=VIRTUAL)
    copies: list[Cluster] = []

    class Followed(Cluster):
        def __init__(self, client: Client, clock: Clock) -> None:
            super().__init__(client, clock)
            copies.append(self)

    async def heard() -> bool:
        return copies[0].pods.get("default", "other") is not None

    async def fill() -> None:
        if not await heard():
            await place.house.pod("other", 1, on=HOME)
            await eventually(heard)

    monkeypatch.setattr(service, "Cluster", Followed)
    async with eviction_proxy(place.house.kubeconfig, tmp_path) as (proxy, kubeconfig):
        proxy.before_trial = fill
        async with place.evictor(KUBECONFIG=str(kubeconfig)):

            async def told_why() -> bool:
                return HoldReason.NO_HOME_FIT in [held.reason for held in await place.told(PodHeld)]

            await eventually(told_why)
            assert proxy.evictions == 0
    assert await place.told(ReturnIntended) == []
    assert await place.leaving() == set()


async def intended(place: Home, name: str) -> ReturnIntended:
    """An intent that a predecessor left behind."""
    pod = (await place.pods())[name]
    intent = ReturnIntended(
        pod=PodRef(namespace="default", name=name, uid=pod.metadata.uid),
        owner=OwnerRef(kind="ReplicaSet", name="web", uid=place.owner),
        node=VIRTUAL, home_node=HOME, gpus=1, expires_at=SystemClock().now() + timedelta(seconds=60),
    )  # fmt: skip
    await place.house.others.publish(intent)
    return intent


async def test_a_dangling_intent_whose_pod_stays_came_to_nothing(place: Home) -> None:
    """The predecessor died before the eviction: NOT_EVICTED, then the pod is judged like every other."""
    await place.build(closed=False)
    away = await place.replica(on=VIRTUAL)
    await intended(place, away)
    async with place.evictor():
        (settled,) = await place.until_told(ReturnSettled)
        assert (settled.pod.name, settled.place) == (away, Place.NOT_EVICTED)
        held = await place.until_told(PodHeld)
        assert held[0].reason is HoldReason.GATE_OPEN
    assert await place.told(PodEvicted) == []


async def test_a_dangling_intent_whose_pod_is_gone_was_carried_out(place: Home) -> None:
    """The predecessor died after the eviction: told as evicted, and its successor is followed."""
    await place.build(closed=False)
    away = await place.replica(on=VIRTUAL)
    await intended(place, away)
    await place.kube.delete(PODS, away, "default", grace_seconds=0)
    heir = await place.replica(on=HOME)
    async with place.evictor():
        (settled,) = await place.until_told(ReturnSettled)
    (evicted,) = await place.told(PodEvicted)
    assert evicted.pod.name == away
    assert (settled.place, settled.successor.name) == (Place.HOME, heir)


class Program:
    """`python -m overspill_evictor`, to be killed."""

    def __init__(self, place: Home, **own: str) -> None:
        settings = place.settings()
        fields = (
            "interval",
            "gate_settle",
            "min_pod_age",
            "max_per_cycle",
            "return_timeout",
            "backoff",
            "refusal_retry",
            "memory",
        )
        self.env = {
            **os.environ,
            **place.house.env(OVERSPILL_IDENTITY="evictor", **own),
            **{f"OVERSPILL_EVICTOR_{name.upper()}": str(getattr(settings, name)) for name in fields},
        }  # fmt: skip
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "overspill_evictor", env=self.env, stderr=asyncio.subprocess.DEVNULL
        )

    async def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        await self.process.wait()


async def test_killed_again_and_again_it_evicts_everybody_once(place: Home) -> None:
    """SIGKILL at any moment: no pod is evicted twice, every intent has one end, all come home."""
    count = 6
    await place.build(gpus=16, replicas=count)
    first = [await place.replica(on=VIRTUAL) for _ in range(count)]
    program = Program(place)
    async with place.kept(count):
        for kill_after in range(1, 4):
            await program.start()
            await place.until_told(PodEvicted, kill_after)
            await program.end(signal.SIGKILL)
        await program.start()
        try:

            async def home_again() -> bool:
                pods = (await place.pods()).values()
                return len(pods) == count and {pod.spec.node_name for pod in pods} == {HOME}

            await eventually(home_again)

            async def all_settled() -> bool:
                intents, ends = await place.told(ReturnIntended), await place.told(ReturnSettled)
                return len(intents) == len(ends)

            await eventually(all_settled)
        finally:
            await program.end(signal.SIGTERM)
    evicted = Counter(event.pod.uid for event in await place.told(PodEvicted))
    assert len(evicted) == count
    assert set(evicted.values()) == {1}
    assert {event.pod.name for event in await place.told(PodEvicted)} == set(first)
    assert len(await place.told(LeadershipTaken)) == 4
    ends: list[Any] = await place.told(ReturnSettled)
    assert {end.place for end in ends} <= {Place.HOME, Place.NOT_EVICTED}
