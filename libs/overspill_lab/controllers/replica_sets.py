"""ReplicaSets: as many pods as wanted, no more, no fewer."""

from datetime import timedelta

from overspill_kube.informer import Change, ChangeKind, Key
from overspill_lab.controllers.cluster import REPLICA_SETS, Cluster, Workload, key_of
from overspill_lab.controllers.expectations import Expectations
from overspill_lab.controllers.replica_rules import is_active, is_terminating, replica_set_status, surplus
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import Made, create_pods, delete_pods, write_status
from overspill_objects.core import Pod
from overspill_objects.meta import controller_of

BURST = 500


class ReplicaSets:
    """The controller; `queue.run` works."""

    def __init__(self, cluster: Cluster) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("replica-sets", self._sync)
        self._cluster = cluster
        self._expectations = Expectations()
        cluster.replica_sets.subscribe(self._on_set)
        cluster.pods.subscribe(self._on_pod)

    def _on_set(self, change: Change[Workload]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._expectations.forget(change.object.metadata.uid)
        self.queue.add(key_of(change.object))

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != REPLICA_SETS.kind:
            return
        ending = change.kind is ChangeKind.DELETED or pod.metadata.deletion_timestamp is not None
        self._expectations.saw(owner.uid, pod.metadata.uid, ending=ending)
        self.queue.add((pod.metadata.namespace, owner.name))

    async def _sync(self, key: Key) -> None:
        found = self._cluster.replica_sets.get(*key)
        if found is None:
            return
        uid, clock = found.metadata.uid, self._cluster.client.clock
        self._expectations.begin(uid)
        made = Made(pods=())
        if found.metadata.deletion_timestamp is None and self._expectations.are_met(uid, now=clock.monotonic()):
            made = await self._manage(found)
        await self._write_status(found, None if made.refusal is None else made.refusal.message)
        made.check()

    async def _manage(self, found: Workload) -> Made:
        """Create or delete pods."""
        client, uid = self._cluster.client, found.metadata.uid
        active = [pod for pod in self._cluster.pods_of.of(uid) if is_active(pod)]
        lacking = found.spec["replicas"] - len(active)
        if lacking > 0:
            made = await create_pods(client, REPLICA_SETS, found, count=min(lacking, BURST))
            self._expectations.created(uid, [pod.metadata.uid for pod in made.pods], now=client.clock.monotonic())
            return made
        if lacking < 0:
            victims = surplus(active, self._family(found), count=min(-lacking, BURST), now=client.clock.now())
            await delete_pods(client, victims)
            self._expectations.deleted(uid, [pod.metadata.uid for pod in victims], now=client.clock.monotonic())
        return Made(pods=())

    def _family(self, found: Workload) -> list[Pod]:
        """The pods of all ReplicaSets with the same owner, or of this one alone."""
        owner = controller_of(found.metadata)
        family = [found] if owner is None else self._cluster.replica_sets_of.of(owner.uid)
        return [pod for one in family for pod in self._cluster.pods_of.of(one.metadata.uid)]

    async def _write_status(self, found: Workload, failure: str | None) -> None:
        pods = self._cluster.pods_of.of(found.metadata.uid)
        active = [pod for pod in pods if is_active(pod)]
        status = replica_set_status(
            found.spec,
            generation=found.metadata.generation,
            active=active,
            terminating=sum(is_terminating(pod) for pod in pods),
            failure=failure,
            now=self._cluster.client.clock.now(),
        )
        await write_status(self._cluster.client, REPLICA_SETS, found, found.status, status)
        if status["availableReplicas"] < status["readyReplicas"]:
            settles = timedelta(seconds=found.spec.get("minReadySeconds", 0))
            self.queue.add_after(key_of(found), settles.total_seconds())
