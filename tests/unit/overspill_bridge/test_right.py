"""A process that may not lead any more sends nothing to a provider, however far it had come."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
import structlog
from prometheus_client import CollectorRegistry

from overspill_bridge.creating import Creator
from overspill_bridge.ending import Ender
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.policy import Acquire
from overspill_bridge.service import make_world
from overspill_bridge.settings import Settings
from overspill_bridge.wishes import Wish
from overspill_bridge.world import RightInDoubt
from overspill_events.catalog import InstanceRequested, InstanceTerminating
from overspill_events.reasons import InstanceEnd
from overspill_kube.client import Client
from overspill_kube.fence import fenced
from overspill_kube.note_limits import NoteLimits
from overspill_kube.transport import Reply
from overspill_providers.protocol import Created, Inventory
from overspill_runtime.clock import ManualClock
from overspill_runtime.settings import load
from tests.support.bridge_cases import IDENTITY, UID, instance, offering, pod

ENV = {
    "OVERSPILL_CLUSTER": "test",
    "OVERSPILL_BRIDGE_PROVIDERS": "fake=http://127.0.0.1:1?token=t",
}
NOT_FOUND = b'{"kind": "Status", "reason": "NotFound", "details": {"name": "web"}}'


class Stopped:
    """A leader that is stopped while it puts its intent on record, and goes on when another one leads."""

    def __init__(self, *, wakes: bool) -> None:
        self.wakes = wakes
        self.lost: str | None = None
        self.intents: list[type] = []
        self.provider = SimpleNamespace(
            name="fake",
            create=AsyncMock(return_value=Created(instance_id="i-1", committed=True)),
            terminate=AsyncMock(),
        )
        clock = ManualClock()
        gone = SimpleNamespace(request=AsyncMock(return_value=Reply(status=404, headers={}, body=NOT_FOUND)))
        self.kube = fenced(Client(gone, clock=clock, note_limits=NoteLimits()), lambda: self.lost)
        context = SimpleNamespace(settings=load(Settings, service="bridge", env=ENV), clock=clock, kube=self.kube)
        control = SimpleNamespace(why_paused=lambda: None)
        self.world = make_world(context, (self.provider,), cluster_uid=IDENTITY.cluster_uid, control=control)
        self.world.pods.take(SimpleNamespace(kind=None, object=pod()))
        self.world.desks["fake"].answered((offering(),))
        self.shared = {
            "record": SimpleNamespace(intend=self.intend, tell=lambda *_: None),
            "metrics": BridgeMetrics(CollectorRegistry()),
            "log": structlog.get_logger(),
        }

    async def intend(self, event: object, _: str) -> None:
        self.intents.append(type(event))
        await asyncio.sleep(0)
        if self.wakes:
            self.lost = "the lease was lost"

    async def create(self) -> None:
        sources = SimpleNamespace(read=AsyncMock(return_value={}))
        await Creator(self.world, sources=sources, **self.shared).acquire(pod(), Acquire(wish=Wish(gpus=1)))

    async def end(self) -> None:
        self.world.book.merge("fake", Inventory(instances=(instance(),), complete=True), started_at=0.0)
        ender = Ender(self.world, self.kube, on_freed=lambda: None, **self.shared)
        await ender.end(self.world.book.of(UID), InstanceEnd.POD_GONE)


async def test_a_leader_creates_and_ends():
    leader = Stopped(wakes=False)
    await leader.create()
    await leader.end()
    leader.provider.create.assert_awaited_once()
    leader.provider.terminate.assert_awaited_once_with("i-1")


async def test_one_that_was_stopped_asks_for_no_instance_and_leaves_no_create_open():
    stopped = Stopped(wakes=True)
    with pytest.raises(RightInDoubt, match="the lease was lost"):
        await stopped.create()
    assert stopped.intents == [InstanceRequested]
    stopped.provider.create.assert_not_called()
    assert stopped.world.book.flight(UID) is None


async def test_one_that_was_stopped_ends_no_instance():
    stopped = Stopped(wakes=True)
    with pytest.raises(RightInDoubt, match="the lease was lost"):
        await stopped.end()
    assert stopped.intents == [InstanceTerminating]
    stopped.provider.terminate.assert_not_called()
    assert stopped.world.book.of(UID)[0].ending is None
