"""From a real stream into the ledger, whatever happens to file, process and server."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from overspill_bus import Bus, BusSettings, connect
from overspill_bus.server import NatsServer
from overspill_bus.testing import nats_server
from overspill_events.catalog import (
    EvictionRefused,
    GateClosed,
    OwnerRef,
    PodEvicted,
    PodRef,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.reasons import GateReason, Place, RefusalReason
from overspill_recorder.ledger import Ledger, open_ledger
from overspill_recorder.schema import LedgerError
from overspill_recorder.service import SERVICE, run
from overspill_recorder.settings import Settings
from overspill_recorder.writer import open_for_writing
from overspill_runtime.clock import SystemClock
from overspill_service import serve_on_bus

POD = PodRef(namespace="team", name="web-7f9c4-abcde", uid="u1")


@pytest.fixture
async def nats() -> AsyncIterator[NatsServer]:
    async with nats_server() as server:
        yield server


@pytest.fixture
def settings(nats: NatsServer, tmp_path: Path) -> Settings:
    return Settings(nats_url=nats.url, path=str(tmp_path / "deep" / "ledger.db"), batch=50)


@contextlib.asynccontextmanager
async def recorder(settings: Settings) -> AsyncIterator[None]:
    """The whole service; should it fail, the test ends with its error."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve_on_bus(SERVICE, settings, run))
        yield
        task.cancel()


@contextlib.asynccontextmanager
async def publisher(nats: NatsServer, service: str = "evictor") -> AsyncIterator[Bus]:
    async with connect(BusSettings(cluster="default", service=service, nats_url=nats.url), clock=SystemClock()) as bus:
        await bus.wait_connected()
        await bus.ensure_topology()
        yield bus


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(75):
        while not await true():  # noqa: ASYNC110  the ledger is another connection's file
            await asyncio.sleep(0.05)
    assert await true(), what


async def recorded(settings: Settings, count: int, *, names: tuple[str, ...] = ("PodEvicted",)) -> None:
    """Wait until the ledger has that many events."""

    async def enough() -> bool:
        try:
            async with open_ledger(settings.file) as ledger:
                return await ledger.count(names=names) >= count
        except LedgerError:
            return False

    await until(enough, f"{count} {names}")


def evicted(number: int) -> PodEvicted:
    pod = PodRef(namespace="team", name=f"p-{number}", uid=f"u-{number}")
    return PodEvicted(pod=pod, node="virtual-1", home_node="home-1", gpus=1)


async def say(bus: Bus, numbers: range) -> None:
    for number in numbers:
        bus.emit(evicted(number))
    assert await bus.flush(10)


async def names_of(ledger: Ledger) -> list[str]:
    return [event.event.pod.name for event in await ledger.events(names=["PodEvicted"]) if isinstance(event.event, PodEvicted)]  # fmt: skip


async def test_everything_is_recorded_once_and_in_order(nats: NatsServer, settings: Settings) -> None:
    """Before the recorder started and while it runs, more than one batch; nothing is missing."""
    async with publisher(nats) as bus:
        await say(bus, range(120))
        async with recorder(settings):
            await say(bus, range(120, 200))
            await recorded(settings, 200)
    async with open_ledger(settings.file) as ledger:
        assert await names_of(ledger) == [f"p-{n}" for n in range(200)]
        assert await ledger.gaps() == ()
        assert await ledger.count(names=["ServiceStarted"]) == 1


async def test_a_deleted_ledger_is_built_again(nats: NatsServer, settings: Settings) -> None:
    """The durable consumer is ahead of the new, empty file; the stream still has everything."""
    async with publisher(nats) as bus:
        async with recorder(settings):
            await say(bus, range(130))
            await recorded(settings, 130)
        for file in settings.file.parent.iterdir():
            file.unlink()
        async with recorder(settings):
            await say(bus, range(130, 140))
            await recorded(settings, 140)
    async with open_ledger(settings.file) as ledger:
        assert await names_of(ledger) == [f"p-{n}" for n in range(140)]
        assert await ledger.gaps() == ()


async def test_a_restored_older_copy_catches_up(nats: NatsServer, settings: Settings) -> None:
    """A backup from before: what came after it is read from the stream."""
    async with publisher(nats) as bus:
        async with recorder(settings):
            await say(bus, range(60))
            await recorded(settings, 60)
        backup = settings.file.read_bytes()
        async with recorder(settings):
            await say(bus, range(60, 120))
            await recorded(settings, 120)
        for file in settings.file.parent.iterdir():
            file.unlink()
        settings.file.write_bytes(backup)
        async with recorder(settings):
            await recorded(settings, 120)
    async with open_ledger(settings.file) as ledger:
        assert await names_of(ledger) == [f"p-{n}" for n in range(120)]
        assert await ledger.gaps() == ()


async def test_the_server_killed_in_between_costs_nothing(nats: NatsServer, settings: Settings) -> None:
    """What was acknowledged before and what is published afterwards is all there, once."""
    async with publisher(nats) as bus, recorder(settings):
        await say(bus, range(40))
        await nats.kill()
        for number in range(40, 80):
            bus.emit(evicted(number))
        await nats.restart()
        await recorded(settings, 80)
    async with open_ledger(settings.file) as ledger:
        assert await names_of(ledger) == [f"p-{n}" for n in range(80)]
        assert await ledger.gaps() == ()


async def test_a_full_buffer_leaves_a_gap_that_is_told(nats: NatsServer, settings: Settings) -> None:
    """Events lost before they reached the stream are visible as missing numbers of their source."""
    tight = BusSettings(cluster="default", service="bridge", nats_url=nats.url, buffer_events=5)
    async with recorder(settings):
        await recorded(settings, 1, names=("ServiceStarted",))
        async with connect(tight, clock=SystemClock()) as bus:
            await bus.wait_connected()
            await say(bus, range(1))
            await nats.kill()
            for number in range(1, 20):
                bus.emit(evicted(number))
            await nats.restart()
            assert await bus.flush(20)
            lost = bus.lost_events
            assert lost > 0
            await recorded(settings, 20 - lost)
    async with open_ledger(settings.file) as ledger:
        gaps = await ledger.gaps()
    assert {gap.source for gap in gaps} == {"/overspill/default/bridge"}
    assert sum(gap.last - gap.first + 1 for gap in gaps) == lost


async def test_a_message_that_is_no_event_is_kept_and_hurts_nobody(nats: NatsServer, settings: Settings) -> None:
    """Undecodable payloads and foreign messages: the rest is recorded, they are too, as they are."""
    import nats as nats_py  # noqa: PLC0415  a client outside our code

    async with publisher(nats) as bus, recorder(settings):
        client = await nats_py.connect(nats.url)
        await client.jetstream().publish("overspill.v1.default.evictor.nonsense", b"\xff\xfe not json")
        await client.close()
        await say(bus, range(3))
        await recorded(settings, 3)
    async with open_ledger(settings.file) as ledger:
        assert await ledger.gaps() == ()
        foreign = [event for event in await ledger.events() if event.subject.endswith("nonsense")]
    assert [event.payload for event in foreign] == [b"\xff\xfe not json"]


async def story(bus: Bus) -> dict[str, str]:
    """A gate closes, a return is refused, then a pod returns: ids by name."""
    ids: dict[str, str] = {}
    closed = await bus.publish(GateClosed(node="virtual-1", reason=GateReason.HOME_HAS_ROOM))
    refused = EvictionRefused(
        pod=POD, node="virtual-1", reason=RefusalReason.PDB, pdb="team/web", disruptions_allowed=0
    )
    ids["refused"] = (await bus.publish(refused, caused_by=closed.envelope)).envelope.id
    intent = ReturnIntended(
        pod=POD, owner=OwnerRef(kind="ReplicaSet", name="web-7f9c4", uid="rs"), node="virtual-1", home_node="home-1.internal",
        gpus=1, expires_at=SystemClock().now(),
    )  # fmt: skip
    intended = await bus.publish(intent, caused_by=closed.envelope, correlation_id="the-story")
    gone = PodEvicted(pod=POD, node="virtual-1", home_node="home-1.internal", gpus=1)
    evicted_ = await bus.publish(gone, caused_by=intended.envelope)
    successor = PodRef(namespace="team", name="web-7f9c4-fresh", uid="u2")
    settled = ReturnSettled(pod=POD, place=Place.HOME, successor=successor, node="home-1.internal")
    done = await bus.publish(settled, caused_by=evicted_.envelope)
    ids |= {"closed": closed.envelope.id, "intended": intended.envelope.id, "evicted": evicted_.envelope.id, "settled": done.envelope.id}  # fmt: skip
    return ids


async def test_the_ledger_answers_why(nats: NatsServer, settings: Settings) -> None:
    """By pod (also the successor), node, owner and Deployment; causes and effects; filters."""
    async with publisher(nats) as bus, recorder(settings):
        ids = await story(bus)
        await recorded(settings, 1, names=("ReturnSettled",))
    async with open_ledger(settings.file) as ledger:
        pod = [event.name for event in await ledger.for_pod("team", POD.name)]
        assert pod == ["EvictionRefused", "ReturnIntended", "PodEvicted", "ReturnSettled"]
        assert [event.name for event in await ledger.for_pod("team", "web-7f9c4-fresh")] == ["ReturnSettled"]
        assert [event.name for event in await ledger.for_node("home-1.internal")] == ["ReturnIntended", "PodEvicted", "ReturnSettled"]  # fmt: skip
        assert (await ledger.for_node("virtual-1"))[0].name == "GateClosed"
        for kind, name in (("ReplicaSet", "web-7f9c4"), ("Deployment", "web")):
            assert [event.id for event in await ledger.for_workload(kind, "team", name)] == [ids["intended"]]
        assert await ledger.for_workload("Deployment", "team", "we") == ()
        assert [event.id for event in await ledger.causes(ids["settled"])] == [ids["evicted"], ids["intended"], ids["closed"]]  # fmt: skip
        assert {event.id for event in await ledger.effects(ids["closed"])} == {ids["refused"], ids["intended"]}
        assert [event.name for event in await ledger.correlated("the-story")] == ["ReturnIntended", "PodEvicted", "ReturnSettled"]  # fmt: skip
        found = await ledger.event(ids["refused"])
        assert found is not None
        assert isinstance(found.event, EvictionRefused)
        assert (found.event.pdb, found.event.disruptions_allowed) == ("team/web", 0)
        await filters(ledger)


async def filters(ledger: Ledger) -> None:
    assert [e.name for e in await ledger.events(names=["gate-closed", "PodEvicted"])] == ["GateClosed", "PodEvicted"]
    assert [e.name for e in await ledger.events(services=["evictor"], limit=1)] == ["ReturnSettled"]
    everything = await ledger.events()
    assert len(await ledger.events(after=everything[1].position)) == len(everything) - 2
    assert await ledger.events(since=everything[-1].time, until=everything[0].time) == ()
    assert len(await ledger.events(until=everything[-1].time)) < len(everything)
    assert {e.name for e in await ledger.events(text="web-7f9c4-fresh")} == {"ReturnSettled"}
    with pytest.raises(LedgerError, match=r"'GateClosd' is no event of the catalogue; accepted: .*GateClosed"):
        await ledger.events(names=["GateClosd"])


async def test_a_file_that_is_no_ledger_is_told_and_left_alone(settings: Settings, tmp_path: Path) -> None:
    """Absent, another program's file, another version: which file and what to do."""
    for opened in (open_ledger(settings.file),):
        with pytest.raises(LedgerError, match=r"no ledger at .*OVERSPILL_RECORDER_PATH"):
            async with opened:
                pass
    text = tmp_path / "notes.txt"
    text.write_text("my notes, by no means a database " * 100)
    before = text.read_bytes()
    future = tmp_path / "future.db"
    with contextlib.closing(sqlite3.connect(future)) as database:
        database.execute("PRAGMA user_version = 99")
    for path, message in ((text, "not a ledger"), (future, "version 99")):
        with pytest.raises(LedgerError, match=message):
            async with open_for_writing(path):
                pass
        with pytest.raises(LedgerError, match=message):
            async with open_ledger(path):
                pass
    assert text.read_bytes() == before


async def test_a_locked_file_delays_and_loses_nothing(nats: NatsServer, settings: Settings) -> None:
    """Somebody holds the database for longer than SQLite waits: the recorder says so and goes on afterwards."""
    async with publisher(nats) as bus, recorder(settings):
        await say(bus, range(5))
        await recorded(settings, 5)
        with contextlib.closing(sqlite3.connect(settings.file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await say(bus, range(5, 10))
            await asyncio.sleep(6)  # SQLite's own patience is five seconds
            other.execute("ROLLBACK")
        await recorded(settings, 10)
    async with open_ledger(settings.file) as ledger:
        assert await names_of(ledger) == [f"p-{n}" for n in range(10)]
