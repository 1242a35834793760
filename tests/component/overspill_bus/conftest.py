"""A real nats-server per test, and a plain client beside ours as an outside witness."""

import pytest

from overspill_bus import BusSettings, Topology, connect
from overspill_bus.testing import nats_server
from overspill_runtime.clock import SystemClock
from tests.component.overspill_bus.witness import Witness


@pytest.fixture
async def server():
    async with nats_server() as running:
        yield running


@pytest.fixture
def bus_of():
    """Open a bus: `async with bus_of(server) as bus`."""

    def open_bus(server, *, service="decider", wait=True, **settings):
        url = settings.pop("nats_url", server.url)
        made = BusSettings(cluster="c", service=service, nats_url=url, **{"topology": Topology(), **settings})
        return connect(made, clock=SystemClock(), wait=wait)

    return open_bus


@pytest.fixture
async def bus(server, bus_of):
    async with bus_of(server) as opened:
        await opened.ensure_topology()
        yield opened


@pytest.fixture
async def witness(server):
    async with Witness(server.url) as opened:
        yield opened
