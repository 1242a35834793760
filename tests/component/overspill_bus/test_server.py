"""The nats-server that lab and tests run."""

import os

import pytest

from overspill_bus.server import NatsServerError, start_nats_server
from overspill_bus.testing import nats_server
from tests.component.overspill_bus.witness import Witness, opened


async def test_it_restarts_on_the_same_port_with_the_same_streams(server, bus):
    await bus.publish(opened())
    url, pid = server.url, server.pid
    await server.restart()
    assert (server.url, server.pid == pid) == (url, False)
    async with Witness(server.url) as witness:
        assert len(await witness.stored()) == 1


async def test_two_servers_do_not_meet():
    async with nats_server() as one, nats_server() as two:
        assert one.port != two.port


async def test_at_the_end_the_process_is_gone():
    async with nats_server() as server:
        pid = server.pid
    assert not server.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(NatsServerError, match="not running"):
        _ = server.pid


async def test_a_server_that_does_not_start_tells_why(tmp_path):
    config = tmp_path / "nats.conf"
    config.write_text("nonsense { ")
    with pytest.raises(NatsServerError, match="Parse error"):
        await start_nats_server(store=tmp_path / "store", config=config)
