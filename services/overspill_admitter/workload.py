"""What a queue admits, read off the cluster: Jobs and pods with a queue's name on them. Pure.

A Job waits while it is suspended, a pod while it carries our gate. What is admitted and not over is charged to its
queue, also when nobody asked us.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Final

from msgspec import Struct

from overspill_capacity.requests import effective_requests
from overspill_capacity.room import TERMINAL
from overspill_events.catalog import WorkloadRef
from overspill_events.names import ADMISSION_GATE, QUEUE_LABEL
from overspill_objects.batch import Job
from overspill_objects.core import Pod
from overspill_objects.meta import ObjectMeta, condition_of, controller_of
from overspill_objects.scheduling import PriorityClass

OUR_JOB_CONTROLLERS: Final = frozenset({"", "kubernetes.io/job-controller"})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class State(Enum):
    """Where a workload is in its life."""

    WAITING = "waiting"
    ADMITTED = "admitted"  # charged: it runs, or may
    FINISHED = "finished"


class Workload(Struct, frozen=True, kw_only=True):
    """One Job or pod of a queue. `requests` is the sum of its `pods` pods; `pod` stands for each of them."""

    ref: WorkloadRef
    queue: str
    state: State
    created: datetime
    resource_version: str
    priority: int
    pod: Pod
    pods: int
    requests: Mapping[str, Decimal]
    unbound: int = 0  # of an admitted workload: pods that have no node yet
    outcome: str = ""  # of a finished one: succeeded | failed
    owner_uid: str = ""  # of a pod: its controller
    is_leaving: bool = False  # a pod that is being deleted
    named_by_annotation: bool = False
    problem: str = ""  # why its requests cannot be read


def read_workloads(jobs: Iterable[Job], pods: Iterable[Pod], classes: Iterable[PriorityClass]) -> tuple[Workload, ...]:
    """All workloads of queues. Pods of a Job that is a workload itself are part of it."""
    jobs, pods, classes = tuple(jobs), tuple(pods), tuple(classes)
    managed = [job for job in jobs if queue_of(job.metadata) and job.spec.managed_by in OUR_JOB_CONTROLLERS]
    job_uids = {job.metadata.uid for job in managed}
    bound = Counter(_owner_uid(pod) for pod in pods if pod.spec.node_name and pod.status.phase not in TERMINAL)
    from_jobs = [_of_job(job, bound=bound[job.metadata.uid], classes=classes) for job in managed]
    from_pods = [_of_pod(pod) for pod in pods if queue_of(pod.metadata) and _owner_uid(pod) not in job_uids]
    # A workload that was deleted before it was admitted waits for nothing any more.
    return tuple(one for one in (*from_jobs, *from_pods) if one is not None)


def queue_of(meta: ObjectMeta) -> str:
    """The LocalQueue's name: the label, or the annotation that old manifests use; empty when there is none."""
    return meta.labels.get(QUEUE_LABEL, "") or meta.annotations.get(QUEUE_LABEL, "")


def priority_of_template(pod: Pod, classes: Iterable[PriorityClass]) -> int:
    """What the API server would compute: the named class's value, else the default class's, else zero."""
    name = pod.spec.priority_class_name
    if pod.spec.priority is not None:
        return pod.spec.priority
    return next((one.value for one in classes if (one.metadata.name == name if name else one.global_default)), 0)


def _of_job(job: Job, *, bound: int, classes: tuple[PriorityClass, ...]) -> Workload | None:
    state, outcome = _job_state(job)
    if state is State.WAITING and job.metadata.deletion_timestamp is not None:
        return None
    pod = Pod(metadata=job.spec.template.metadata, spec=job.spec.template.spec)
    pods = _pods_of(job)
    requests, problem = _requests(pod, pods)
    return Workload(
        ref=_ref("Job", job.metadata),
        queue=queue_of(job.metadata),
        state=state,
        created=job.metadata.creation_timestamp or EPOCH,
        resource_version=job.metadata.resource_version,
        priority=priority_of_template(pod, classes),
        pod=pod,
        pods=pods,
        requests=requests,
        unbound=max(0, pods - bound) if state is State.ADMITTED else 0,
        outcome=outcome,
        named_by_annotation=QUEUE_LABEL not in job.metadata.labels,
        problem=problem,
    )


def _job_state(job: Job) -> tuple[State, str]:
    for condition, outcome in (("Complete", "succeeded"), ("Failed", "failed")):
        found = condition_of(job.status.conditions, condition)
        if found is not None and found.status == "True":
            return State.FINISHED, outcome
    # A Job that somebody suspends again is charged until its pods are gone.
    still_runs = job.status.active > 0 or job.status.terminating > 0
    return (State.WAITING if job.spec.suspend and not still_runs else State.ADMITTED), ""


def _pods_of(job: Job) -> int:
    """How many pods it has at once: no more than are still to be completed."""
    if job.spec.completions is None:
        return job.spec.parallelism
    return max(0, min(job.spec.parallelism, job.spec.completions - job.status.succeeded))


def _of_pod(pod: Pod) -> Workload | None:
    gated = any(gate.name == ADMISSION_GATE for gate in pod.spec.scheduling_gates)
    is_leaving = pod.metadata.deletion_timestamp is not None
    if gated and is_leaving:
        return None
    state = State.WAITING if gated else State.ADMITTED
    if pod.status.phase in TERMINAL:
        state = State.FINISHED
    requests, problem = _requests(pod, 1)
    return Workload(
        ref=_ref("Pod", pod.metadata),
        queue=queue_of(pod.metadata),
        state=state,
        created=pod.metadata.creation_timestamp or EPOCH,
        resource_version=pod.metadata.resource_version,
        priority=pod.spec.priority or 0,
        pod=pod,
        pods=1,
        requests=requests,
        unbound=1 if state is State.ADMITTED and not pod.spec.node_name else 0,
        outcome=pod.status.phase.lower() if state is State.FINISHED else "",
        owner_uid=_owner_uid(pod),
        is_leaving=is_leaving,
        named_by_annotation=QUEUE_LABEL not in pod.metadata.labels,
        problem=problem,
    )


def _requests(pod: Pod, pods: int) -> tuple[dict[str, Decimal], str]:
    try:
        one = effective_requests(pod)
    except ValueError as error:
        return {}, str(error)
    return {name: amount * pods for name, amount in one.items()} | {"pods": Decimal(pods)}, ""


def _ref(kind: str, meta: ObjectMeta) -> WorkloadRef:
    return WorkloadRef(kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _owner_uid(pod: Pod) -> str:
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None else ""
