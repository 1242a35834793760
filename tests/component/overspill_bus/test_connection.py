"""The connection's life: it waits for its server for ever, says what is wrong, and ends quickly when told to."""

import asyncio
import contextlib
import gc
import os
import signal

import pytest

from overspill_bus import BusClosed, BusUnavailable, Topology
from overspill_bus.testing import nats_server
from overspill_events import subject_filter
from tests.component.overspill_bus.witness import Witness, cancelled, frozen, opened, until

USERS = """
authorization {{
  users = [
    {{ user: ours, password: pw, permissions: {{ publish: {publish}, subscribe: {subscribe} }} }}
    {{ user: witness, password: pw }}
  ]
}}
"""
ALL = '">"'
STOP = 8.0  # seconds; a drain would take its timeout of thirty


def as_user(server, user="ours"):
    return f"nats://{user}:pw@127.0.0.1:{server.port}"


async def test_it_waits_for_a_server_that_is_not_there_yet(server, bus_of):
    """nats-py's own default gives up after a while; ours is without limit, and nobody is blocked meanwhile."""
    await server.stop()
    async with bus_of(server, wait=False) as bus:
        await asyncio.sleep(1.0)
        assert not bus.connected
        assert bus._connection._client.options["max_reconnect_attempts"] == -1
        await server.start()
        await bus.wait_connected()
        assert bus.connected


async def test_who_wants_to_wait_is_told_that_nobody_answers(server, bus_of, monkeypatch):
    monkeypatch.setattr("overspill_bus.bus._CONNECT_WAIT", 0.5)
    await server.stop()
    with pytest.raises(BusUnavailable, match="not connected to nats://127"):
        async with bus_of(server, wait=True):
            pass


async def test_it_ends_although_a_cancellation_was_swallowed(server, bus_of):
    async def deaf_once():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async with asyncio.timeout(30), bus_of(server) as bus:
        await bus.wait_connected()
        bus._connection._task = connecting = asyncio.create_task(deaf_once())
        await asyncio.sleep(0)
    assert connecting.cancelled()


async def test_it_is_back_after_every_restart(server, bus):
    for n in range(3):
        await server.kill()
        await until(lambda: not bus.connected)
        await server.start()
        await bus.publish(opened(f"n{n}"), timeout=30)
    assert bus.reconnects == 3
    assert bus.problem() is None


async def test_a_bus_that_was_closed_says_no_more_than_that(server, bus_of):
    async with bus_of(server) as bus:
        pass
    assert bus.problem() == "the bus has ended: closed"


async def test_stopping_takes_no_drain_timeout(server, bus_of):
    """Readers and consumers in the middle of quiet requests, cancelled ones, and unread messages."""
    async with asyncio.timeout(60):
        async with bus_of(server) as bus:
            await bus.ensure_topology()
            bus.emit(opened())
            tasks = [
                asyncio.create_task(bus.follow([subject_filter()], _ignore, since=None)),
                asyncio.create_task(bus.consume("one", [subject_filter()], _ignore_async)),
                asyncio.create_task(bus.consume_batches("two", [subject_filter()], _ignore_async)),
            ]
            await asyncio.sleep(6)  # longer than one request: it has timed out and was asked again
            async with asyncio.timeout(STOP):
                for task in tasks:
                    await cancelled(task)
            left = bus.close()
            async with asyncio.timeout(STOP):
                await left


@pytest.mark.parametrize("call", ["consume", "consume_batches", "follow", "publish"])
async def test_a_cancellation_is_never_swallowed(bus, call):
    """Whatever step it meets: also the very one in which an answer arrives."""

    async def publish_on():
        while True:
            await bus.publish(opened())

    for steps in range(0, 120, 3):
        bus.emit(opened(f"n{steps}"))
        task = asyncio.create_task(
            {
                "consume": lambda: bus.consume("one", [subject_filter()], _ignore_async),
                "consume_batches": lambda: bus.consume_batches("two", [subject_filter()], _ignore_async),
                "follow": lambda: bus.follow([subject_filter()], _ignore, since=1),
                "publish": publish_on,
            }[call]()
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancelled(task)


async def test_stopping_does_not_wait_for_a_server_that_is_away_or_silent(server, bus_of):
    async with bus_of(server) as bus:
        await bus.ensure_topology()
        bus.emit(opened())
        await bus.flush(30)
        with frozen(server.pid):
            bus.emit(opened())
            async with asyncio.timeout(STOP):
                await bus.close()
    await server.kill()
    async with asyncio.timeout(STOP):
        async with bus_of(server, wait=False) as bus:
            bus.emit(opened())


async def test_what_was_said_last_is_still_sent_when_stopping(server, bus_of, witness):
    async with bus_of(server) as bus:
        await bus.ensure_topology()
        for n in range(50):
            bus.emit(opened(f"n{n}"))
    assert len(await witness.stored()) == 50


async def test_a_denied_publication_shows_in_readiness(bus_of):
    config = USERS.format(publish='["$JS.API.>", "overspill.dlq.>"]', subscribe=ALL)
    async with nats_server(config=config) as server, bus_of(server, nats_url=as_user(server)) as bus:
        await bus.ensure_topology()
        assert bus.problem() is None
        with pytest.raises(BusUnavailable, match=r"(?i)permissions violation"):
            await bus.publish(opened("node-1"), timeout=3.0)
        assert "permission denied" in bus.problem()
        assert "gate-opened.node-1" in bus.problem()
        assert bus.connected


async def test_the_servers_word_ends_it_for_good_and_everybody_hears(bus_of):
    """A subscription too many makes nats-py close its client: readers and publishers raise, so that the process ends."""
    async with nats_server(config="max_subscriptions: 2") as server, bus_of(server) as bus:
        await bus.publish(opened())  # the first subscription: answers
        watch = asyncio.create_task(bus.wait_closed())
        reader = asyncio.create_task(bus.follow([subject_filter()], _ignore, since=1))
        await asyncio.sleep(0.2)
        worker = asyncio.create_task(bus.consume_batches("work", [subject_filter()], _ignore_async))
        async with asyncio.timeout(30):
            done = await asyncio.gather(watch, reader, worker, return_exceptions=True)
        assert [type(each) for each in done] == [BusClosed, BusClosed, BusClosed]
        assert "maximum subscriptions exceeded" in str(done[0])
        with pytest.raises(BusUnavailable, match="for good"):
            await bus.publish(opened(), timeout=0.2)
        assert "for good" in bus.problem()


async def test_revoked_credentials_are_told_and_given_back_they_work_again(bus_of):
    config = USERS.format(publish=ALL, subscribe=ALL)
    async with nats_server(config=config) as server, bus_of(server, nats_url=as_user(server)) as bus:
        await bus.publish(opened("before"))
        server.config.write_text("authorization { users = [{ user: other, password: pw }] }")
        os.kill(server.pid, signal.SIGHUP)  # nats-server reads its configuration again
        await until(lambda: "Authorization" in (bus.problem() or ""), "the refusal in problem()")
        bus.emit(opened("during"))
        await asyncio.sleep(1.0)
        gc.collect()  # a socket that a refused attempt left behind would be a warning now, and so a failure
        server.config.write_text(config)
        os.kill(server.pid, signal.SIGHUP)
        assert await bus.flush(30)
        assert bus.problem() is None


async def test_wrong_credentials_are_told_while_it_keeps_trying(bus_of):
    async with nats_server(config=USERS.format(publish=ALL, subscribe=ALL)) as server:
        url = f"nats://ours:wrong@127.0.0.1:{server.port}"
        async with bus_of(server, nats_url=url, wait=False) as bus:
            await until(lambda: "Authorization" in (bus.problem() or ""), "the refusal in problem()")


async def test_an_address_that_is_none_ends_it_and_is_named(server, bus_of):
    async with bus_of(server, wait=False, nats_url="nats://127.0.0.1:nats") as bus:
        with pytest.raises(BusClosed, match=r"nats://127\.0\.0\.1:nats"):
            await bus.wait_connected()
        assert "127.0.0.1:nats" in bus.problem()


async def test_credentials_that_are_not_there_yet_are_named_while_it_keeps_trying(bus_of, tmp_path):
    config = "authorization { users = [{ nkey: UDBXRCJC6O4T3BOB5TGMSK3D762R2GYVEZ62N4AQ46I2UNY4AAM2CFWU }] }"
    file = str(tmp_path / "later.creds")
    async with nats_server(config=config) as server, bus_of(server, wait=False, credentials_file=file) as bus:
        await until(lambda: "later.creds" in (bus.problem() or ""), "the file's name in problem()")


async def test_a_bus_that_is_closed_at_once_leaves_nothing_behind(server, bus_of):
    async with bus_of(server, wait=False):
        pass


async def test_an_event_is_stored_once_even_when_the_stream_has_forgotten_its_id(bus_of):
    """Answers cannot reach us for longer than the duplicate window, while our messages reach the stream."""
    deaf = USERS.format(publish=ALL, subscribe='{ deny: "_INBOX_decider.>" }')
    memory = Topology(duplicate_window=0.1)
    async with nats_server(config=deaf) as server:
        async with bus_of(server, nats_url=as_user(server), service="evictor", topology=memory) as other:
            await other.ensure_topology()
        async with bus_of(server, nats_url=as_user(server), topology=memory) as bus:
            with pytest.raises(BusUnavailable):
                await bus.publish(opened("once"), timeout=5.0)  # two attempts
            server.config.write_text(USERS.format(publish=ALL, subscribe=ALL))
            await server.restart()
            await bus.publish(opened("after"), timeout=30)
        async with Witness(as_user(server, "witness")) as witness:
            assert [(each.node, each.number) for each in await witness.stored()] == [("once", 1), ("after", 2)]


def _ignore(_record):
    pass


async def _ignore_async(_records):
    pass
