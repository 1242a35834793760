"""The table of kinds the lab serves, and how each differs from the ordinary; everything else is 404.

Sources: the strategies under `pkg/registry` of Kubernetes 1.37 and Kueue's CustomResourceDefinitions.
"""

from msgspec import Struct


class Resource(Struct, frozen=True, kw_only=True, eq=False):
    """One kind: its names, its versions (the first is how objects are stored), and its registry's habits."""

    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    custom: bool = False
    has_generation: bool = False
    # May a PUT come without resourceVersion, and may it create? (`AllowUnconditionalUpdate`, `AllowCreateOnUpdate`)
    unconditional_update: bool = True
    create_on_update: bool = False
    # Does a DELETE that removes the object answer with the object rather than with a Status?
    returns_deleted: bool = False

    @property
    def qualified(self) -> str:
        """Return `deployments.apps` or `pods`, as messages name a resource."""
        return self.plural + self.dotted_group

    @property
    def dotted_group(self) -> str:
        """Return `.apps`, or nothing for the core group."""
        return f".{self.group}" if self.group else ""

    def api_version(self, version: str) -> str:
        """Return `apps/v1` or `v1`."""
        return f"{self.group}/{version}" if self.group else version


NAMESPACES = Resource(
    kind="Namespace", plural="namespaces", singular="namespace", short_names=("ns",), namespaced=False,
    subresources=("status",),
)  # fmt: skip
NODES = Resource(
    kind="Node", plural="nodes", singular="node", short_names=("no",), namespaced=False, subresources=("status",)
)
PODS = Resource(
    kind="Pod", plural="pods", singular="pod", short_names=("po",), categories=("all",), has_generation=True,
    subresources=("binding", "eviction", "status"), returns_deleted=True,
)  # fmt: skip
EVENTS = Resource(kind="Event", plural="events", singular="event", short_names=("ev",), create_on_update=True)
CONFIG_MAPS = Resource(kind="ConfigMap", plural="configmaps", singular="configmap", short_names=("cm",))
SECRETS = Resource(kind="Secret", plural="secrets", singular="secret")
SERVICE_ACCOUNTS = Resource(
    kind="ServiceAccount", plural="serviceaccounts", singular="serviceaccount", short_names=("sa",),
    returns_deleted=True,
)  # fmt: skip
SERVICES = Resource(
    kind="Service", plural="services", singular="service", short_names=("svc",), categories=("all",),
    subresources=("status",), returns_deleted=True,
)  # fmt: skip
RESOURCE_QUOTAS = Resource(
    kind="ResourceQuota", plural="resourcequotas", singular="resourcequota", short_names=("quota",),
    subresources=("status",), returns_deleted=True,
)  # fmt: skip
DEPLOYMENTS = Resource(
    group="apps", kind="Deployment", plural="deployments", singular="deployment", short_names=("deploy",),
    categories=("all",), has_generation=True, subresources=("scale", "status"),
)  # fmt: skip
REPLICA_SETS = Resource(
    group="apps", kind="ReplicaSet", plural="replicasets", singular="replicaset", short_names=("rs",),
    categories=("all",), has_generation=True, subresources=("scale", "status"),
)  # fmt: skip
JOBS = Resource(
    group="batch", kind="Job", plural="jobs", singular="job", categories=("all",), has_generation=True,
    subresources=("status",),
)  # fmt: skip
DISRUPTION_BUDGETS = Resource(
    group="policy", kind="PodDisruptionBudget", plural="poddisruptionbudgets", singular="poddisruptionbudget",
    short_names=("pdb",), has_generation=True, subresources=("status",), unconditional_update=False,
)  # fmt: skip
LEASES = Resource(
    group="coordination.k8s.io", kind="Lease", plural="leases", singular="lease", create_on_update=True,
    unconditional_update=False,
)  # fmt: skip
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io", kind="PriorityClass", plural="priorityclasses", singular="priorityclass",
    short_names=("pc",), namespaced=False, has_generation=True,
)  # fmt: skip

_KUEUE = "kueue.x-k8s.io"
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")
RESOURCE_FLAVORS = Resource(
    group=_KUEUE, versions=_KUEUE_VERSIONS, kind="ResourceFlavor", plural="resourceflavors",
    singular="resourceflavor", short_names=("flavor", "flavors", "rf"), namespaced=False, custom=True,
    has_generation=True, unconditional_update=False,
)  # fmt: skip
CLUSTER_QUEUES = Resource(
    group=_KUEUE, versions=_KUEUE_VERSIONS, kind="ClusterQueue", plural="clusterqueues", singular="clusterqueue",
    short_names=("cq",), namespaced=False, custom=True, has_generation=True, unconditional_update=False,
    subresources=("status",),
)  # fmt: skip
LOCAL_QUEUES = Resource(
    group=_KUEUE, versions=_KUEUE_VERSIONS, kind="LocalQueue", plural="localqueues", singular="localqueue",
    short_names=("queue", "queues", "lq"), custom=True, has_generation=True, unconditional_update=False,
    subresources=("status",),
)  # fmt: skip

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES, NODES, PODS, EVENTS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, SERVICES, RESOURCE_QUOTAS,
    DEPLOYMENTS, REPLICA_SETS, JOBS, DISRUPTION_BUDGETS, LEASES, PRIORITY_CLASSES,
    RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES,
)  # fmt: skip

BY_PATH: dict[tuple[str, str, str], Resource] = {
    (resource.group, version, resource.plural): resource for resource in RESOURCES for version in resource.versions
}
GROUP_VERSIONS: tuple[tuple[str, str], ...] = tuple(
    dict.fromkeys((resource.group, version) for resource in RESOURCES for version in resource.versions)
)
