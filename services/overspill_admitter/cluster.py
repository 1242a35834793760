"""The cluster as the admitter sees it: live copies of queues, workloads, nodes and pods.

Queue objects are Kueue's kinds in whichever version is served; without them there is nothing to admit to, and this
says so. It must not know what is decided from it.
"""

import asyncio
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from overspill_admitter.memory import Memory
from overspill_admitter.policy import Snapshot
from overspill_admitter.room import seeks_devices
from overspill_admitter.workload import Workload, queue_of, read_workloads
from overspill_capacity.requests import effective_requests
from overspill_capacity.room import HomeSnapshot, Reservation
from overspill_events.catalog import ReturnIntended
from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Informer
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    JOBS,
    KUEUE_GROUP,
    KUEUE_VERSIONS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    Resource,
)
from overspill_objects.core import Pod
from overspill_objects.queues import ClusterQueue, LocalQueue, ResourceFlavor
from overspill_runtime.clock import Clock

RETRY_SECONDS: Final = 2.0


class Cluster:
    """`find_queues` finds the version of the queue objects, then `run` keeps everything."""

    def __init__(self, client: Client, clock: Clock, *, resource: str) -> None:
        self._client, self._clock, self._resource = client, clock, resource
        self._kinds: tuple[Resource[Any], ...] = _QUEUE_KINDS
        self._queues_missing: str | None = "queue objects not looked for yet"
        self.jobs = Informer(client, JOBS)
        self.pods = Informer(client, PODS)
        self.nodes = Informer(client, NODES)
        self.namespaces = Informer(client, NAMESPACES)
        self.classes = Informer(client, PRIORITY_CLASSES)
        self.cluster_queues = Informer(client, CLUSTER_QUEUES)
        self.local_queues = Informer(client, LOCAL_QUEUES)
        self.flavors = Informer(client, RESOURCE_FLAVORS)

    async def find_queues(self) -> None:
        """Return when the cluster serves Kueue's kinds; until then `why_not_synced` says that it does not."""
        while True:
            try:
                found = [await self._client.served(kind, *KUEUE_VERSIONS) for kind in _QUEUE_KINDS]
            except (KubeUnavailable, KubeError) as error:
                self._queues_missing = str(error)
            else:
                if all(found):
                    self._use(found)
                    return
                self._queues_missing = f"{KUEUE_GROUP} is not served: the Job overspill-crds defines it, or Kueue does"
            await self._clock.sleep(RETRY_SECONDS)

    def queue_objects(self) -> Iterator[tuple[Resource[Any], ClusterQueue | LocalQueue | ResourceFlavor]]:
        """Each with its kind, in the version that is served."""
        queues, locals_, flavors = self._kinds
        yield from ((queues, one) for one in self.cluster_queues.items.values())
        yield from ((locals_, one) for one in self.local_queues.items.values())
        yield from ((flavors, one) for one in self.flavors.items.values())

    def _use(self, kinds: list[Resource[Any] | None]) -> None:
        self._kinds = tuple(kind for kind in kinds if kind is not None)
        queues, locals_, flavors = self._kinds
        self.cluster_queues = Informer(self._client, queues)
        self.local_queues = Informer(self._client, locals_)
        self.flavors = Informer(self._client, flavors)
        self._queues_missing = None

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers().values():
                group.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Return once everything was listed."""
        for informer in self._informers().values():
            await informer.wait_synced()

    def why_not_synced(self) -> str | None:
        """Which copy cannot be trusted and why; None when all can."""
        if self._queues_missing is not None:
            return self._queues_missing
        for name, informer in self._informers().items():
            if not informer.is_synced:
                return f"{name}: {informer.last_error or 'not listed yet'}"
        return None

    @property
    def revision(self) -> int:
        """Grows with every change of anything."""
        return sum(informer.revision for informer in self._informers().values())

    def heard_at(self) -> float:
        """Until when (monotonic seconds) the copies of Jobs and pods show everything: a silent watch may lag."""
        return self._clock.monotonic() - max(self.jobs.last_contact_age(), self.pods.last_contact_age())

    def workloads(self) -> tuple[Workload, ...]:
        """All workloads of queues as they are now."""
        return read_workloads(self.jobs.items.values(), self.pods.items.values(), self.classes.items.values())

    def snapshot(self, workloads: tuple[Workload, ...], memory: Memory, expected: frozenset[str]) -> Snapshot:
        """Everything a decision rests on."""
        pods = tuple(self.pods.items.values())
        returns = tuple(memory.returns.values())
        return Snapshot(
            workloads=workloads,
            local_queues=dict(self.local_queues.items),
            cluster_queues={one.metadata.name: one for one in self.cluster_queues.items.values()},
            flavors={one.metadata.name: one for one in self.flavors.items.values()},
            namespaces={one.metadata.name: one.metadata.labels for one in self.namespaces.items.values()},
            home=HomeSnapshot.build(
                self.nodes.items.values(),
                pods,
                resource=self._resource,
                now=self._clock.now(),
                reservations=[self._reservation(one.intent) for one in returns],
            ),
            under_way=self._under_way(pods, workloads),
            expected=expected,
            given={uid: known.given for uid, known in memory.known.items() if known.given is not None},
            heirs={uid: known.inherited_from for uid, known in memory.known.items() if known.inherited_from},
            returns=returns,
        )

    def _informers(self) -> Mapping[str, Informer[Any]]:
        return {
            "jobs": self.jobs,
            "pods": self.pods,
            "nodes": self.nodes,
            "namespaces": self.namespaces,
            "priorityclasses": self.classes,
            "clusterqueues": self.cluster_queues,
            "localqueues": self.local_queues,
            "resourceflavors": self.flavors,
        }

    def _under_way(self, pods: tuple[Pod, ...], workloads: tuple[Workload, ...]) -> tuple[Pod, ...]:
        """Pods outside the queues that wait for a node; those of a workload are counted with it."""
        uids = {one.ref.uid for one in workloads}
        return tuple(
            pod
            for pod in pods
            if seeks_devices(pod, resource=self._resource)
            and not queue_of(pod.metadata)
            and not any(owner.uid in uids for owner in pod.metadata.owner_references)
        )

    def _reservation(self, intent: ReturnIntended) -> Reservation:
        """The evictor's line in the book: the requests of the pod that leaves, its GPUs at least."""
        pod = self.pods.get(intent.pod.namespace, intent.pod.name)
        known = pod is not None and pod.metadata.uid == intent.pod.uid
        requests = effective_requests(pod) if pod is not None and known else {self._resource: Decimal(intent.gpus)}
        return Reservation(
            key=f"return/{intent.pod.uid}", node=intent.home_node, requests=requests, expires_at=intent.expires_at
        )


_QUEUE_KINDS: Final = (CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS)
