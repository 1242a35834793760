"""The batch group: Jobs. It must not know what admits them."""

from overspill_objects.meta import Condition, LabelSelector, ObjectMeta
from overspill_objects.pod import PodTemplateSpec
from overspill_objects.view import RawObject, Time, View


class JobSpec(View, frozen=True, kw_only=True):
    """`completions` absent: done when any pod succeeds. `managed_by` set: another controller owns it."""

    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str = ""
    pod_failure_policy: RawObject | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class JobStatus(View, frozen=True, kw_only=True):
    """A Job is over when a condition Complete or Failed is "True"."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: Time | None = None
    completion_time: Time | None = None
    conditions: tuple[Condition, ...] = ()


class Job(View, frozen=True, kw_only=True):
    """A job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
