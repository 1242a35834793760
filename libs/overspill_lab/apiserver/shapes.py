"""Is a document of the shape its kind has? Checked before anything reads it, as decoding into Go structs does.

The views of `overspill_objects` are the shapes: the members our programs read. What they do not name is passed through.
"""

import msgspec

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import UndecodableError
from overspill_lab.apiserver.resources import (
    CLUSTER_QUEUES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_FLAVORS,
    RESOURCE_QUOTAS,
    SECRETS,
    Resource,
)
from overspill_objects import apps, batch, coordination, core, disruption, pod, queues, scheduling
from overspill_objects.meta import ObjectMeta
from overspill_objects.view import View


class _AnyObject(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


_SHAPES: dict[Resource, type[View]] = {
    PODS: pod.Pod,
    NODES: core.Node,
    NAMESPACES: core.Namespace,
    EVENTS: core.Event,
    CONFIG_MAPS: core.ConfigMap,
    SECRETS: core.Secret,
    RESOURCE_QUOTAS: core.ResourceQuota,
    DEPLOYMENTS: apps.Deployment,
    REPLICA_SETS: apps.ReplicaSet,
    JOBS: batch.Job,
    DISRUPTION_BUDGETS: disruption.PodDisruptionBudget,
    LEASES: coordination.Lease,
    PRIORITY_CLASSES: scheduling.PriorityClass,
    RESOURCE_FLAVORS: queues.ResourceFlavor,
    CLUSTER_QUEUES: queues.ClusterQueue,
    LOCAL_QUEUES: queues.LocalQueue,
}


def check_shape(resource: Resource, version: str, obj: JsonObject) -> None:
    """Raise UndecodableError that names the path, if a member is not of the type its kind gives it."""
    try:
        msgspec.convert(obj, _SHAPES.get(resource, _AnyObject))
    except msgspec.ValidationError as problem:
        message = f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {problem}'
        raise UndecodableError(message) from problem
