"""The Kubernetes objects of a scenario, as plain JSON for any API server.

Pure: it must not know how they are sent. Names of labels and taints come from the catalogue of names.
"""

from typing import Any, Final

from overspill_demo.scenario import Inference, Research, Scenario, Shape
from overspill_events import names

RESEARCH_NAMESPACE: Final = "research"
INFERENCE_NAMESPACE: Final = "inference"
LOCAL_QUEUE: Final = "training"
CLUSTER_QUEUE: Final = "training"
HOME_FLAVOR: Final = "home"
RUN_SECONDS: Final = "lab.overspill.dev/run-seconds"  # tells the lab's kubelets how long a pod runs
QUEUE_SHARE: Final = 0.95  # of home's GPUs: "nearly all", as the mission has it for the training queue
PRIORITIES: Final = range(1, 9)
MADE_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MADE_BY: Final = "overspill-demo"  # on everything that the story creates, so that a cluster can be cleared of it
_PROBE: Final = Shape(cpu_milli=100, memory_mib=0, gpus=1)

Body = dict[str, Any]


def namespaces() -> list[Body]:
    """Where the work lives."""
    return [_object("v1", "Namespace", name) for name in (RESEARCH_NAMESPACE, INFERENCE_NAMESPACE)]


def priority_classes() -> list[Body]:
    """1 GPU lowest, 8 GPUs highest; they order the queue and do not preempt."""
    return [
        _object("scheduling.k8s.io/v1", "PriorityClass", f"{names.GPU_PRIORITY_CLASS_PREFIX}{gpus}")
        | {"value": 100 + gpus, "preemptionPolicy": "Never"}
        for gpus in PRIORITIES
    ]


def spillable_probe() -> Body:
    """A pod that is never made: what comes back of its dry run tells whether the admission policies are at work."""
    body = _object("v1", "Pod", "probe", INFERENCE_NAMESPACE) | {"spec": _pod_spec("probe", _PROBE)}
    body["metadata"]["labels"][names.SPILLABLE_LABEL] = "true"
    return body


def queued_probe() -> Body:
    """A Job that is never made, for the same end."""
    return job(Research(name="probe", shape=_PROBE, run_seconds=1))


def queues(scenario: Scenario, *, held: bool) -> list[Body]:
    """One flavor, the training ClusterQueue with nearly all of home's GPUs, and its LocalQueue."""
    totals = {
        "cpu": f"{sum(node.cpu_milli for node in scenario.nodes)}m",
        "memory": f"{sum(node.memory_mib for node in scenario.nodes)}Mi",
        names.GPU_RESOURCE: str(int(scenario.home_gpus * QUEUE_SHARE)),
    }
    resources = [{"name": name, "nominalQuota": quota} for name, quota in totals.items()]
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "Hold" if held else "None",
        "resourceGroups": [
            {"coveredResources": list(totals), "flavors": [{"name": HOME_FLAVOR, "resources": resources}]}
        ],
    }
    api = "kueue.x-k8s.io/v1beta2"
    return [
        _object(api, "ResourceFlavor", HOME_FLAVOR) | {"spec": {}},
        _object(api, "ClusterQueue", CLUSTER_QUEUE) | {"spec": spec},
        _object(api, "LocalQueue", LOCAL_QUEUE, RESEARCH_NAMESPACE) | {"spec": {"clusterQueue": CLUSTER_QUEUE}},
    ]


def job(research: Research) -> Body:
    """A research Job in the training queue; the admission policy suspends it and gives it its priority."""
    template = {
        "metadata": {"labels": {"app": research.name}, "annotations": {RUN_SECONDS: f"{research.run_seconds:g}"}},
        "spec": _pod_spec("train", research.shape) | {"restartPolicy": "Never"},
    }
    body = _object("batch/v1", "Job", research.name, RESEARCH_NAMESPACE)
    body["metadata"]["labels"][names.QUEUE_LABEL] = LOCAL_QUEUE
    return body | {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 3, "template": template}}


def deployment(inference: Inference) -> Body:
    """Inference replicas that may overflow, as they are at the story's first scaling."""
    labels = {"app": inference.name}
    template = {
        "metadata": {"labels": labels | {names.SPILLABLE_LABEL: "true"}},
        "spec": _pod_spec("serve", inference.shape),
    }
    return _object("apps/v1", "Deployment", inference.name, INFERENCE_NAMESPACE) | {
        "spec": {
            "replicas": inference.scalings[0].replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def disruption_budget(inference: Inference, *, frozen: bool) -> Body:
    """The Deployment's budget; frozen, it allows no disruption at all."""
    spec = {
        "maxUnavailable": 0 if frozen else inference.max_unavailable,
        "selector": {"matchLabels": {"app": inference.name}},
    }
    return _object("policy/v1", "PodDisruptionBudget", inference.name, INFERENCE_NAMESPACE) | {"spec": spec}


def home_nodes(scenario: Scenario) -> list[Body]:
    """The nodes file of the lab's kubelets."""
    return [
        {
            "name": node.name,
            "cpu": f"{node.cpu_milli}m",
            "memory": f"{node.memory_mib}Mi",
            "gpus": node.gpus,
            "model": node.model,
        }
        for node in scenario.nodes
    ]


def _object(api_version: str, kind: str, name: str, namespace: str | None = None) -> Body:
    metadata: Body = {"name": name, "labels": {MADE_BY_LABEL: MADE_BY}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _pod_spec(container: str, shape: Shape) -> Body:
    requests = {"cpu": f"{shape.cpu_milli}m", names.GPU_RESOURCE: str(shape.gpus)}
    if shape.memory_mib:
        requests["memory"] = f"{shape.memory_mib}Mi"
    return {
        "containers": [
            {
                "name": container,
                "image": f"example.invalid/{container}:1",
                "resources": {"requests": requests, "limits": {names.GPU_RESOURCE: str(shape.gpus)}},
            }
        ],
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
    }
