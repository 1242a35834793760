"""Default values as the API server fills them in while it decodes, for the kinds and members our clients rely on.

Pure: each function completes a dict in place. Sources: `pkg/apis/{core,apps,batch}/v1/defaults.go` and the strategies'
`PrepareForCreate` (what a new object's status is). What admission adds is in `plugins` and `admission`.
"""

import base64
from collections.abc import Callable
from typing import Any

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.quantities import canonicalise
from overspill_lab.apiserver.resources import (
    CLUSTER_QUEUES,
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
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_QOS_RESOURCES = ("cpu", "memory")


def _fill(target: JsonObject, **values: Any) -> None:
    for key, value in values.items():
        target.setdefault(key, value)


def default_pod_spec(spec: JsonObject) -> None:
    """Complete a pod's spec, or a pod template's."""
    _fill(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if account := spec.get("serviceAccountName"):
        spec["serviceAccount"] = account
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: JsonObject) -> None:
    image = container.get("image", "")
    untagged = ":" not in image.rpartition("/")[2] and "@" not in image
    _fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if untagged or image.endswith(":latest") else "IfNotPresent",
        resources={},
    )
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _fill(container[probe], **_PROBE)
            if "httpGet" in container[probe]:
                container[probe]["httpGet"].setdefault("scheme", "HTTP")
    _canonical_amounts(container["resources"])


def _canonical_amounts(resources: JsonObject) -> None:
    for kind in ("limits", "requests"):
        if kind in resources:
            resources[kind] = canonicalise(resources[kind])


def default_requests(resources: JsonObject) -> None:
    """Take the limit as the request where no request is given; write every quantity in canonical form.

    Of a pod's containers only: the API server leaves a template's as they are until a pod is made of it.
    """
    _canonical_amounts(resources)
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **resources.get("requests", {})}


def _default_volume(volume: JsonObject) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", 0o644)


def qos_class(spec: JsonObject) -> str:
    """Return Guaranteed, Burstable or BestEffort, judged by cpu and memory alone."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [container.get("resources") or {} for container in containers]
    named = [r.get(kind, {}).get(name) for r in resources for kind in ("requests", "limits") for name in _QOS_RESOURCES]
    if not any(named):
        return "BestEffort"
    guaranteed = all(
        r.get("limits", {}).get(name) is not None and r["limits"][name] == r.get("requests", {}).get(name)
        for r in resources
        for name in _QOS_RESOURCES
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _pod(pod: JsonObject) -> None:
    spec = pod["spec"]
    _fill(spec, enableServiceLinks=True, serviceAccountName="default")
    default_pod_spec(spec)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        default_requests(container["resources"])
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        _fill(condition, lastProbeTime=None, lastTransitionTime=None)
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        _fill(container, image="", imageID="", ready=False, restartCount=0, state={}, lastState={})
    if address := status.get("podIP"):
        addresses = status.get("podIPs") or [{}]
        status["podIPs"] = addresses if addresses[0].get("ip") == address else [{"ip": address}]


def _pod_status(pod: JsonObject) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _template(spec: JsonObject) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _deployment(deployment: JsonObject) -> None:
    spec = deployment["spec"]
    _fill(spec, replicas=1, strategy={}, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec["strategy"]
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
    _template(spec)
    if not (status := deployment.get("status") or {}).get("replicas", 1):
        del status["replicas"]


def _replica_set(replica_set: JsonObject) -> None:
    replica_set["spec"].setdefault("replicas", 1)
    _template(replica_set["spec"])


def _job(job: JsonObject) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    _fill(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy=replacement,
        manualSelector=False,
    )
    _template(spec)


def identify_job(job: JsonObject) -> None:
    """Give a new Job the selector and the pod labels that its UID makes unique, unless it brought its own selector.

    A Job without labels shows those of its pods, these among them.
    """
    spec, metadata = job["spec"], job["metadata"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    if not spec.get("manualSelector"):
        uid, name = metadata["uid"], metadata["name"]
        labels |= {"controller-uid": uid, "job-name": name}
        labels |= {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    if not metadata.get("labels"):
        metadata["labels"] = dict(labels)


_NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def _node(node: JsonObject) -> None:
    status = node.setdefault("status", {})
    for kind in ("capacity", "allocatable"):
        if kind in status:
            status[kind] = canonicalise(status[kind])
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))
    _fill(status.setdefault("nodeInfo", {}), **dict.fromkeys(_NODE_INFO, ""))
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})


def _budget(budget: JsonObject) -> None:
    for condition in (budget.get("status") or {}).get("conditions") or ():
        condition.setdefault("message", "")


def _event(event: JsonObject) -> None:
    _fill(event, involvedObject={}, source={}, firstTimestamp=None, lastTimestamp=None, eventTime=None)
    _fill(event, reportingComponent="", reportingInstance="")


def _quota(quota: JsonObject) -> None:
    if "hard" in quota["spec"]:
        quota["spec"]["hard"] = canonicalise(quota["spec"]["hard"])


def _namespace(namespace: JsonObject) -> None:
    namespace["spec"].setdefault("finalizers", ["kubernetes"])
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _service(service: JsonObject) -> None:
    spec = service["spec"]
    _fill(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        _fill(port, protocol="TCP", targetPort=port.get("port"))
    if "clusterIP" in spec:
        _fill(spec, clusterIPs=[spec["clusterIP"]], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")


def _priority_class(priority_class: JsonObject) -> None:
    _fill(priority_class, preemptionPolicy="PreemptLowerPriority", value=0)


def _secret(secret: JsonObject) -> None:
    secret.setdefault("type", "Opaque")
    for key, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    for key, encoded in (secret.get("data") or {}).items():
        try:
            base64.b64decode(encoded, validate=True)
        except ValueError as problem:
            raise ValueError(f"data[{key}]: illegal base64 data: {problem}") from problem


_DEFAULTS: dict[Resource, Callable[[JsonObject], None]] = {
    PODS: _pod,
    DEPLOYMENTS: _deployment,
    REPLICA_SETS: _replica_set,
    JOBS: _job,
    NAMESPACES: _namespace,
    NODES: _node,
    RESOURCE_QUOTAS: _quota,
    SERVICES: _service,
    PRIORITY_CLASSES: _priority_class,
    SECRETS: _secret,
    EVENTS: _event,
    DISRUPTION_BUDGETS: _budget,
}
_WITH_SPEC = frozenset({*_DEFAULTS, LEASES}) - {PRIORITY_CLASSES, SECRETS, EVENTS}
_NEW_STATUS: dict[Resource, JsonObject] = {
    NAMESPACES: {"phase": "Active"},
    SERVICES: {"loadBalancer": {}},
    DEPLOYMENTS: {},
    REPLICA_SETS: {"replicas": 0},
    JOBS: {},
    DISRUPTION_BUDGETS: {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    RESOURCE_QUOTAS: {},
}
_NO_STATUS = (CLUSTER_QUEUES, LOCAL_QUEUES)


def apply_defaults(resource: Resource, obj: JsonObject) -> None:
    """Complete an object of a kind, as decoding it would; raises ValueError for a quantity or text that is none."""
    if resource in _WITH_SPEC:
        obj.setdefault("spec", {})
    if fill := _DEFAULTS.get(resource):
        fill(obj)


def reset_status(resource: Resource, obj: JsonObject) -> None:
    """Give a new object the status it starts with, whatever the client sent. Nodes keep theirs, as on a real server."""
    if resource is PODS:
        _pod_status(obj)
    elif resource in _NEW_STATUS:
        obj["status"] = dict(_NEW_STATUS[resource])
    elif resource in _NO_STATUS:
        obj.pop("status", None)
