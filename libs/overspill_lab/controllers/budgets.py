"""PodDisruptionBudgets: keeps the status that the Eviction API spends."""

from collections.abc import Sequence
from typing import Any

import msgspec

from overspill_kube.informer import Change, Key
from overspill_kube.resources import PDBS
from overspill_lab.controllers.budget_rules import (
    BudgetError,
    count_budget,
    failed_status,
    needs_scale,
    next_expiry,
    present_status,
    status_of,
)
from overspill_lab.controllers.cluster import DEPLOYMENTS, REPLICA_SETS, Cluster, Workload, key_of
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import write_status
from overspill_objects.core import Pod
from overspill_objects.disruption import PodDisruptionBudget, PodDisruptionBudgetStatus
from overspill_objects.meta import OwnerReference, controller_of, selects


class Budgets:
    """The disruption controller; `queue.run` works."""

    def __init__(self, cluster: Cluster) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("budgets", self._sync)
        self._cluster = cluster
        cluster.budgets.subscribe(lambda change: self.queue.add(key_of(change.object)))
        cluster.pods.subscribe(self._on_pod)
        cluster.replica_sets.subscribe(self._on_owner)
        cluster.deployments.subscribe(self._on_owner)

    def _on_pod(self, change: Change[Pod]) -> None:
        labels = [known.metadata.labels for known in (change.object, change.old) if known is not None]
        for budget in self._in(change.object.metadata.namespace):
            if any(selects(budget.spec.selector, one) for one in labels):
                self.queue.add(key_of(budget))

    def _on_owner(self, change: Change[Workload]) -> None:
        if change.old is not None and change.old.spec.get("replicas") == change.object.spec.get("replicas"):
            return
        for budget in self._in(change.object.metadata.namespace):
            self.queue.add(key_of(budget))

    def _in(self, namespace: str) -> list[PodDisruptionBudget]:
        return [one for one in self._cluster.budgets.all() if one.metadata.namespace == namespace]

    async def _sync(self, key: Key) -> None:
        budget = self._cluster.budgets.get(*key)
        if budget is None:
            return
        now = self._cluster.client.clock.now()
        pods = [
            pod
            for pod in self._cluster.pods.all()
            if pod.metadata.namespace == key[0] and selects(budget.spec.selector, pod.metadata.labels)
        ]
        try:
            scale = self._scale_of(pods) if needs_scale(budget) else 0
            count = count_budget(budget, pods, expected_scale=scale, now=now)
        except BudgetError as error:
            await self._write(budget, failed_status(budget, str(error), now=now))
            return
        await self._write(budget, status_of(budget, count, now=now))
        expiry = next_expiry(count)
        if expiry is not None:
            self.queue.add_after(key, (expiry - now).total_seconds())

    async def _write(self, budget: PodDisruptionBudget, status: dict[str, Any]) -> None:
        if msgspec.convert(status, type=PodDisruptionBudgetStatus) == budget.status:
            return
        await write_status(self._cluster.client, PDBS, budget, present_status(budget), status)

    def _scale_of(self, pods: Sequence[Pod]) -> int:
        """The summed scale of the pods' controllers; pods without one count for nothing, as in the original."""
        scales = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is not None:
                uid, replicas = self._scale(owner, pod)
                scales[uid] = replicas
        return sum(scales.values())

    def _scale(self, owner: OwnerReference, pod: Pod) -> tuple[str, int]:
        namespace = pod.metadata.namespace
        found = self._cluster.replica_sets.get(namespace, owner.name) if owner.kind == REPLICA_SETS.kind else None
        if found is None or found.metadata.uid != owner.uid:
            raise BudgetError(f'found no controllers for pod "{pod.metadata.name}"')
        above = controller_of(found.metadata)
        if above is not None and above.kind == DEPLOYMENTS.kind:
            deployment = self._cluster.deployments.get(namespace, above.name)
            if deployment is not None and deployment.metadata.uid == above.uid:
                return above.uid, deployment.spec["replicas"]
        return found.metadata.uid, found.spec["replicas"]
