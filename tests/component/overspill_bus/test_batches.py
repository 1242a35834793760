"""Batches for writers: the stream's order, acknowledged when written, complete numbers."""

import asyncio

import pytest

from overspill_bus import RetryLater
from overspill_events import subject_filter
from tests.component.overspill_bus.test_consuming import buried, unacknowledged, until_async
from tests.component.overspill_bus.witness import LossyProxy, cancelled, decided, opened, until

EVERYTHING = [subject_filter()]


class Ledger:
    def __init__(self, bus, fail=lambda _records: None, **options):
        self.records = []
        self.batches = []
        self._fail = fail
        self.task = asyncio.create_task(bus.consume_batches("recorder", EVERYTHING, self._write, **options))

    async def _write(self, records):
        if error := self._fail(records):
            raise error
        self.batches.append(len(records))
        self.records.extend(records)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await cancelled(self.task)

    async def written(self, count):
        await until(lambda: len(self.records) >= count or self.task.done(), f"{count} events written")
        assert not self.task.done(), self.task.exception()
        return [record.envelope.stream_sequence for record in self.records]


async def say(bus, count):
    for n in range(count):
        bus.emit(decided("n", n))
    assert await bus.flush(30)


async def _written_off(witness):
    return await unacknowledged(witness, "recorder") == 0


async def test_the_record_is_written_in_order_in_batches(bus, witness):
    await say(bus, 1200)
    async with Ledger(bus, batch=100) as ledger:
        assert await ledger.written(1200) == list(range(1, 1201))
        assert max(ledger.batches) <= 100
        assert len(ledger.batches) < 1200
        await until_async(lambda: _written_off(witness))
        await say(bus, 1)  # and live
        assert len(await ledger.written(1201)) == 1201


async def test_it_goes_on_where_it_was_after_a_new_start_and_a_restart(server, bus, witness):
    await say(bus, 50)
    async with Ledger(bus) as ledger:
        await ledger.written(50)
        await until_async(lambda: _written_off(witness))
    await say(bus, 10)
    async with Ledger(bus) as ledger:
        assert await ledger.written(10) == list(range(51, 61))
        await server.kill()
        await server.start()
        await say(bus, 10)
        assert await ledger.written(20) == list(range(51, 71))


async def test_a_writer_that_cannot_write_yet_gets_the_same_batch_again(bus):
    tries = []

    def fail(records):
        tries.append([record.envelope.stream_sequence for record in records])
        return RetryLater(0.01, "database is locked") if len(tries) < 4 else None

    await say(bus, 5)
    async with Ledger(bus, fail) as ledger:
        assert await ledger.written(5) == [1, 2, 3, 4, 5]
    assert tries[0] == tries[1] == tries[2] == tries[3]


async def test_an_error_of_the_writer_is_raised_and_the_batch_comes_again(bus):
    await say(bus, 5)
    ledger = Ledger(bus, lambda _records: OSError("disk full"), ack_wait=3600)
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="disk full"):
            await ledger.task
    async with Ledger(bus, ack_wait=3600) as again:
        assert await again.written(5) == [1, 2, 3, 4, 5]


async def test_what_a_killed_writer_had_in_hand_is_written_first(server, bus, bus_of):
    """Not after ack_wait, and not after newer events: the ledger would see gaps."""
    await say(bus, 5)
    blocked = asyncio.Event()

    async with bus_of(server, service="recorder") as victim:

        async def never(_records):
            blocked.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(victim.consume_batches("recorder", EVERYTHING, never, ack_wait=3600))
        await blocked.wait()
        await cancelled(task)
    await say(bus, 5)
    async with Ledger(bus, ack_wait=3600) as ledger:
        assert await ledger.written(10) == list(range(1, 11))


async def test_a_message_lost_on_the_way_is_written_in_its_place(server, bus_of):
    async with (
        LossyProxy(server.port) as proxy,
        bus_of(server, nats_url=proxy.url) as bus,
        Ledger(bus, ack_wait=3600) as ledger,
    ):
        await say(bus, 2)
        await ledger.written(2)
        proxy.drop = lambda subject, _size: "gate-decided" in subject and proxy.dropped < 1
        await say(bus, 4)
        assert await ledger.written(6) == [1, 2, 3, 4, 5, 6]
        assert proxy.dropped == 1


async def test_what_cannot_be_read_is_buried_and_still_written(bus, witness):
    """A ledger that was not told of a number would call it a gap."""
    await bus.publish(opened("a"))
    headers = {name: value for name, value in (await witness.stored())[0].headers.items() if name.startswith("ce-")}
    subject = "overspill.v1.c.decider.gate-opened.a"
    await witness.js.publish(subject, b"[]", headers={**headers, "ce-id": "other", "ce-sequence": "000000000002"})
    await bus.publish(opened("b"))
    async with Ledger(bus) as ledger:
        assert await ledger.written(3) == [1, 2, 3]
        await until_async(lambda: _written_off(witness))
    assert [record.error is None for record in ledger.records] == [True, False, True]
    assert ledger.records[1].envelope.sequence == 2
    (letter,) = await buried(bus)
    assert (letter.durable, letter.stream_sequence, letter.reason) == ("recorder", 2, "undecodable")


async def test_a_deleted_consumer_is_made_again_without_repeating_what_was_written(bus, witness):
    async with Ledger(bus) as ledger:
        await say(bus, 5)
        await ledger.written(5)
        await until_async(lambda: _written_off(witness))
        await witness.js.delete_consumer("EVENTS", "recorder")
        await say(bus, 5)
        assert await ledger.written(10) == list(range(1, 11))
