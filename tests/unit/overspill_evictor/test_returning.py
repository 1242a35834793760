"""Returns carried out side by side: what one has found free, the other no longer finds."""

import asyncio
import itertools
from typing import Any, cast

import pytest
import structlog
from prometheus_client import CollectorRegistry

from overspill_bus.bus import Bus
from overspill_bus.outbox import Published
from overspill_events.catalog import Event, ReturnIntended
from overspill_events.envelope import Envelope
from overspill_evictor import returning
from overspill_evictor.live import Seen
from overspill_evictor.memory import Memory
from overspill_evictor.metrics import EvictorMetrics
from overspill_evictor.policy import Hold, Return, decide
from overspill_evictor.returning import Journal, Outcome, Returner
from overspill_evictor.settings import Settings
from overspill_kube.client import Client
from overspill_kube.effects import Evicted
from overspill_objects.core import Pod
from overspill_runtime.clock import ManualClock
from overspill_runtime.settings import load
from tests.unit.overspill_evictor.cluster import NOW, RULES, home, pod, replica_set, snapshot, virtual

TURNS = 50  # more turns of the loop than any step here needs


class World:
    """Two owners with a pod away and one at home each; a bus that takes its time, and home fills up meanwhile."""

    def __init__(self) -> None:
        self.away = {"first": pod("first", owner="a", age=2000), "second": pod("second", owner="b")}
        self.served = {name: pod(f"{name}-home", node="home-1", owner=name, gpus=0) for name in "ab"}
        self.fillers: list[Pod] = []
        self.memory = Memory()
        self.intended: list[str] = []
        self.publishing = asyncio.Event()
        self._ids = itertools.count(1)

    def judge(self, one: Pod) -> Return | Hold:
        pods = [*self.away.values(), *self.served.values(), *self.fillers]
        owners = [replica_set(name, replicas=2) for name in "ab"]
        state = snapshot(home(gpus=2), virtual(), *pods, *owners, open_returns=tuple(self.memory.open.values()))
        return decide(state, NOW, RULES).about(one)

    async def publish(self, event: Event, **_: Any) -> Published:
        assert isinstance(event, ReturnIntended)
        self.fillers.append(pod("filler", node="home-1", owner=None, spillable=False))
        self.intended.append(event.pod.name)
        self.publishing.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return Published(sequence=1, duplicate=False, envelope=self.emit(event))

    def emit(self, event: Event, **_: Any) -> Envelope:
        return Envelope(
            id=str(next(self._ids)), type=event.spec.type, source="s", time=NOW, subject="s", epoch="1-a", sequence=1,
            correlation_id="c",
        )  # fmt: skip

    async def look(self, _: Any, planned: Return) -> Seen:
        owner = planned.owner.name
        return Seen(
            pods=(planned.pod, self.served[owner]),
            owner=replica_set(owner, replicas=2),
            virtual_node=virtual(),
            home_node=home(gpus=2),
        )

    def siblings(self, owner_uid: str) -> frozenset[str]:
        return frozenset({f"p-{owner_uid.removeprefix('rs-')}-home"})


async def test_room_is_booked_before_the_next_one_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two, then for one while the second's intent is on its way: the first, though before it, stays."""
    world = World()

    async def evicted(*_: Any, **__: Any) -> Evicted:
        return Evicted()

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(returning, "look", world.look)
    monkeypatch.setattr(returning, "evict", evicted)
    monkeypatch.setattr(returning, "record_event", nothing)
    settings = load(Settings, service="evictor", env={"OVERSPILL_CLUSTER": "test"})
    returner = Returner(
        client=cast("Client", None),
        journal=Journal(cast("Bus", world), world.memory),
        settings=settings,
        clock=ManualClock(NOW),
        metrics=EvictorMetrics(CollectorRegistry()),
        log=structlog.get_logger(),
        judge=world.judge,
        siblings=world.siblings,
    )
    first, second = world.judge(world.away["first"]), world.judge(world.away["second"])
    assert isinstance(first, Return)
    assert isinstance(second, Return)
    together = frozenset(one.metadata.uid for one in world.away.values())
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        later = group.create_task(returner.carry_out(second, together=together))
        await world.publishing.wait()
        sooner = group.create_task(returner.carry_out(first, together=together))
    assert (later.result(), sooner.result()) == (Outcome.EVICTED, Outcome.NOT_SENT)
    assert world.intended == ["second"]
