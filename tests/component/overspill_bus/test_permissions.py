"""A real nats-server with the users that deploy/ gives it: each service can do what it does, and nothing else.

Streams are made by the user `topology`, as at an installation; services leave that to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable

import pytest

from overspill_bus import Bus, BusSettings, BusUnavailable, Poison, Recorded, connect
from overspill_bus.__main__ import main as run_topology
from overspill_bus.permissions import AUDITOR, TOPOLOGY, USES, users_config
from overspill_bus.testing import nats_server
from overspill_events.catalog import CATALOG, GateOpened, NodeRegistered, ServiceStarted
from overspill_events.reasons import GateReason
from overspill_events.subjects import DLQ, STREAM, STREAM_SUBJECTS
from overspill_runtime.clock import SystemClock

CLUSTER = "c"
READERS = sorted(name for name, use in USES.items() if use.reads)


def started(service: str) -> ServiceStarted:
    return ServiceStarted(service=service, version="1", mode="act", settings={})


def password_of(name: str) -> str:
    return f"p-{name}"


class Place:
    """The server, and a bus for any user."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, user: str) -> str:
        return self._url.replace("nats://", f"nats://{user}:{password_of(user)}@")

    def bus(self, service: str, *, user: str | None = None) -> contextlib.AbstractAsyncContextManager[Bus]:
        settings = BusSettings(
            cluster=CLUSTER, service=service, nats_url=self.url(user or service), makes_streams=False
        )
        return connect(settings, clock=SystemClock(), wait=True)


@contextlib.asynccontextmanager
async def bare_place() -> AsyncIterator[Place]:
    async with nats_server(config=users_config(password_of=lambda user: password_of(user.name))) as server:
        yield Place(server.url)


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async with bare_place() as bare:
        await make_streams(bare, monkeypatch)
        yield bare


async def make_streams(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OVERSPILL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OVERSPILL_NATS_URL", place.url(TOPOLOGY))
    assert await asyncio.to_thread(run_topology, ["topology"]) == 0


async def eventually(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110  (looked at from outside: nobody could set an event)
            await asyncio.sleep(0.02)


def test_each_service_of_the_catalogue_has_a_user() -> None:
    assert {event.spec.service for event in CATALOG.values()} - {"*"} <= set(USES)


@pytest.mark.parametrize("service", sorted(USES))
async def test_a_service_publishes_its_own(place: Place, service: str) -> None:
    async with place.bus(service) as bus:
        published = await bus.publish(started(service), timeout=20)
        assert published.sequence >= 1
        assert bus.problem() is None


@pytest.mark.parametrize("service", sorted(set(USES) - {"bridge"}))
async def test_another_services_subject_is_refused_and_said(place: Place, service: str) -> None:
    event = NodeRegistered(node="n", uid="u", created=True, max_external_gpus=1, providers=())
    async with place.bus(service) as bus:
        with pytest.raises(BusUnavailable, match="not acknowledged"):
            await bus.publish(event, timeout=5, must_ack=True)
        assert "permission denied" in (bus.problem() or "")
        assert "bridge.node-registered" in (bus.problem() or "")
        assert (await bus.stream_info()).state.messages == 0


async def test_another_services_own_event_is_refused_too(place: Place) -> None:
    """Two services share this event's type; the subject tells them apart."""
    async with place.bus("decider", user="sampler") as bus:
        with pytest.raises(BusUnavailable):
            await bus.publish(started("decider"), timeout=2, must_ack=True)
        assert "permission denied" in (bus.problem() or "")


@pytest.mark.parametrize("service", READERS)
async def test_a_reader_reads_and_follows(place: Place, service: str) -> None:
    async with place.bus("bridge") as bridge, place.bus(service) as bus:
        await bridge.publish(started("bridge"), timeout=20)
        past = [one async for one in bus.read([STREAM_SUBJECTS])]
        newest = [one async for one in bus.read([STREAM_SUBJECTS], last_per_subject=True)]
        assert len(past) == len(newest) == 1
        heard: list[Recorded] = []
        following = asyncio.create_task(bus.follow([STREAM_SUBJECTS], heard.append, since=1))
        await eventually(lambda: heard)
        await bridge.publish(started("bridge"), timeout=20)
        await eventually(lambda: len(heard) == 2)
        following.cancel()
        await asyncio.wait({following})
        assert bus.problem() is None


@pytest.mark.parametrize("service", sorted(name for name, use in USES.items() if not use.reads))
async def test_who_does_not_read_may_not(place: Place, service: str) -> None:
    async with place.bus(service) as bus:
        await bus.publish(started(service), timeout=20)
        with pytest.raises(BusUnavailable):
            _ = [one async for one in bus.read([STREAM_SUBJECTS])]
        assert "permission denied" in (bus.problem() or "")


async def test_the_recorder_works_off_its_durable_and_buries_what_it_cannot_read(place: Place) -> None:
    seen: list[str] = []

    async def handle(recorded: Recorded) -> None:
        seen.append(recorded.envelope.type)
        if len(seen) == 2:
            raise Poison("this one")

    async with place.bus("decider") as decider, place.bus("recorder") as bus:
        working = asyncio.create_task(bus.consume("recorder", [STREAM_SUBJECTS], handle, concurrency=1))
        for node in ("a", "b", "c"):
            await decider.publish(GateOpened(node=node, reason=GateReason.HOME_FULL), timeout=20)
        await eventually(lambda: len(seen) == 3)
        async with asyncio.timeout(20):
            while await dead_letters(place) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert bus.problem() is None
        working.cancel()
        await asyncio.wait({working})


async def dead_letters(place: Place) -> int:
    async with place.bus("doctor", user=AUDITOR) as auditor:
        found = len([letter async for letter in auditor.dead_letters()])
        assert auditor.problem() is None
        return found


@pytest.mark.parametrize("user", ["decider", AUDITOR])
async def test_nobody_else_touches_the_recorders_durable(place: Place, user: str) -> None:
    async def handle(_: Recorded) -> None:
        raise AssertionError("nothing may be handed over")

    async with place.bus(user) as bus:
        working = asyncio.create_task(bus.consume("recorder", [STREAM_SUBJECTS], handle))
        await eventually(lambda: "permission denied" in (bus.problem() or ""))
        assert "recorder" in (bus.problem() or "")
        working.cancel()
        await asyncio.wait({working})


async def test_an_auditor_sees_all_and_says_nothing(place: Place) -> None:
    async with place.bus("doctor", user=AUDITOR) as auditor, place.bus("sampler") as sampler:
        await sampler.publish(started("sampler"), timeout=20)
        assert [one.envelope.source async for one in auditor.read([STREAM_SUBJECTS])] == [
            f"/overspill/{CLUSTER}/sampler"
        ]
        assert (await auditor.stream_info(DLQ)).state.messages == 0
        assert auditor.problem() is None
        with pytest.raises(BusUnavailable):
            await auditor.publish(started("doctor"), timeout=2, must_ack=True)
        assert "permission denied" in (auditor.problem() or "")


@pytest.mark.parametrize("service", ["sampler", "recorder", AUDITOR])
async def test_only_topology_makes_streams(service: str) -> None:
    async with bare_place() as place, place.bus(service) as bus:
        with pytest.raises(BusUnavailable, match=r"STREAM\.CREATE"):
            await bus.ensure_topology()
        assert f'"$JS.API.STREAM.CREATE.{STREAM}"'.lower() in (bus.problem() or "").lower()  # nats-py's case varies


async def test_services_that_come_first_wait_for_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started before the streams are there, they publish and read as soon as they are, with nothing denied."""
    async with bare_place() as place, place.bus("sampler") as sampler, place.bus("decider") as decider:
        heard: list[Recorded] = []
        following = asyncio.create_task(decider.follow([STREAM_SUBJECTS], heard.append, since=1))
        sampler.emit(started("sampler"))
        await eventually(lambda: "cannot publish" in (sampler.problem() or ""))
        await make_streams(place, monkeypatch)
        await eventually(lambda: heard)
        assert sampler.problem() is None
        assert decider.problem() is None
        following.cancel()
        await asyncio.wait({following})
