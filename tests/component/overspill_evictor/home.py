"""A house with a home node, a virtual node and replicas, for the evictor's tests; the test plays kubelet and controllers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from overspill_events.catalog import Event
from overspill_events.names import BASE_TAINT, SPILLABLE_LABEL, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_evictor.service import LEASE, SERVICE, run
from overspill_evictor.settings import Settings
from overspill_kube.client import PatchKind
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES, PDBS, PODS, REPLICA_SETS
from overspill_objects.core import Pod, Taint
from overspill_runtime.settings import load
from overspill_service import serve
from tests.support.house import GPU, House, eventually, running

VIRTUAL = "virtual-1"
HOME = "home-1"
SHORT = {
    "INTERVAL": "0.2", "GATE_SETTLE": "0.2", "MIN_POD_AGE": "0", "MAX_PER_CYCLE": "3", "RETURN_TIMEOUT": "20", "BACKOFF": "0.5",
    "REFUSAL_RETRY": "0.5", "MEMORY": "600",
}  # fmt: skip


COMMON = ("MODE", "KUBECONFIG")


class Home:
    """Replicas `web-…` of ReplicaSet web, wherever the test puts them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.kube = house.kube
        self.owner = ""
        self._names = 0

    async def build(self, *, gpus: int = 8, closed: bool = True, replicas: int = 3) -> None:
        await self.house.node(HOME, gpus)
        taints = [{"key": BASE_TAINT, "effect": "NoSchedule"}]
        taints += [{"key": SWITCH_TAINT, "effect": "NoSchedule"}] if closed else []
        await self.house.node(VIRTUAL, 1000, labels={VIRTUAL_LABEL: "true"}, taints=taints)
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
        made = await self.kube.create(REPLICA_SETS, body)
        assert isinstance(made, Done), made
        self.owner = made.object.metadata.uid

    async def close_gate(self) -> None:
        node = await self.kube.get(NODES, VIRTUAL)
        assert node is not None
        await set_taints(
            self.kube, VIRTUAL, add=[Taint(key=SWITCH_TAINT, effect="NoSchedule")], expect_uid=node.metadata.uid
        )

    async def replica(self, *, on: str, phase: str = "Running", gpus: int = 1, **annotations: str) -> str:
        """A replica that has been placed; Running ones are Ready."""
        self._names += 1
        name = f"web-{self._names}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": self.owner, "controller": True}
        tolerations = [{"key": BASE_TAINT, "operator": "Exists"}]
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
        body = {
            "metadata": {
                "name": name, "namespace": "default", "labels": {"app": "web", SPILLABLE_LABEL: "true"},
                "annotations": annotations, "ownerReferences": [owner],
            },
            "spec": {"containers": [container], "nodeName": on, "tolerations": tolerations},
        }  # fmt: skip
        made = await self.kube.create(PODS, body, "default")
        assert isinstance(made, Done), made
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        status: dict[str, Any] = {"phase": phase, "conditions": [ready], "startTime": "2026-01-01T00:00:00Z"}
        await self.kube.patch(
            PODS, name, {"status": status}, kind=PatchKind.MERGE, namespace="default", subresource="status"
        )
        return name

    async def budget(self, *, allowed: int) -> None:
        """A PodDisruptionBudget as its controller would have counted it."""
        if await self.kube.get(PDBS, "web", "default") is None:
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
            await self.kube.create(PDBS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        pdb = await self.kube.get(PDBS, "web", "default")
        assert pdb is not None
        status = {
            "observedGeneration": pdb.metadata.generation, "disruptionsAllowed": allowed, "currentHealthy": 2 + allowed,
            "desiredHealthy": 2, "expectedPods": 3,
        }  # fmt: skip
        await self.kube.patch(
            PDBS, "web", {"status": status}, kind=PatchKind.MERGE, namespace="default", subresource="status"
        )

    async def pods(self) -> dict[str, Pod]:
        return {pod.metadata.name: pod for pod in (await self.kube.list(PODS, namespace="default")).items}

    async def leaving(self) -> set[str]:
        """Names of pods that were evicted: on their way out."""
        return {name for name, pod in (await self.pods()).items() if pod.metadata.deletion_timestamp is not None}

    async def keep_replicas(self, count: int, *, on: str = HOME) -> None:
        """Kubelet and ReplicaSet controller in one: ends what is leaving, replaces what is missing, for ever."""
        while True:
            pods = await self.pods()
            for pod in pods.values():
                if pod.metadata.deletion_timestamp is not None:
                    await self.kube.delete(PODS, pod.metadata.name, "default", grace_seconds=0)
            living = [pod for pod in pods.values() if pod.metadata.deletion_timestamp is None]
            for _ in range(count - len(living)):
                await self.replica(on=on)
            await asyncio.sleep(0.1)

    def settings(self, **more: str) -> Settings:
        own = {f"OVERSPILL_EVICTOR_{name}": value for name, value in (SHORT | more).items() if name not in COMMON}
        common = {f"OVERSPILL_{name}": more[name] for name in COMMON if name in more}
        return load(Settings, service=SERVICE, env=self.house.env(**own, **common))

    @contextlib.asynccontextmanager
    async def evictor(self, **more: str) -> AsyncIterator[None]:
        async with running(serve(SERVICE, self.settings(**more), run, lease=LEASE)):
            yield

    @contextlib.asynccontextmanager
    async def kept(self, count: int, *, on: str = HOME) -> AsyncIterator[None]:
        async with running(self.keep_replicas(count, on=on)):
            yield

    async def told(self, *types: type[Event]) -> list[Any]:
        """Payloads on the record, of these types."""
        return [one.event for one in await self.house.events(*types)]

    async def until_told(self, event_type: type[Event], count: int = 1) -> list[Any]:
        """Wait for that many events of a type."""

        async def enough() -> list[Any] | None:
            found = await self.told(event_type)
            return found if len(found) >= count else None

        return list(await eventually(enough, describe=f"{count} {event_type.__name__}"))
