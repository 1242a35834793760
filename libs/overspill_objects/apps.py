"""The apps group: controllers that keep replicas running. It must not know what is done to their pods."""

from overspill_objects.meta import Condition, LabelSelector, ObjectMeta
from overspill_objects.pod import PodTemplateSpec
from overspill_objects.view import RawObject, View


class DeploymentSpec(View, frozen=True, kw_only=True):
    """Absent `replicas` means 1."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    strategy: RawObject | None = None
    min_ready_seconds: int = 0
    paused: bool = False


class DeploymentStatus(View, frozen=True, kw_only=True):
    """Counts are of the generation in `observed_generation`."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(View, frozen=True, kw_only=True):
    """A deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ReplicaSetSpec(View, frozen=True, kw_only=True):
    """Absent `replicas` means 1."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    min_ready_seconds: int = 0


class ReplicaSetStatus(View, frozen=True, kw_only=True):
    """Counts are of the generation in `observed_generation`."""

    observed_generation: int = 0
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(View, frozen=True, kw_only=True):
    """A replica set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()
