"""The core group: nodes, namespaces, events, configuration, quotas; pods have a module of their own, re-exported here.

It must not know what any service does with them.
"""

from msgspec import field

from overspill_objects.meta import Condition, ObjectMeta, ObjectReference
from overspill_objects.pod import (
    Container,
    ContainerPort,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    EnvVar,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    Resources,
    SchedulingGate,
)
from overspill_objects.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)
from overspill_objects.view import Quantities, RawObject, Time, View

__all__ = [
    "Affinity",
    "Condition",
    "ConfigMap",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "EnvVar",
    "Event",
    "Namespace",
    "Node",
    "NodeAddress",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PreferredSchedulingTerm",
    "ResourceQuota",
    "Resources",
    "SchedulingGate",
    "Secret",
    "Taint",
    "Toleration",
]


class NodeSpec(View, frozen=True, kw_only=True):
    """What an operator said of a node. The taint list is one value: whoever writes it writes all of it."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = field(default="", name="providerID")


class NodeAddress(View, frozen=True, kw_only=True):
    """An address of a node; `type` is InternalIP, Hostname, …"""

    type: str
    address: str


class NodeStatus(View, frozen=True, kw_only=True):
    """What a node offers and how it is doing."""

    capacity: Quantities = field(default_factory=dict)
    allocatable: Quantities = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: RawObject | None = None


class Node(View, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(View, frozen=True, kw_only=True):
    """Active or Terminating."""

    phase: str = ""


class Namespace(View, frozen=True, kw_only=True):
    """A namespace; the UID of kube-system is a cluster's identity."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class EventSource(View, frozen=True, kw_only=True):
    """Who reports an event."""

    component: str = ""
    host: str = ""


class Event(View, frozen=True, kw_only=True):
    """A Kubernetes Event: a note for people, beside the object it speaks of. Not one of Overspill's own events."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: EventSource = EventSource()
    reporting_component: str = ""
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None


class ConfigMap(View, frozen=True, kw_only=True):
    """Plain configuration."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, str] = field(default_factory=dict)


class Secret(View, frozen=True, kw_only=True):
    """Secret configuration; values are base64. Not to be printed."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Without the values, so that no log line carries them."""
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class ResourceQuotaSpec(View, frozen=True, kw_only=True):
    """Hard limits by quota name (`requests.nvidia.com/gpu`, `pods`, …), for the pods in its scopes."""

    hard: Quantities = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: RawObject | None = None


class ResourceQuotaStatus(View, frozen=True, kw_only=True):
    """What the quota controller enforces and has counted."""

    hard: Quantities = field(default_factory=dict)
    used: Quantities = field(default_factory=dict)


class ResourceQuota(View, frozen=True, kw_only=True):
    """A namespace's quota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
