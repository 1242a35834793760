"""Jobs: pods until enough have succeeded, or too many have failed."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from overspill_kube.client import PatchKind
from overspill_kube.informer import Change, ChangeKind, Key
from overspill_kube.outcomes import Conflict
from overspill_kube.resources import PODS
from overspill_lab.controllers.cluster import JOBS, Cluster, Workload, key_of
from overspill_lab.controllers.expectations import Expectations
from overspill_lab.controllers.job_rules import TRACKING_FINALIZER, JobPlan, JobView, is_finished, plan_job
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import OutrunError, create_pods, delete_pods, write_status
from overspill_objects.core import Pod
from overspill_objects.meta import controller_of

OWN_NAME: Final = "kubernetes.io/job-controller"  # spec.managedBy; another name means another controller
ENDS: Final = ("Complete", "Failed")


class Jobs:
    """The controller; `queue.run` and `orphans.run` work."""

    def __init__(self, cluster: Cluster) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("jobs", self._sync)
        self.orphans: WorkQueue[Key] = WorkQueue("orphans-of-jobs", self._sync_orphan)
        self._cluster = cluster
        self._expectations = Expectations()
        self._written: dict[str, Workload] = {}  # uid → the job as this controller last wrote it
        cluster.jobs.subscribe(self._on_job)
        cluster.pods.subscribe(self._on_pod)

    def _on_job(self, change: Change[Workload]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._expectations.forget(change.object.metadata.uid)
            self._written.pop(change.object.metadata.uid, None)
            for pod in self._cluster.pods_of.of(change.object.metadata.uid):
                self.orphans.add(key_of(pod))
        self.queue.add(key_of(change.object))

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != JOBS.kind:
            return
        ending = change.kind is ChangeKind.DELETED or pod.metadata.deletion_timestamp is not None
        self._expectations.saw(owner.uid, pod.metadata.uid, ending=ending)
        self.queue.add((pod.metadata.namespace, owner.name))
        job = self._cluster.jobs.get(pod.metadata.namespace, owner.name)
        if (job is None or job.metadata.uid != owner.uid) and TRACKING_FINALIZER in pod.metadata.finalizers:
            self.orphans.add(key_of(pod))

    async def _sync_orphan(self, key: Key) -> None:
        """A pod whose Job is gone: nobody counts it any more, so nothing may hold it."""
        pod = self._cluster.pods.get(*key)
        owner = None if pod is None else controller_of(pod.metadata)
        if pod is None or owner is None or owner.kind != JOBS.kind:
            return
        job = await self._cluster.client.get(JOBS, owner.name, pod.metadata.namespace)
        if job is None or job.metadata.uid != owner.uid:
            await self._release(pod)

    async def _sync(self, key: Key) -> None:
        cached = self._cluster.jobs.get(*key)
        if cached is None or cached.spec.get("managedBy", OWN_NAME) != OWN_NAME:
            return
        job = self._newest(cached)
        uid, clock = job.metadata.uid, self._cluster.client.clock
        self._expectations.begin(uid)
        view = JobView(
            uid=uid,
            deleting=job.metadata.deletion_timestamp is not None,
            spec=job.spec,
            status=job.status,
            pods=tuple(self._cluster.pods_of.of(uid)),
        )
        plan = plan_job(view, settled=self._expectations.are_met(uid, now=clock.monotonic()), now=clock.now())
        await self._carry_out(job, plan)
        if plan.again_after_s is not None:
            self.queue.add_after(key, plan.again_after_s)
        if is_finished(plan.status):
            await self._expire(job, plan)

    async def _carry_out(self, job: Workload, plan: JobPlan) -> None:
        client, uid = self._cluster.client, job.metadata.uid
        status = plan.status
        if plan.delete:
            counted = {pod.metadata.uid for pod in plan.release}
            # Pods that shall not count lose the finalizer first: deleted with it, they would count as failed.
            await asyncio.gather(*(self._release(pod) for pod in plan.delete if pod.metadata.uid not in counted))
            await delete_pods(client, plan.delete)
            self._expectations.deleted(uid, [pod.metadata.uid for pod in plan.delete], now=client.clock.monotonic())
        made = await create_pods(client, JOBS, job, count=plan.create, finalizers=(TRACKING_FINALIZER,))
        self._expectations.created(uid, [pod.metadata.uid for pod in made.pods], now=client.clock.monotonic())
        if len(made.pods) < plan.create:
            status = {**status, "active": status["active"] - plan.create + len(made.pods)}
        written = await write_status(client, JOBS, job, job.status, status)
        if written is not None:
            self._written[uid] = written
        await asyncio.gather(*(self._release(pod) for pod in plan.release))
        made.check()

    async def _release(self, pod: Pod) -> None:
        """Take the tracking finalizer off a pod that is counted."""
        meta = pod.metadata
        if TRACKING_FINALIZER not in meta.finalizers:
            return
        kept = [name for name in meta.finalizers if name != TRACKING_FINALIZER]
        outcome = await self._cluster.client.patch(
            PODS,
            meta.name,
            {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": kept}},
            kind=PatchKind.MERGE,
            namespace=meta.namespace,
        )
        if isinstance(outcome, Conflict):
            raise OutrunError(outcome.message)

    async def _expire(self, job: Workload, plan: JobPlan) -> None:
        """Delete a finished Job whose `ttlSecondsAfterFinished` is over, or look again when it will be."""
        seconds = job.spec.get("ttlSecondsAfterFinished")
        if seconds is None:
            return
        ended = next(one["lastTransitionTime"] for one in plan.status["conditions"] if one["type"] in ENDS)
        left = datetime.fromisoformat(ended) + timedelta(seconds=seconds) - self._cluster.client.clock.now()
        if left > timedelta():
            self.queue.add_after(key_of(job), left.total_seconds())
            return
        meta = job.metadata
        await self._cluster.client.delete(JOBS, meta.name, meta.namespace, uid=meta.uid, propagation="Foreground")

    def _newest(self, cached: Workload) -> Workload:
        """The cache may be older than what this controller wrote; counting on it would count twice."""
        written = self._written.get(cached.metadata.uid)
        if written is not None and int(written.metadata.resource_version) > int(cached.metadata.resource_version):
            return written
        return cached
