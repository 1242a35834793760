"""Node lifecycle: a node whose lease is not renewed becomes Unknown, and every node's state becomes taints.

Where no node is ready nobody has to leave: it is more likely this process that hears nothing. A node is judged by when
this process last saw its lease or its Ready condition change, never by comparing its clock with ours.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Change, ChangeKind
from overspill_kube.outcomes import Conflict
from overspill_kube.resources import NODES, PODS
from overspill_lab.controllers.cluster import Cluster
from overspill_lab.controllers.node_rules import is_deaf, silent_conditions, wanted_taints
from overspill_lab.controllers.replica_rules import is_ready
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import OutrunError
from overspill_lab.stamps import stamp
from overspill_objects.coordination import Lease
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of

LEASE_NAMESPACE: Final = "kube-node-lease"


class NodeHealth:
    """The controller. `run` watches the silence, `queue.run` writes taints."""

    def __init__(self, cluster: Cluster, *, grace_s: float) -> None:
        self.queue: WorkQueue[str] = WorkQueue("node-taints", self._write_taints)
        self._cluster = cluster
        self._grace_s = grace_s
        self._heard: dict[str, float] = {}
        self._deaf = False
        self._log = structlog.get_logger(controller="node-health")
        cluster.nodes.subscribe(self._on_node)
        cluster.leases.subscribe(self._on_lease)

    async def run(self) -> None:
        """Look for silent nodes, for ever."""
        while True:
            await asyncio.sleep(min(5.0, self._grace_s / 10))
            now = self._client.clock.monotonic()
            for node in self._cluster.nodes.all():
                heard = self._heard.setdefault(node.metadata.name, now)
                # While the leases are not to be seen, silence is ours.
                if now - heard > self._grace_s and self._cluster.leases.informer.is_synced:
                    await self._mark_silent(node)

    @property
    def _client(self) -> Client:
        return self._cluster.client

    def _on_node(self, change: Change[Node]) -> None:
        name = change.object.metadata.name
        if change.kind is ChangeKind.DELETED:
            self._heard.pop(name, None)
            self._listen()
            return
        self.queue.add(name)
        self._listen()
        before = None if change.old is None else condition_of(change.old.status.conditions, "Ready")
        after = condition_of(change.object.status.conditions, "Ready")
        if name not in self._heard or (after is not None and after.status != "Unknown" and after != before):
            self._heard[name] = self._client.clock.monotonic()

    def _listen(self) -> None:
        """Notice that all nodes are lost, or that one is back: every node gets its time again, and other taints."""
        deaf = is_deaf(self._cluster.nodes.all())
        if deaf == self._deaf:
            return
        self._deaf = deaf
        now = self._client.clock.monotonic()
        for node in self._cluster.nodes.all():
            if not deaf:
                self._heard[node.metadata.name] = now
            self.queue.add(node.metadata.name)

    def _on_lease(self, change: Change[Lease]) -> None:
        if change.object.metadata.namespace == LEASE_NAMESPACE and change.kind is not ChangeKind.DELETED:
            self._heard[change.object.metadata.name] = self._client.clock.monotonic()

    async def _mark_silent(self, node: Node) -> None:
        now = self._client.clock.now()
        conditions = silent_conditions(node, now=now)
        if not conditions:
            return
        self._log.warning("node-silent", node=node.metadata.name)
        try:
            await self._client.patch(
                NODES,
                node.metadata.name,
                {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}},
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )
            for pod in self._cluster.pods.all():
                if pod.spec.node_name == node.metadata.name and is_ready(pod):
                    await self._mark_pod(pod)
        except (KubeError, KubeUnavailable) as error:  # the next look tries again
            self._log.warning("node-not-marked", node=node.metadata.name, error=str(error))

    async def _mark_pod(self, pod: Pod) -> None:
        """Nobody can say that it is ready."""
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": stamp(self._client.clock.now())}
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [ready]}},
            kind=PatchKind.STRATEGIC,
            namespace=pod.metadata.namespace,
            subresource="status",
        )

    async def _write_taints(self, name: str) -> None:
        node = self._cluster.nodes.get("", name)
        if node is None:
            return
        wanted = wanted_taints(node, deaf=self._deaf, now=self._client.clock.now())
        if wanted == node.spec.taints:
            return
        meta = node.metadata
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": {"taints": [msgspec.to_builtins(taint) for taint in wanted] or None},
        }
        outcome = await self._client.patch(NODES, name, body, kind=PatchKind.MERGE)
        if isinstance(outcome, Conflict):
            raise OutrunError(outcome.message)
