"""The kinds of objects that Overspill touches: where they live in the API and which view reads them.

Declared once; paths and permissions are derived. This module must not know how requests are sent.
"""

from typing import Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct

from overspill_kube.rules import Rule
from overspill_objects import apps, batch, coordination, core, disruption, extensions, queues, scheduling

T = TypeVar("T")

READ = ("get", "list", "watch")


class Resource(Struct, Generic[T], frozen=True, kw_only=True):
    """One kind. `plural` is its name in paths; `view` the Struct that its objects are decoded into."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    view: type[T]

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection, an object or a subresource, every part quoted.

        A namespaced collection without a namespace is the whole cluster's. Raises ValueError for an object of a
        namespaced kind without its namespace, and for an empty name: the path would silently mean the collection.
        """
        if name == "" or namespace == "":
            raise ValueError(
                f"{self.kind}: name and namespace must not be empty (name={name!r}, namespace={namespace!r})"
            )
        if self.namespaced and name is not None and namespace is None:
            raise ValueError(f"{self.kind} {name!r}: a namespace is needed")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def rule(self, *verbs: str, subresource: str | None = None) -> Rule:
        """The permission for these verbs on this kind."""
        return Rule(self.group, f"{self.plural}/{subresource}" if subresource else self.plural, verbs)


PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, view=core.Pod)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False, view=core.Node)
NAMESPACES = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, view=core.Namespace
)
EVENTS = Resource(group="", version="v1", plural="events", kind="Event", namespaced=True, view=core.Event)
CONFIG_MAPS = Resource(
    group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, view=core.ConfigMap
)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", namespaced=True, view=core.Secret)
RESOURCE_QUOTAS = Resource(
    group="", version="v1", plural="resourcequotas", kind="ResourceQuota", namespaced=True, view=core.ResourceQuota
)
DEPLOYMENTS = Resource(
    group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True, view=apps.Deployment
)
REPLICA_SETS = Resource(
    group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True, view=apps.ReplicaSet
)
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, view=batch.Job)
PDBS = Resource(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    namespaced=True,
    view=disruption.PodDisruptionBudget,
)
LEASES = Resource(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True, view=coordination.Lease
)
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    view=scheduling.PriorityClass,
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    view=extensions.CustomResourceDefinition,
)
# Kueue's kinds; `Client.served` gives them in the version that a cluster has.
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
CLUSTER_QUEUES = Resource(
    group=KUEUE_GROUP,
    version="v1beta2",
    plural="clusterqueues",
    kind="ClusterQueue",
    namespaced=False,
    view=queues.ClusterQueue,
)
LOCAL_QUEUES = Resource(
    group=KUEUE_GROUP,
    version="v1beta2",
    plural="localqueues",
    kind="LocalQueue",
    namespaced=True,
    view=queues.LocalQueue,
)
RESOURCE_FLAVORS = Resource(
    group=KUEUE_GROUP,
    version="v1beta2",
    plural="resourceflavors",
    kind="ResourceFlavor",
    namespaced=False,
    view=queues.ResourceFlavor,
)
