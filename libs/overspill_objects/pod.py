"""Pods: what they ask for, where they are, how they are doing.

The largest view, because every service judges pods. It must not know what any of them decides.
"""

from msgspec import field

from overspill_objects.meta import Condition, ObjectMeta
from overspill_objects.scheduling import Affinity, Toleration
from overspill_objects.view import Quantities, RawObject, Time, View


class Resources(View, frozen=True, kw_only=True):
    """Requests and limits by resource name; see `quantity.parse_quantity`."""

    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)
    claims: tuple[RawObject, ...] = ()


class EnvVar(View, frozen=True, kw_only=True):
    """One variable; with `value_from` its value lies elsewhere (a Secret, a field)."""

    name: str
    value: str = ""
    value_from: RawObject | None = None


class ContainerPort(View, frozen=True, kw_only=True):
    """A port that a container listens on."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"
    host_port: int | None = None


class Container(View, frozen=True, kw_only=True):
    """One container; in `init_containers`, `restart_policy` "Always" makes it a sidecar."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[RawObject, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: Resources = Resources()
    restart_policy: str | None = None
    volume_mounts: tuple[RawObject, ...] = ()
    liveness_probe: RawObject | None = None
    readiness_probe: RawObject | None = None
    startup_probe: RawObject | None = None
    lifecycle: RawObject | None = None
    security_context: RawObject | None = None


class SchedulingGate(View, frozen=True, kw_only=True):
    """Holds a pod back from the scheduler while it is there."""

    name: str


class PodSpec(View, frozen=True, kw_only=True):
    """What a pod asks for. `node_name` is empty until it is bound; `priority` is what the API server computed."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    overhead: Quantities = field(default_factory=dict)
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[RawObject, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    hostname: str = ""
    subdomain: str = ""
    volumes: tuple[RawObject, ...] = ()
    resource_claims: tuple[RawObject, ...] = ()
    image_pull_secrets: tuple[RawObject, ...] = ()
    security_context: RawObject | None = None
    runtime_class_name: str | None = None


class ContainerStateWaiting(View, frozen=True, kw_only=True):
    """Not running yet, and why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(View, frozen=True, kw_only=True):
    """Running since."""

    started_at: Time | None = None


class ContainerStateTerminated(View, frozen=True, kw_only=True):
    """Over, and how."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(View, frozen=True, kw_only=True):
    """At most one of the three is set."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    """What the kubelet says of a container; `allocated_resources` may differ from the spec during a resize."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: Quantities = field(default_factory=dict)
    resources: Resources | None = None


class PodStatus(View, frozen=True, kw_only=True):
    """How a pod is doing. `phase` is Pending, Running, Succeeded, Failed or Unknown; empty before anybody has said."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    start_time: Time | None = None
    nominated_node_name: str = ""
    pod_ip: str = field(default="", name="podIP")
    host_ip: str = field(default="", name="hostIP")
    qos_class: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Quantities = field(default_factory=dict)
    resources: Resources | None = None
    extended_resource_claim_status: RawObject | None = None


class Pod(View, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateSpec(View, frozen=True, kw_only=True):
    """What a controller makes pods from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
