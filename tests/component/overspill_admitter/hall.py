"""A house with queues and home nodes, for the admitter's tests."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from overspill_admitter.service import LEASE, SERVICE, run
from overspill_admitter.settings import Settings
from overspill_events.catalog import Event
from overspill_events.names import ADMISSION_GATE, QUEUE_LABEL, VIRTUAL_LABEL
from overspill_kube.outcomes import Done
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    Resource,
)
from overspill_objects.batch import Job
from overspill_objects.core import Pod
from overspill_runtime.settings import load
from overspill_service import serve
from tests.support.house import GPU, House, eventually, running


class Hall:
    """Namespace default with LocalQueues research → training (flavor home) and inference → vk (flavor virtual)."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.kube = house.kube

    async def build(
        self, *, quota: int = 8, home_gpus: tuple[int, ...] = (8,), strategy: str = "BestEffortFIFO"
    ) -> None:
        for number, gpus in enumerate(home_gpus, start=1):
            await self.house.node(f"home-{number}", gpus)
        await self.make(RESOURCE_FLAVORS, {"metadata": {"name": "home"}, "spec": {}})
        await self.make(
            RESOURCE_FLAVORS, {"metadata": {"name": "virtual"}, "spec": {"nodeLabels": {VIRTUAL_LABEL: "true"}}}
        )
        for name, flavor, nominal in (("training", "home", quota), ("vk", "virtual", 1000)):
            group = {"coveredResources": [GPU, "cpu"], "flavors": [{"name": flavor, "resources": [
                {"name": GPU, "nominalQuota": nominal}, {"name": "cpu", "nominalQuota": "10k"}]}]}  # fmt: skip
            spec = {"namespaceSelector": {}, "queueingStrategy": strategy, "resourceGroups": [group]}
            await self.make(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec})
        for name, queue in (("research", "training"), ("inference", "vk")):
            body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}}
            await self.make(LOCAL_QUEUES, body)

    async def make(self, resource: Resource[Any], body: dict[str, Any]) -> Any:
        made = await self.kube.create(resource, body)
        assert isinstance(made, Done), made
        return made.object

    async def job(
        self, name: str, *, gpus: int = 1, queue: str = "research", annotated: bool = False, suspend: bool = True
    ) -> Job:
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        where = "annotations" if annotated else "labels"
        metadata = {"name": name, "namespace": "default", where: {QUEUE_LABEL: queue}}
        job: Job = await self.make(JOBS, {"metadata": metadata, "spec": {"suspend": suspend, "template": template}})
        return job

    async def pod(
        self, name: str, *, gpus: int = 1, queue: str = "inference", owner: str = "", gated: bool = True
    ) -> Pod:
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
        metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": {QUEUE_LABEL: queue}}
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
            ]
        gates = [{"name": ADMISSION_GATE}, {"name": "somebody.else/gate"}] if gated else []
        pod: Pod = await self.make(
            PODS, {"metadata": metadata, "spec": {"containers": [container], "schedulingGates": gates}}
        )
        return pod

    async def released(self) -> set[str]:
        """Names of Jobs that are not suspended and of pods without our gate."""
        jobs = (await self.kube.list(JOBS, namespace="default")).items
        pods = (await self.kube.list(PODS, namespace="default")).items
        names = {job.metadata.name for job in jobs if not job.spec.suspend}
        return names | {
            pod.metadata.name
            for pod in pods
            if QUEUE_LABEL in pod.metadata.labels and all(g.name != ADMISSION_GATE for g in pod.spec.scheduling_gates)
        }

    async def until_released(self, *names: str) -> None:
        async def all_there() -> bool:
            return set(names) <= await self.released()

        await eventually(all_there, describe=f"released: {names}")

    def settings(self, **more: str) -> Settings:
        own = {"INTERVAL": "0.1", "RETRY": "0.5", **{k: v for k, v in more.items() if k != "MODE"}}
        env = {f"OVERSPILL_ADMITTER_{name}": value for name, value in own.items()}
        common = {"OVERSPILL_MODE": more["MODE"]} if "MODE" in more else {}
        return load(Settings, service=SERVICE, env=self.house.env(**env, **common))

    @contextlib.asynccontextmanager
    async def admitter(self, **more: str) -> AsyncIterator[None]:
        async with running(serve(SERVICE, self.settings(**more), run, lease=LEASE)):
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
