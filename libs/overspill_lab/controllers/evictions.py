"""Pods that must leave: those that do not tolerate their node's NoExecute taints, and those whose node is gone.

This is no Eviction in the API's sense: no budget is asked, as in the original.
"""

import asyncio
from typing import Any, Final

import structlog

from overspill_kube.client import PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Change, ChangeKind, Key
from overspill_kube.resources import NODES, PODS
from overspill_lab.controllers.cluster import Cluster, key_of
from overspill_lab.controllers.node_rules import NO_EXECUTE, disruption, stay_seconds
from overspill_lab.controllers.replica_rules import OVER
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_objects.core import Node, Pod

LOOK_EVERY_S: Final = 5.0


class TaintEvictions:
    """Deletes pods when their time on a tainted node is over; `queue.run` works."""

    def __init__(self, cluster: Cluster) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("taint-evictions", self._sync)
        self._cluster = cluster
        self._due: dict[str, float] = {}  # pod uid → when it must leave
        cluster.nodes.subscribe(self._on_node)
        cluster.pods.subscribe(self._on_pod)

    def _on_node(self, change: Change[Node]) -> None:
        before = () if change.old is None else change.old.spec.taints
        if change.object.spec.taints == before:
            return
        for pod in self._cluster.pods.all():
            if pod.spec.node_name == change.object.metadata.name:
                self.queue.add(key_of(pod))

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        if change.kind is ChangeKind.DELETED:
            self._due.pop(pod.metadata.uid, None)
            return
        node = self._cluster.nodes.get("", pod.spec.node_name) if pod.spec.node_name else None
        if node is not None and any(taint.effect == NO_EXECUTE for taint in node.spec.taints):
            self.queue.add(key_of(pod))

    async def _sync(self, key: Key) -> None:
        """Judge the pod as it is now. A countdown that runs is ended by tolerating without limit, or by losing the
        taint, but no other number of seconds changes it: so the original does.
        """
        pod = self._cluster.pods.get(*key)
        node = self._cluster.nodes.get("", pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or pod.metadata.deletion_timestamp is not None or pod.status.phase in OVER:
            return
        clock, uid = self._cluster.client.clock, pod.metadata.uid
        if not any(taint.effect == NO_EXECUTE for taint in node.spec.taints):
            self._due.pop(uid, None)
            return
        seconds = stay_seconds(pod, node.spec.taints)
        if seconds is None:
            self._due.pop(uid, None)
            return
        now = clock.monotonic()
        left = self._due.setdefault(uid, now + seconds) - now
        if seconds > 0 and left > 0:
            self.queue.add_after(key, left)
            return
        why = disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now=clock.now())
        await _leave(self._cluster, pod, {"conditions": [why]}, grace_seconds=None)


class LostPods:
    """Deletes pods that are bound to nodes that do not exist, after a quarantine. `run` it."""

    def __init__(self, cluster: Cluster, *, quarantine_s: float) -> None:
        self._cluster = cluster
        self._quarantine_s = quarantine_s
        self._missing: dict[str, float] = {}  # node name → since when
        self._log = structlog.get_logger(controller="lost-pods")

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(min(LOOK_EVERY_S, self._quarantine_s / 2))
            if not self._cluster.nodes.informer.is_synced:
                continue
            try:
                await self._look()
            except (KubeError, KubeUnavailable) as error:  # the next look tries again
                self._log.warning("look-failed", error=str(error))

    async def _look(self) -> None:
        now = self._cluster.client.clock.monotonic()
        pods = [pod for pod in self._cluster.pods.all() if pod.spec.node_name]
        missing = {pod.spec.node_name for pod in pods if self._cluster.nodes.get("", pod.spec.node_name) is None}
        self._missing = {name: self._missing.get(name, now) for name in missing}
        overdue = {name for name, since in self._missing.items() if now - since >= self._quarantine_s}
        gone = {name for name in overdue if await self._cluster.client.get(NODES, name) is None}
        for pod in pods:
            if pod.spec.node_name in gone:
                await self._remove(pod)

    async def _remove(self, pod: Pod) -> None:
        self._log.info("pod-of-lost-node", pod=f"{pod.metadata.namespace}/{pod.metadata.name}")
        why = disruption("DeletionByPodGC", "PodGC: node no longer exists", now=self._cluster.client.clock.now())
        status: dict[str, Any] = {"conditions": [why]}
        if pod.status.phase not in OVER:
            status["phase"] = "Failed"
        await _leave(self._cluster, pod, status, grace_seconds=0)


async def _leave(cluster: Cluster, pod: Pod, status: dict[str, Any], *, grace_seconds: int | None) -> None:
    """Say why, then delete: the condition outlives the deletion for whoever counts the pod."""
    meta = pod.metadata
    await cluster.client.patch(
        PODS,
        meta.name,
        {"metadata": {"uid": meta.uid}, "status": status},
        kind=PatchKind.STRATEGIC,
        namespace=meta.namespace,
        subresource="status",
    )
    await cluster.client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=grace_seconds)
