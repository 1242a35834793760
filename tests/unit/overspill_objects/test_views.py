"""Views read what API servers write: odd names, absent and unknown fields, both versions of Kueue."""

import gc

import msgspec
import pytest

from overspill_objects.apps import Deployment
from overspill_objects.batch import Job
from overspill_objects.coordination import Lease
from overspill_objects.core import Event, Node, Pod, Secret
from overspill_objects.disruption import PodDisruptionBudget
from overspill_objects.meta import LabelSelector, LabelSelectorRequirement, condition_of, controller_of, selects
from overspill_objects.queues import ClusterQueue
from overspill_objects.scheduling import PriorityClass
from overspill_objects.view import View

POD = """
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1", "resourceVersion": "77", "generation": 1,
   "creationTimestamp": "2026-11-30T07:00:00Z", "labels": {"app": "web"}, "managedFields": [{"manager": "x"}],
   "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u0"},
     {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u2", "controller": true}]},
 "spec": {"nodeName": "n1", "hostNetwork": true, "hostPID": true, "priority": 7, "futureField": {"a": [1]},
   "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "1"},
      {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
      "ports": [{"containerPort": 80}],
      "resources": {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "2"}}}],
   "initContainers": [{"name": "side", "restartPolicy": "Always"}],
   "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "plain"}],
   "schedulingGates": [{"name": "g"}],
   "affinity": {"nodeAffinity": {
       "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
           {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]},
       "preferredDuringSchedulingIgnoredDuringExecution": [
           {"weight": 100, "preference": {"matchExpressions": [{"key": "v", "operator": "DoesNotExist"}]}}]},
     "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
 "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.0.2", "startTime": "2026-11-30T07:00:01Z",
   "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
   "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0,
      "state": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-11-30T07:00:05Z"}}}]}}
"""


def test_a_pod_with_everything_that_is_judged() -> None:
    pod = msgspec.json.decode(POD, type=Pod)
    owner = controller_of(pod.metadata)
    assert owner is not None
    assert (owner.kind, owner.name) == ("ReplicaSet", "web")
    assert (pod.spec.host_network, pod.spec.host_pid, pod.spec.priority) == (True, True, 7)
    assert (pod.status.pod_ip, pod.status.host_ip) == ("10.0.0.1", "10.0.0.2")
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "2"}
    assert pod.spec.containers[0].env[1].value_from == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert [(entry.key, entry.operator, entry.toleration_seconds) for entry in pod.spec.tolerations] == [
        ("k", "Exists", 300),
        ("plain", "Equal", None),
    ]
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None
    assert affinity.node_affinity.required.node_selector_terms[0].match_expressions[0].values == ("a",)
    assert affinity.node_affinity.preferred[0].weight == 100
    assert affinity.pod_affinity is None
    assert affinity.pod_anti_affinity is not None, "present, though not modelled"
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 3


@pytest.mark.parametrize("view", [Pod, Node, Deployment, Job, Lease, PodDisruptionBudget, ClusterQueue, Event])
def test_an_object_without_anything_takes_the_defaults(view: type[View]) -> None:
    assert msgspec.json.decode(b"{}", type=view) == view()


def test_a_cache_of_views_is_no_burden_for_the_garbage_collector() -> None:
    assert not gc.is_tracked(msgspec.json.decode(POD, type=Pod))


def test_both_versions_of_a_cluster_queue_name_their_cohort() -> None:
    old = msgspec.json.decode(b'{"spec": {"cohort": "ml"}}', type=ClusterQueue)
    new = msgspec.json.decode(b'{"spec": {"cohortName": "ml"}}', type=ClusterQueue)
    assert old.spec.cohort_of == new.spec.cohort_of == "ml"


def test_quotas_may_be_bare_numbers() -> None:
    text = b"""{"spec": {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [
        {"name": "home", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8, "borrowingLimit": "2"}]}]}]}}"""
    quota = msgspec.json.decode(text, type=ClusterQueue).spec.resource_groups[0].flavors[0].resources[0]
    assert (quota.nominal_quota, quota.borrowing_limit, quota.lending_limit) == (8, "2", None)


def test_a_field_of_the_wrong_type_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.priority"):
        msgspec.json.decode(b'{"spec": {"priority": "high"}}', type=Pod)


def test_a_secret_does_not_show_its_values() -> None:
    secret = msgspec.json.decode(b'{"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}}', type=Secret)
    assert "aHVudGVyMg" not in repr(secret)
    assert "password" in repr(secret)


def test_small_views() -> None:
    lease = msgspec.json.decode(b'{"spec": {"renewTime": "2026-11-30T07:00:00.123456Z"}}', type=Lease)
    assert lease.spec.renew_time is not None
    assert lease.spec.renew_time.microsecond == 123456
    assert msgspec.json.decode(b'{"value": 9}', type=PriorityClass).preemption_policy == "PreemptLowerPriority"
    node = msgspec.json.decode(b'{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}', type=Node)
    ready = condition_of(node.status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "False"
    assert condition_of(node.status.conditions, "MemoryPressure") is None
    assert controller_of(node.metadata) is None


def require(operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key="tier", operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (None, {"tier": "gold"}, False),
        (LabelSelector(), {}, True),
        (LabelSelector(match_labels={"tier": "gold"}), {"tier": "gold", "x": "y"}, True),
        (LabelSelector(match_labels={"tier": "gold"}), {"tier": "tin"}, False),
        (LabelSelector(match_labels={"tier": "gold"}), {}, False),
        (require("In", "gold", "tin"), {"tier": "tin"}, True),
        (require("In", "gold"), {}, False),
        (require("NotIn", "gold"), {}, True),
        (require("NotIn", "gold"), {"tier": "gold"}, False),
        (require("Exists"), {"tier": ""}, True),
        (require("Exists"), {}, False),
        (require("DoesNotExist"), {}, True),
        (require("DoesNotExist"), {"tier": "x"}, False),
    ],
)
def test_selectors(selector: LabelSelector | None, labels: dict[str, str], selected: bool) -> None:
    assert selects(selector, labels) is selected


def test_an_operator_that_is_not_defined_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="Resembles"):
        selects(require("Resembles", "gold"), {"tier": "gold"})
