"""Kueue's queue objects, in the shapes of v1beta1 and v1beta2. What they mean is the admitter's to judge."""

from typing import Any

from msgspec import field

from overspill_objects.meta import Condition, LabelSelector, ObjectMeta
from overspill_objects.scheduling import Taint, Toleration
from overspill_objects.view import RawObject, View


class ResourceFlavorSpec(View, frozen=True, kw_only=True):
    """A kind of node, by its labels and taints."""

    node_labels: dict[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


class ResourceFlavor(View, frozen=True, kw_only=True):
    """A resource flavor."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class FlavorQuota(View, frozen=True, kw_only=True):
    """Quota of one resource in one flavor; absent limits mean unlimited borrowing and lending."""

    name: str
    nominal_quota: str | int | float = 0
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None


class FlavorQuotas(View, frozen=True, kw_only=True):
    """One flavor's quotas."""

    name: str
    resources: tuple[FlavorQuota, ...] = ()


class ResourceGroup(View, frozen=True, kw_only=True):
    """Resources that are assigned together; flavors in the order in which they are tried."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class ClusterQueueSpec(View, frozen=True, kw_only=True):
    """`namespace_selector` absent: admits nothing. `stop_policy` None, Hold or HoldAndDrain."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort: str = ""  # v1beta1
    cohort_name: str = ""  # v1beta2
    namespace_selector: LabelSelector | None = None
    queueing_strategy: str = "BestEffortFIFO"
    stop_policy: str = "None"
    flavor_fungibility: RawObject | None = None
    preemption: RawObject | None = None
    admission_checks: tuple[str, ...] = ()
    admission_checks_strategy: RawObject | None = None
    fair_sharing: dict[str, Any] | None = None

    @property
    def cohort_of(self) -> str:
        """The cohort's name in either version; empty when the queue is alone."""
        return self.cohort_name or self.cohort


class QueueStatus(View, frozen=True, kw_only=True):
    """What the queue's controller reports."""

    conditions: tuple[Condition, ...] = ()
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0


class ClusterQueue(View, frozen=True, kw_only=True):
    """A cluster queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: QueueStatus = QueueStatus()


class LocalQueueSpec(View, frozen=True, kw_only=True):
    """The cluster queue that this namespace's workloads go to."""

    cluster_queue: str = ""
    stop_policy: str = "None"


class LocalQueue(View, frozen=True, kw_only=True):
    """A local queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: QueueStatus = QueueStatus()
