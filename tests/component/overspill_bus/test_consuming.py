"""Durable consumption: every message handled, per subject in order, through crashes; what cannot be handled is kept."""

import asyncio
import contextlib
from collections import defaultdict

import msgspec
import pytest
from nats.js.errors import NotFoundError

from overspill_bus import BusClosed, BusUnavailable, Poison, RetryLater
from overspill_bus.testing import nats_server
from overspill_events import subject_filter
from tests.component.overspill_bus.witness import LossyProxy, cancelled, decided, frozen, opened, until

EVERYTHING = [subject_filter()]
QUICK = (0.05, 0.1)


class Work:
    """A consume call in a task; `fail` decides what a delivery meets."""

    def __init__(self, bus, fail=lambda _record: None, durable="work", **options):
        self.done = []
        self.tried = []
        self.running = 0
        self.most_running = 0
        self._fail = fail
        self.task = asyncio.create_task(bus.consume(durable, EVERYTHING, self._handle, **{"backoff": QUICK, **options}))

    async def _handle(self, record):
        self.tried.append(record)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            outcome = self._fail(record)
            if isinstance(outcome, Exception):
                raise outcome
            await asyncio.sleep(outcome or 0.001)
        finally:
            self.running -= 1
        self.done.append(record)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await cancelled(self.task)

    async def finished(self, count):
        await until(lambda: len(self.done) >= count or self.task.done(), f"{count} messages handled")
        assert not self.task.done(), self.task.exception()
        return [(record.event.node, record.event.samples) for record in self.done]


async def say(bus, nodes, count, first=0):
    for n in range(first, first + count):
        for node in nodes:
            bus.emit(decided(node, n))
    assert await bus.flush(30)


async def buried(bus):
    return [letter async for letter in bus.dead_letters()]


async def unacknowledged(witness, durable="work"):
    info = await witness.js.consumer_info("EVENTS", durable)
    return info.num_ack_pending + info.num_pending


def by_node(pairs):
    found = defaultdict(list)
    for node, n in pairs:
        found[node].append(n)
    return dict(found)


async def test_every_message_is_handled_and_acknowledged(bus, witness):
    await say(bus, ["a", "b", "c"], 100)
    async with Work(bus) as work:
        handled = await work.finished(300)
        await until_acknowledged(witness)
    assert by_node(handled) == {node: list(range(100)) for node in "abc"}
    async with Work(bus) as again:
        await say(bus, ["a"], 1, first=100)
        assert await again.finished(1) == [("a", 100)]


async def test_one_subject_is_handled_in_order_whatever_fails(bus):
    """Every third message fails twice, others wait for it; other subjects do not."""

    def fail(record):
        if record.event.node == "slow" and record.event.samples % 3 == 0 and record.redelivered < 2:
            return RuntimeError("not today")
        return None

    await say(bus, ["slow", "quick"], 12)
    async with Work(bus, fail, concurrency=4) as work:
        handled = await work.finished(24)
        assert by_node(handled) == {"slow": list(range(12)), "quick": list(range(12))}
        assert [record.redelivered for record in work.tried if record.event == decided("slow", 3)] == [0, 1, 2]
        assert handled[:12].count(("quick", 11)) == 1  # it did not wait


async def test_at_most_so_many_subjects_are_handled_at_a_time(bus):
    await say(bus, [f"n{n}" for n in range(12)], 2)
    async with Work(bus, lambda _record: 0.02, concurrency=3) as work:
        await work.finished(24)
        assert work.most_running == 3


async def test_not_yet_is_no_failure(bus):
    """RetryLater may be said more often than max_deliver."""

    def fail(record):
        return RetryLater(0.01) if len(work.tried) < 9 else None

    await say(bus, ["n"], 2)
    async with Work(bus, fail, max_deliver=2) as work:
        assert await work.finished(2) == [("n", 0), ("n", 1)]
    assert await buried(bus) == []


async def test_a_bus_that_is_away_is_not_the_messages_fault(bus):
    await say(bus, ["n"], 1)
    async with Work(
        bus, lambda _record: BusUnavailable("away") if len(work.tried) < 6 else None, max_deliver=2
    ) as work:
        assert await work.finished(1) == [("n", 0)]
    assert await buried(bus) == []


async def test_poison_goes_to_the_dead_letters_with_its_original(bus, witness):
    await say(bus, ["a.b"], 3)
    poison = lambda record: Poison("never: é") if record.event.samples == 1 else None  # noqa: E731
    async with Work(bus, poison) as work:
        assert await work.finished(2) == [("a.b", 0), ("a.b", 2)]
        await until_acknowledged(witness)
    (letter,) = await buried(bus)
    assert (letter.reason, letter.detail, letter.durable, letter.stream_sequence) == ("poison", "never: é", "work", 2)
    original = (await witness.stored())[1]
    assert (letter.subject, letter.data, letter.stream_sequence) == (original.subject, original.data, original.sequence)
    assert {name: letter.headers[name] for name in original.headers if name.startswith("ce-")} == {
        name: value for name, value in original.headers.items() if name.startswith("ce-")
    }
    (dead,) = await witness.stored("DLQ")
    assert dead.subject == "overspill.dlq.work.c.decider.gate-decided.a_b"


async def test_what_fails_too_often_goes_to_the_dead_letters(bus, witness):
    await say(bus, ["n"], 2)
    bad = lambda record: KeyError("colour") if record.event.samples == 0 else None  # noqa: E731
    async with Work(bus, bad, max_deliver=3) as work:
        assert await work.finished(1) == [("n", 1)]
        await until_acknowledged(witness)
        assert [record.redelivered for record in work.tried] == [0, 1, 2, 0]
    (letter,) = await buried(bus)
    assert (letter.reason, letter.detail) == ("exhausted", "KeyError: 'colour'")


async def test_what_only_waited_is_not_given_up_however_often_its_process_ends(server, bus_of, bus):
    """Each end of a process counts as a delivery of everything that it held; nobody is to blame for that."""
    await say(bus, ["n"], 3)
    for _ in range(4):
        async with (
            bus_of(server, service="evictor") as victim,
            Work(victim, lambda _record: 1000, max_deliver=2) as work,
        ):
            await until(lambda: work.tried)
    async with Work(bus, max_deliver=2) as work:
        assert await work.finished(3) == [("n", 0), ("n", 1), ("n", 2)]
    assert await buried(bus) == []


async def test_what_cannot_be_read_goes_to_the_dead_letters_and_never_to_the_handler(bus, witness):
    await bus.publish(opened("good"))
    headers = {name: value for name, value in (await witness.stored())[0].headers.items() if name.startswith("ce-")}
    subject = "overspill.v1.c.decider.gate-opened.x"
    await witness.js.publish(subject, b'{"node": 3}', headers=headers)
    await witness.js.publish(subject, b"plain")
    await witness.js.publish(subject, b"{}", headers={**headers, "ce-type": "dev.overspill.decider.gate-painted.v1"})
    async with Work(bus) as work:
        await until(lambda: len(work.done) == 2)
        await until_acknowledged(witness)
        assert [record.event for record in work.done] == [opened("good"), None]  # an unknown type is no error
    broken, plain = await buried(bus)
    assert (broken.reason, broken.data) == ("undecodable", b'{"node": 3}')
    assert "node" in broken.detail
    assert plain.data == b"plain"
    assert "ce-specversion" in plain.detail


async def test_a_dead_letter_that_is_too_large_keeps_the_way_to_its_original(bus_of):
    async with nats_server(config="max_payload: 4096") as server, bus_of(server) as bus:
        large = decided("n", 1)
        large = msgspec.structs.replace(large, detail="x" * 3350)
        published = await bus.publish(large)
        async with Work(bus, lambda _record: Poison("no")):
            await until_async(lambda: buried(bus))
        (letter,) = await buried(bus)
        assert (letter.data, letter.stream_sequence) == (b"", published.sequence)


async def test_a_message_comes_after_a_restart_while_waiting_for_one(server, bus):
    """A request that was open when the server died must not be waited out."""
    async with Work(bus) as work:
        await say(bus, ["n"], 1)
        await work.finished(1)
        for n in range(1, 4):
            await server.kill()
            await server.start()
            await say(bus, ["n"], 1, first=n)
            assert await work.finished(n + 1) == [("n", each) for each in range(n + 1)]


async def test_a_message_lost_on_the_way_comes_again_before_newer_ones_of_its_subject(server, bus_of):
    async with (
        LossyProxy(server.port) as proxy,
        bus_of(server, nats_url=proxy.url) as bus,
        Work(bus, ack_wait=3600) as work,
    ):
        await say(bus, ["n"], 2)
        await work.finished(2)
        proxy.drop = lambda subject, _size: "gate-decided" in subject and proxy.dropped < 1
        await say(bus, ["n"], 4, first=2)
        assert await work.finished(6) == [("n", n) for n in range(6)]
        assert proxy.dropped == 1


async def test_a_deleted_consumer_is_made_again_and_nothing_is_lost(bus, witness):
    async with Work(bus) as work:
        await say(bus, ["n"], 5)
        await work.finished(5)
        await until_acknowledged(witness)
        await witness.js.delete_consumer("EVENTS", "work")
        await say(bus, ["n"], 5, first=5)
        assert await work.finished(10) == [("n", n) for n in range(10)]  # nor is the past handled again


async def test_what_was_done_meanwhile_is_not_repeated_when_the_consumer_is_made_again(bus, witness):
    """An older message of another subject is still in work, so that there is no point before which all is done."""
    release = asyncio.Event()
    tried = []

    async def handle(record):
        tried.append(record.event.node)
        if record.event.node == "slow":
            await release.wait()

    await say(bus, ["slow", "quick"], 1)
    task = asyncio.create_task(bus.consume("work", EVERYTHING, handle))
    await until(lambda: len(tried) == 2)
    await witness.js.delete_consumer("EVENTS", "work")
    await say(bus, ["other"], 1)
    await until(lambda: "other" in tried)
    release.set()
    await until_acknowledged(witness)
    await cancelled(task)
    assert sorted(tried) == ["other", "quick", "slow"]


async def test_a_deleted_stream_is_made_again(bus, witness):
    async with Work(bus) as work:
        await say(bus, ["n"], 5)
        await work.finished(5)
        await witness.js.delete_stream("EVENTS")
        await say(bus, ["n"], 3, first=5)
        assert await work.finished(8) == [("n", n) for n in range(8)]


async def test_a_consumer_that_exists_is_fitted_to_our_settings(bus, witness):
    """nats-py's pull_subscribe would silently keep the old ones."""
    for ack_wait, filters in ((5.0, EVERYTHING), (7.0, [subject_filter(cluster="c"), subject_filter(cluster="d")])):
        task = asyncio.create_task(bus.consume("work", filters, _ignore, ack_wait=ack_wait))
        await until_async(lambda wait=ack_wait: _has(witness, "ack_wait", wait))
        await until_async(lambda want=filters: _has(witness, "filter_subjects", want))
        await cancelled(task)


async def test_a_long_effect_is_not_started_twice_nor_delivered_again(bus, witness):
    await say(bus, ["n"], 1)
    async with Work(bus, lambda _record: 3.0, ack_wait=1.0) as work:
        await until(lambda: work.tried)
        await asyncio.sleep(2.0)
        assert (await witness.js.consumer_info("EVENTS", "work")).num_redelivered == 0
        await work.finished(1)
        assert len(work.tried) == 1


async def test_a_message_delivered_again_while_it_is_handled_is_handled_once(server, bus, witness):
    """The server is silent for longer than ack_wait: our signs of life come too late."""
    await say(bus, ["n"], 1)
    async with Work(bus, lambda _record: 4.0, ack_wait=1.0) as work:
        await until(lambda: work.tried)
        with frozen(server.pid):
            await asyncio.sleep(2.0)
        await work.finished(1)
        await until_acknowledged(witness)
        assert len(work.tried) == 1


async def test_a_confirmation_that_got_lost_is_asked_for_again(server, bus_of, witness):
    async with LossyProxy(server.port) as proxy, bus_of(server, nats_url=proxy.url) as bus:
        await bus.publish(opened())
        dropped = []

        def fail(_record):
            # From here on the next answer is the confirmation of our acknowledgement.
            proxy.drop = lambda subject, _size: not dropped and subject.startswith("_INBOX") and not dropped.append(1)

        async with Work(bus, fail) as work:
            await until(lambda: work.done and dropped)
            await until_acknowledged(witness)
            assert len(work.tried) == 1


async def test_what_a_predecessor_left_comes_first_and_in_order(server, bus, bus_of):
    """The successor does not wait for ack_wait, nor do newer messages overtake."""
    await say(bus, ["a", "b"], 3)
    async with bus_of(server, service="evictor") as first, Work(first, lambda _record: 1000, ack_wait=3600) as work:
        await until(lambda: len(work.tried) == 2)
    await say(bus, ["a", "b"], 2, first=3)
    async with Work(bus, ack_wait=3600) as successor:
        assert by_node(await successor.finished(10)) == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4]}


async def test_a_cancellation_in_a_handler_is_no_failure_of_the_message(bus):
    await say(bus, ["n"], 1)
    async with Work(bus, lambda _record: 1000) as work:
        await until(lambda: work.tried)
    assert work.task.cancelled()
    async with Work(bus) as again:
        await again.finished(1)
    assert await buried(bus) == []


async def test_the_end_of_the_bus_ends_the_work(bus_of):
    async with nats_server(config="max_subscriptions: 2") as server, bus_of(server) as bus:
        await bus.publish(opened())
        async with asyncio.timeout(30):
            first = asyncio.create_task(bus.consume("one", EVERYTHING, _ignore))
            await asyncio.sleep(0.2)
            with pytest.raises(BusClosed):
                await bus.consume("two", EVERYTHING, _ignore)
            with pytest.raises(BusClosed):
                await first


@pytest.mark.parametrize("name", ["", "two words", "a.b", "a*", "a/b"])
async def test_a_bad_name_is_refused(bus, name):
    with pytest.raises(ValueError, match="durable"):
        await bus.consume(name, EVERYTHING, _ignore)


async def _ignore(_record):
    pass


async def until_acknowledged(witness):
    await until_async(lambda: _nothing_left(witness))


async def _nothing_left(witness):
    return await unacknowledged(witness) == 0


async def _has(witness, field, value):
    return getattr((await witness.js.consumer_info("EVENTS", "work")).config, field) == value


async def until_async(condition):
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(NotFoundError):  # not there yet
                if await condition():
                    return
            await asyncio.sleep(0.05)
