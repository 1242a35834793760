"""Publishing against a real server: order, numbers, causes, outages, duplicates, refusals."""

import asyncio
import logging

import pytest
from nats.js.errors import NotFoundError

from overspill_bus import BusUnavailable
from overspill_bus.testing import nats_server
from overspill_events import Envelope, EventError, decode, from_headers, subject_for
from tests.component.overspill_bus.witness import LossyProxy, Witness, decided, frozen, opened, until


async def test_a_published_event_is_stored_with_its_envelope(bus, witness):
    published = await bus.publish(opened("ip-10-0-0-1.ec2.internal"))
    (stored,) = await witness.stored()
    assert stored.subject == "overspill.v1.c.decider.gate-opened.ip-10-0-0-1_ec2_internal"
    assert stored.headers["Nats-Msg-Id"] == stored.headers["ce-id"] == published.envelope.id
    assert from_headers(stored.headers, subject=stored.subject, stream_sequence=1) == published.envelope
    assert decode(published.envelope.type, stored.data) == opened("ip-10-0-0-1.ec2.internal")
    assert (published.sequence, published.duplicate, published.envelope.source) == (1, False, "/overspill/c/decider")


async def test_everything_that_a_process_says_is_in_one_order(bus, witness):
    waiting = []
    for n in range(60):
        if n % 3:
            bus.emit(decided("n", n))
        else:
            waiting.append(asyncio.create_task(bus.publish(decided("n", n))))
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert await bus.flush(30)
    stored = await witness.stored()
    assert [decode(each.headers["ce-type"], each.data).samples for each in stored] == list(range(60))
    assert [each.number for each in stored] == list(range(1, 61))


async def test_cause_correlation_and_trace_are_carried_along(bus):
    first = await bus.publish(opened("a"))
    second = bus.emit(opened("b"), caused_by=first.envelope)
    await bus.flush(30)
    records = [record async for record in bus.read(["overspill.v1.>"])]
    third = await bus.publish(opened("c"), caused_by=records[1])
    assert first.envelope.causation_id is None
    assert first.envelope.correlation_id == first.envelope.id
    assert (second.causation_id, third.envelope.causation_id) == (first.envelope.id, second.id)
    assert second.correlation_id == third.envelope.correlation_id == first.envelope.id
    given = await bus.publish(opened("d"), caused_by=first.envelope, correlation_id='a "question", é\r\n100%')
    assert given.envelope.correlation_id == 'a "question", é\r\n100%'
    (again,) = [record async for record in bus.read(["overspill.v1.>"], since=given.sequence)]
    assert again.envelope == given.envelope
    traced = Envelope(**{**_fields(first.envelope), "traceparent": "00-1-2-01"})
    assert (await bus.publish(opened("e"), caused_by=traced)).envelope.traceparent == "00-1-2-01"


async def test_a_new_start_is_a_new_epoch(server, bus_of, witness):
    for _ in range(2):
        async with bus_of(server) as bus:
            await bus.publish(opened())
    first, second = await witness.stored()
    assert first.headers["ce-epoch"] != second.headers["ce-epoch"]
    assert (first.number, second.number) == (1, 1)


async def test_what_was_said_before_the_server_was_there_arrives_complete(server, bus_of):
    await server.stop()
    async with bus_of(server, wait=False) as bus:
        for n in range(50):
            bus.emit(decided("n", n))
        assert not bus.connected
        assert "not connected" in bus.problem()
        with pytest.raises(BusUnavailable, match="was not acknowledged") as caught:
            await bus.publish(decided("n", 50), timeout=0.2)
        assert caught.value.maybe_stored  # it is still sent
        assert bus.buffered == 51
        await server.start()
        assert await bus.flush(30)
        assert bus.problem() is None
    async with Witness(server.url) as witness:
        assert [each.number for each in await witness.stored()] == list(range(1, 52))


async def test_a_full_buffer_loses_the_oldest_and_shows_the_gap(server, bus_of):
    await server.stop()
    async with bus_of(server, wait=False, buffer_events=10) as bus:
        for n in range(25):
            bus.emit(decided("n", n))
        assert (bus.buffered, bus.lost_events) == (10, 15)
        await server.start()
        assert await bus.flush(30)
    async with Witness(server.url) as witness:
        stored = await witness.stored()
    assert [each.number for each in stored] == list(range(16, 26))
    assert decode(stored[0].headers["ce-type"], stored[0].data).samples == 15


async def test_who_waits_for_an_event_that_is_dropped_is_told(server, bus_of):
    await server.stop()
    async with bus_of(server, wait=False, buffer_events=1) as bus:
        waiting = asyncio.create_task(bus.publish(opened("a"), timeout=30))
        await asyncio.sleep(0)
        bus.emit(opened("b"))
        with pytest.raises(BusUnavailable, match="buffer full") as caught:
            await waiting
        assert not caught.value.maybe_stored


async def test_a_publish_during_an_outage_is_stored_exactly_once(server, bus, witness):
    await bus.publish(opened("before"))
    await server.kill()
    with pytest.raises(BusUnavailable):
        await bus.publish(opened("during"), timeout=0.5)
    await server.start()
    await bus.publish(opened("after"), timeout=30)
    assert [(each.node, each.number) for each in await witness.stored()] == [("before", 1), ("during", 2), ("after", 3)]


async def test_an_intent_that_was_not_sent_is_withdrawn(server, bus, witness):
    await bus.publish(opened("before"))
    await server.kill()
    await until(lambda: not bus.connected)
    with pytest.raises(BusUnavailable) as caught:
        await bus.publish(opened("intent"), timeout=0.3, must_ack=True)
    assert not caught.value.maybe_stored
    assert bus.buffered == 0
    await server.start()
    await bus.publish(opened("after"), timeout=30)
    assert [(each.node, each.number) for each in await witness.stored()] == [("before", 1), ("after", 2)]


async def test_an_intent_that_may_have_been_sent_is_stored_once(server, bus, witness):
    """The caller is told, and what it says next comes after the intent."""
    await bus.publish(opened("before"))
    with frozen(server.pid):
        with pytest.raises(BusUnavailable) as caught:
            await bus.publish(opened("intent"), timeout=0.3, must_ack=True)
        assert caught.value.maybe_stored
    await bus.publish(opened("settled"), timeout=30)
    stored = await witness.stored()
    assert [(each.node, each.number) for each in stored] == [("before", 1), ("intent", 2), ("settled", 3)]


async def test_a_cancelled_intent_is_withdrawn_and_the_cancellation_goes_on(server, bus, witness):
    await server.kill()
    await until(lambda: not bus.connected)
    task = asyncio.create_task(bus.publish(opened("intent"), must_ack=True))
    await until(lambda: bus.buffered == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bus.buffered == 0
    await server.start()
    await bus.publish(opened("after"), timeout=30)
    assert [each.node for each in await witness.stored()] == ["after"]


async def test_a_late_answer_makes_no_second_event_and_no_gap(server, bus, witness):
    """The first attempt is stored while its answer comes too late; the repetition is called a duplicate, of ourselves."""
    await bus.publish(opened("before"))
    with frozen(server.pid):
        bus.emit(opened("slow"))
        await asyncio.sleep(2.5)  # longer than an attempt: it is repeated into the same silence
    published = await bus.publish(opened("after"), timeout=30)
    assert published.envelope.sequence == 3
    stored = await witness.stored()
    assert [(each.node, each.number) for each in stored] == [("before", 1), ("slow", 2), ("after", 3)]


async def test_a_lost_answer_makes_no_second_event_and_no_gap(server, bus_of, witness):
    async with LossyProxy(server.port) as proxy, bus_of(server, nats_url=proxy.url) as bus:
        await bus.publish(opened("before"))
        proxy.drop = lambda subject, _size: subject.startswith("_INBOX_decider") and proxy.dropped < 1
        published = await bus.publish(opened("unanswered"), timeout=30)
        assert (proxy.dropped, published.duplicate, published.envelope.sequence) == (1, False, 2)
        await bus.publish(opened("after"))
    stored = await witness.stored()
    assert [(each.node, each.number) for each in stored] == [("before", 1), ("unanswered", 2), ("after", 3)]


async def test_an_id_that_somebody_else_has_used_leaves_no_gap(server, bus, bus_of, witness):
    """Derived ids: two processes handle the same input and say the same; it is stored once."""
    async with bus_of(server, service="evictor") as other:
        first = await bus.publish(opened("a"), event_id="same")
        second = await other.publish(opened("a"), event_id="same")
        third = await other.publish(opened("b"))
    assert (first.duplicate, second.duplicate, second.sequence) == (False, True, first.sequence)
    assert (third.envelope.sequence, third.duplicate) == (1, False)
    assert [(each.node, each.number) for each in await witness.stored()] == [("a", 1), ("b", 1)]


async def test_a_repeated_id_of_our_own_is_stored_once_without_a_gap(bus, witness):
    for _ in range(3):
        await bus.publish(opened("a"), event_id="same")
    await bus.publish(opened("b"))
    assert [(each.node, each.number) for each in await witness.stored()] == [("a", 1), ("b", 2)]


async def test_a_missing_stream_is_made(server, bus, witness):
    await bus.publish(opened("a"))
    await witness.js.delete_stream("EVENTS")
    await bus.publish(opened("b"), timeout=30)
    assert [each.node for each in await witness.stored()] == ["b"]
    await witness.js.delete_stream("DLQ")
    with pytest.raises(NotFoundError):
        await witness.js.stream_info("DLQ")
    await bus.ensure_topology()
    assert (await witness.js.stream_info("DLQ")).config.subjects == ["overspill.dlq.>"]


async def test_waiting_for_the_streams_is_said_once_and_is_no_warning_at_the_start(server, bus_of, witness, caplog):
    """Services start before their streams are made; a stream that goes away later is worth a warning."""
    caplog.set_level(logging.INFO, logger="overspill_bus")

    def said() -> list[str]:
        return [one.levelname for one in caplog.records if "cannot publish: nobody serves" in one.getMessage()]

    async with bus_of(server, makes_streams=False) as bus:
        for gone in (["INFO"], ["INFO", "WARNING"]):
            with pytest.raises(BusUnavailable, match="nobody serves"):  # it has been tried several times meanwhile
                await bus.publish(opened("a"), timeout=1)
            assert said() == gone
            await bus.ensure_topology()
            assert await bus.flush(30)
            await witness.js.delete_stream("EVENTS")
    assert said() == ["INFO", "WARNING"]


async def test_an_event_that_is_too_large_is_refused_where_it_is_said(bus, witness):
    with pytest.raises(EventError, match=r"GateOpened: 11\d{5} bytes; a message may have 1048576"):
        bus.emit(_large(1_100_000))
    await bus.publish(opened("fine"))
    assert [each.number for each in await witness.stored()] == [1]


async def test_a_server_that_takes_less_refuses_without_ending_the_connection(bus_of):
    """What was said before the limit was known is lost, counted and a gap; who waits is told."""
    async with nats_server(config="max_payload: 4096") as server:
        await server.stop()
        async with bus_of(server, wait=False) as bus:
            bus.emit(_large(10_000))
            bus.emit(opened("fine"))
            await server.start()
            assert await bus.flush(30)
            assert (bus.lost_events, bus.connected, bus.reconnects) == (1, True, 0)
            async with Witness(server.url) as witness:
                assert [each.number for each in await witness.stored()] == [2]


async def test_a_plain_client_sees_every_event_live(bus, witness):
    seen = []

    async def see(message):
        seen.append(message.subject)

    await witness.client.subscribe("overspill.>", cb=see)
    await witness.client.flush()
    for n in range(20):
        bus.emit(opened(f"n{n}"))
    await bus.flush(30)
    # On a slow machine an attempt may be repeated: a plain client hears it twice, the stream keeps it once.
    said = {subject_for(opened(f"n{n}"), cluster="c", service="decider") for n in range(20)}
    await until(lambda: said <= set(seen), "all twenty heard")


def _large(size: int):
    return type(opened())(node="n", reason=opened().reason, detail="x" * size)


def _fields(envelope: Envelope) -> dict:
    return {name: getattr(envelope, name) for name in envelope.__struct_fields__}
