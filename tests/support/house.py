"""A real nats-server and the lab's API server, and hands to act in both: what a single service needs around it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overspill_bus import Bus, BusSettings, Recorded, connect
from overspill_bus.server import NatsServer
from overspill_bus.testing import nats_server
from overspill_events.catalog import Event
from overspill_kube.client import Client, PatchKind
from overspill_kube.client import connect as connect_kube
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES, PODS
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Node
from overspill_runtime.clock import SystemClock
from tests.support.lab_apiserver import lab_apiserver

CLUSTER = "test"
GPU = "nvidia.com/gpu"
PATIENCE_S = 30.0


@dataclass
class House:
    """`others` speaks on the bus for the services that the test does not run."""

    nats: NatsServer
    kubeconfig: Path
    kube: Client
    others: Bus

    def env(self, **more: str) -> dict[str, str]:
        """Environment of a service in this house."""
        return {
            "OVERSPILL_CLUSTER": CLUSTER,
            "OVERSPILL_NATS_URL": self.nats.url,
            "OVERSPILL_KUBECONFIG": str(self.kubeconfig),
            "OVERSPILL_LEASE_SECONDS": "5",
            **more,
        }

    async def node(self, name: str, gpus: int, *, labels: dict[str, str] | None = None, taints: Any = ()) -> Node:
        body = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}
        await self._made(self.kube.create(NODES, body))
        # Admission taints a new node as not ready; without the node controller that is for us to take away.
        await self._made(self.kube.patch(NODES, name, {"spec": {"taints": list(taints)}}, kind=PatchKind.MERGE))
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        return await self._made(
            self.kube.patch(NODES, name, {"status": status}, kind=PatchKind.MERGE, subresource="status")
        )

    async def pod(
        self, name: str, gpus: int, *, on: str = "", labels: dict[str, str] | None = None, **spec: Any
    ) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}}}
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
            "spec": {"containers": [container], **({"nodeName": on} if on else {}), **spec},
        }
        await self._made(self.kube.create(PODS, body, "default"))

    async def events(self, *types: type[Event]) -> list[Recorded]:
        """Everything on the record, of these types, in the record's order."""
        every = [one async for one in self.others.read(["overspill.v1.>"])]
        return [one for one in every if not types or isinstance(one.event, types)]

    async def _made(self, doing: Awaitable[Any]) -> Any:
        outcome = await doing
        assert isinstance(outcome, Done), outcome
        return outcome.object


@contextlib.asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    """Empty but for what the lab's API server starts with; everything ends with the block."""
    async with contextlib.AsyncExitStack() as stack:
        nats = await stack.enter_async_context(nats_server())
        kubeconfig = await stack.enter_async_context(lab_apiserver(folder))
        kube = await stack.enter_async_context(connect_kube(KubeSettings(kubeconfig=str(kubeconfig))))
        settings = BusSettings(cluster=CLUSTER, service="others", nats_url=nats.url)
        others = await stack.enter_async_context(connect(settings, clock=SystemClock(), wait=True))
        await others.ensure_topology()
        yield House(nats=nats, kubeconfig=kubeconfig, kube=kube, others=others)


async def eventually(what: Callable[[], Awaitable[Any]], *, describe: str = "") -> Any:
    """Ask again and again until the answer is true; its value. Fails after a generous time with what it was last."""
    last: Any = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (last := await what()):  # noqa: ASYNC110 (another process answers)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{describe or what.__name__}: not within {PATIENCE_S:g} s; last: {last!r}") from None
    return last


@contextlib.asynccontextmanager
async def running(service: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A service as a task, cancelled at the end of the block; an error of its own ends the test at once."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service)
        yield task
        assert not task.done(), "the service ended by itself"
        task.cancel()
