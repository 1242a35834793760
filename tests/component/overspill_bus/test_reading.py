"""Reading the record: windows of it, and following it through everything that can happen to a server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from overspill_bus import BusUnavailable
from overspill_events import subject_filter
from overspill_events.catalog import GateDecided, GateOpened
from tests.component.overspill_bus.witness import LossyProxy, cancelled, decided, opened, until

EVERYTHING = [subject_filter()]


async def read(bus, filters=EVERYTHING, **window):
    return [record async for record in bus.read(filters, **window)]


async def say(bus, count, first=0, node="n"):
    for n in range(first, first + count):
        bus.emit(decided(node, n))
    assert await bus.flush(30)


def samples(records):
    return [record.event.samples for record in records]


class Follower:
    """A follow call in a task, with what it has heard."""

    def __init__(self, bus, filters=EVERYTHING, since=1):
        self.records = []
        self.caught_up = []
        self.task = asyncio.create_task(
            bus.follow(
                filters, self.records.append, since=since, on_caught_up=lambda: self.caught_up.append(len(self.records))
            )
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await cancelled(self.task)

    async def heard(self, count):
        await until(lambda: len(self.records) >= count or self.task.done(), f"{count} events heard")
        assert not self.task.done(), self.task.exception()
        return samples(self.records)


# --- read ---------------------------------------------------------------------------------------------------------------


async def test_an_empty_stream_is_read_to_its_end(bus):
    assert await read(bus) == []
    assert await read(bus, last_per_subject=True) == []


async def test_a_missing_stream_is_made_and_empty(server, bus_of):
    async with bus_of(server) as bus:
        assert await read(bus) == []


async def test_the_whole_record_is_read_in_order(bus):
    await say(bus, 700)  # more than two batches
    records = await read(bus)
    assert samples(records) == list(range(700))
    assert [record.envelope.stream_sequence for record in records] == list(range(1, 701))
    assert {record.redelivered for record in records} == {0}


async def test_a_window_begins_at_a_sequence_or_a_time_and_may_end_early(bus):
    await say(bus, 5)
    await asyncio.sleep(0.05)
    middle = datetime.now(UTC)
    await say(bus, 5, first=5)
    assert samples(await read(bus, since=8)) == [7, 8, 9]
    assert samples(await read(bus, since=middle)) == [5, 6, 7, 8, 9]
    assert samples(await read(bus, since=3, until_sequence=4)) == [2, 3]
    assert samples(await read(bus, since=middle - timedelta(hours=1), until_sequence=2)) == [0, 1]
    assert await read(bus, since=100) == []
    assert await read(bus, since=middle + timedelta(hours=1)) == []


async def test_filters_choose(bus):
    await say(bus, 2, node="ip-1.ec2.internal")
    await say(bus, 2, node="ip-2.ec2.internal", first=2)
    await bus.publish(opened("ip-1.ec2.internal"))
    assert samples(await read(bus, [subject_filter(GateDecided, key=["ip-1.ec2.internal"])])) == [0, 1]
    both = [subject_filter(GateDecided, key=["ip-2.ec2.internal"]), subject_filter(GateOpened)]
    assert [type(record.event) for record in await read(bus, both)] == [GateDecided, GateDecided, GateOpened]
    assert await read(bus, [subject_filter(cluster="other")]) == []


async def test_the_last_of_each_subject(bus):
    for node in ("a", "b"):
        await say(bus, 3, node=node)
    records = await read(bus, last_per_subject=True)
    assert [(record.event.node, record.event.samples) for record in records] == [("a", 2), ("b", 2)]


async def test_the_end_is_where_it_was_when_reading_began(bus):
    await say(bus, 300)
    heard = []
    async for record in bus.read(EVERYTHING):
        heard.append(record)
        if len(heard) % 100 == 1:
            await say(bus, 10, first=1000)
    assert samples(heard) == list(range(300))


async def test_what_cannot_be_read_is_shown_with_its_reason(bus, witness):
    published = await bus.publish(opened("good"))
    headers = {name: value for name, value in (await witness.stored())[0].headers.items() if name.startswith("ce-")}
    subject = published.envelope.subject
    await witness.js.publish(subject, b"{}", headers=headers)
    await witness.js.publish(subject, b"plain")
    await witness.js.publish(subject, b"{}", headers={**headers, "ce-type": "dev.overspill.decider.gate-painted.v1"})
    good, broken, foreign, tomorrow = await read(bus)
    assert (good.event, good.error) == (opened("good"), None)
    assert broken.event is None
    assert "node" in broken.error
    assert broken.envelope.source == "/overspill/c/decider"
    assert foreign.event is None
    assert "ce-specversion" in foreign.error
    assert (foreign.envelope.source, foreign.envelope.sequence, foreign.envelope.stream_sequence) == ("", 0, 3)
    assert foreign.data == b"plain"
    assert (tomorrow.event, tomorrow.error) == (None, None)


async def test_reading_goes_on_after_a_restart(server, bus):
    await say(bus, 600)
    heard = []
    async for record in bus.read(EVERYTHING):
        heard.append(record)
        if len(heard) == 100:
            await server.kill()
            await server.start()
    assert samples(heard) == list(range(600))


async def test_reading_without_a_server_ends_with_an_error(server, bus_of, monkeypatch):
    monkeypatch.setattr("overspill_bus.reading._WAIT", 0.3)
    await server.stop()
    async with bus_of(server, wait=False) as bus:
        with pytest.raises(BusUnavailable, match="cannot read EVENTS"):
            await read(bus)


async def test_a_reader_that_stops_early_leaves_no_consumer_behind(bus, witness):
    await say(bus, 10)
    window = bus.read(EVERYTHING)
    async for _ in window:
        break
    await window.aclose()
    assert (await witness.js.stream_info("EVENTS")).state.consumer_count == 0


# --- follow -------------------------------------------------------------------------------------------------------------


async def test_following_replays_the_past_and_goes_on(bus):
    await say(bus, 300)
    async with Follower(bus) as follower:
        await until(lambda: follower.caught_up)
        assert follower.caught_up == [300]
        await say(bus, 20, first=300)
        assert await follower.heard(320) == list(range(320))
    assert follower.caught_up == [300]


async def test_following_from_a_time_or_only_what_is_new(bus):
    await say(bus, 3)
    await asyncio.sleep(0.05)
    middle = datetime.now(UTC)
    await say(bus, 2, first=3)
    async with Follower(bus, since=middle) as window, Follower(bus, since=None) as live:
        await until(lambda: live.caught_up and window.caught_up)
        assert (window.caught_up, live.caught_up) == ([2], [0])
        await say(bus, 1, first=5)
        assert await window.heard(3) == [3, 4, 5]
        assert await live.heard(1) == [5]


async def test_a_handler_may_be_a_coroutine_and_what_it_raises_is_raised(bus):
    await say(bus, 3)
    heard = []

    async def handler(record):
        await asyncio.sleep(0)
        heard.append(record.event.samples)
        if len(heard) == 2:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await bus.follow(EVERYTHING, handler, since=1)
    assert heard == [0, 1]


async def test_following_begins_before_its_server(server, bus_of):
    await server.stop()
    async with bus_of(server, wait=False) as bus, Follower(bus, since=1) as follower:
        await asyncio.sleep(0.3)
        await server.start()
        await say(bus, 3)
        assert await follower.heard(3) == [0, 1, 2]


async def test_following_survives_restarts_without_loss_or_repetition(server, bus):
    async with Follower(bus) as follower:
        for round_ in range(3):
            await say(bus, 20, first=20 * round_)
            if round_ < 2:
                await server.kill()
                await server.start()
        assert await follower.heard(60) == list(range(60))
        await asyncio.sleep(0.5)
        assert len(follower.records) == 60
    assert len(follower.caught_up) == 1


async def test_following_survives_the_deletion_of_its_consumer(bus, witness):
    """nats-py would look idle; here the next event is heard."""
    await say(bus, 2)
    async with Follower(bus) as follower:
        await follower.heard(2)
        (consumer,) = await witness.js.consumers_info("EVENTS")
        await witness.js.delete_consumer("EVENTS", consumer.name)
        await say(bus, 2, first=2)
        assert await follower.heard(4) == [0, 1, 2, 3]


async def test_following_survives_the_deletion_of_the_stream(bus, witness):
    """All of the new stream is unread, whatever its numbers."""
    await say(bus, 5)
    async with Follower(bus) as follower:
        await follower.heard(5)
        await witness.js.delete_stream("EVENTS")
        await say(bus, 3, first=100)
        assert (await follower.heard(8))[5:] == [100, 101, 102]


async def test_a_message_lost_on_the_way_is_noticed_by_the_next_and_read_again(server, bus_of):
    async with LossyProxy(server.port) as proxy, bus_of(server, nats_url=proxy.url) as bus, Follower(bus) as follower:
        await say(bus, 1)
        await follower.heard(1)
        proxy.drop = lambda subject, _size: "gate-decided" in subject and proxy.dropped < 1
        await say(bus, 4, first=1)
        assert await follower.heard(5) == [0, 1, 2, 3, 4]
        assert proxy.dropped == 1


async def test_a_last_message_lost_on_the_way_is_noticed_although_nothing_follows(server, bus_of):
    async with LossyProxy(server.port) as proxy, bus_of(server, nats_url=proxy.url) as bus, Follower(bus) as follower:
        await say(bus, 1)
        await follower.heard(1)
        proxy.drop = lambda subject, _size: "gate-decided" in subject and proxy.dropped < 1
        await say(bus, 1, first=1)
        assert await follower.heard(2) == [0, 1]
        assert proxy.dropped == 1


async def test_a_window_is_read_complete_although_messages_get_lost_on_the_way(server, bus_of):
    async with LossyProxy(server.port) as proxy, bus_of(server, nats_url=proxy.url) as bus:
        await say(bus, 600)
        count = iter(range(10_000))
        proxy.drop = lambda subject, _size: "gate-decided" in subject and next(count) % 150 == 149
        assert samples(await read(bus)) == list(range(600))
        assert proxy.dropped > 2


async def test_many_followers_hear_everything(bus):
    followers = [Follower(bus) for _ in range(5)]
    await say(bus, 200)
    for follower in followers:
        async with follower:
            assert await follower.heard(200) == list(range(200))


@pytest.mark.parametrize(
    "filters",
    [
        [],
        "overspill.v1.>",
        ["other.>"],
        ["overspill..x"],
        ["overspill.v1.a b"],
        ["overspill.v1.>.x"],
        ["overspill.v1.>", "overspill.v1.c.>"],
    ],
)
async def test_filters_that_can_never_work_are_an_error_not_a_loop(bus, filters):
    async with asyncio.timeout(30):
        with pytest.raises(ValueError, match="filters"):
            await bus.follow(filters, print, since=1)
        with pytest.raises(ValueError, match="filters"):
            await bus.consume("durable", filters, print)
        with pytest.raises(ValueError, match="filters"):
            await read(bus, filters)


async def test_a_stopped_follower_leaves_no_consumer_behind(bus, witness):
    async with Follower(bus):
        await until(lambda: True)
        await asyncio.sleep(0.3)
        assert (await witness.js.stream_info("EVENTS")).state.consumer_count == 1
    assert (await witness.js.stream_info("EVENTS")).state.consumer_count == 0
