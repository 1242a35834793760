"""The controllers as a process: rollouts under a budget of availability, lost nodes, and a kill in the middle."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from overspill_kube.client import PatchKind
from overspill_kube.resources import DEPLOYMENTS, JOBS, LEASES, NODES, PDBS, PODS, REPLICA_SETS
from overspill_lab.controllers.replica_rules import is_ready
from overspill_lab.kubelets.life import RUN_SECONDS
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of
from tests.support.lab_parts import NAMESPACE, Parts, deployment_body, lab_parts, nodes_file, pod_body, pod_spec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    folder = tmp_path_factory.mktemp("lab")
    kubelets = ("--nodes", nodes_file(folder, 8, 8), "--start-seconds", "0.1", "--renew-seconds", "0.5")
    controllers = ("--node-grace-seconds", "5", "--lost-pod-seconds", "1")
    async with lab_parts(folder, controllers=controllers, kubelets=kubelets, scheduler=()) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def parts(started: Parts) -> AsyncIterator[Parts]:
    """The same processes for all tests of this module; each leaves no owner and no pod."""
    yield started
    for resource in (DEPLOYMENTS, REPLICA_SETS, JOBS):
        for one in (await started.client.list(resource)).items:
            await started.client.delete(resource, one.metadata.name, NAMESPACE, propagation="Background")
    await started.pods_until(lambda seen: not seen, "no pod is left")


async def _ready(parts: Parts, name: str, count: int) -> dict[str, Pod]:
    pods: dict[str, Pod] = await parts.until(
        lambda: parts.pods(f"app={name}"),
        lambda seen: sum(map(is_ready, seen.values())) == len(seen) == count,
        f"{count} pods of {name} are ready and no others are there",
    )
    return pods


async def test_a_rollout_replaces_every_pod_and_keeps_enough_available(parts: Parts) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    await parts.create(DEPLOYMENTS, deployment_body("web", 5, strategy=strategy))
    before = await _ready(parts, "web", 5)
    await parts.until(
        lambda: parts.client.get(DEPLOYMENTS, "web", NAMESPACE),
        lambda seen: seen.status.available_replicas == 5,
        "the rollout is complete",
    )
    change = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
    await parts.client.patch(DEPLOYMENTS, "web", change, kind=PatchKind.MERGE, namespace=NAMESPACE)
    fewest = [5]

    async def look() -> dict[str, Pod]:
        pods = await parts.pods("app=web")
        fewest.append(sum(is_ready(pod) and pod.metadata.deletion_timestamp is None for pod in pods.values()))
        return pods

    await parts.until(look, lambda seen: len(seen) == 5 and not set(seen) & set(before), "all pods are new")
    await _ready(parts, "web", 5)
    assert min(fewest) >= 4


async def test_a_kill_in_the_middle_of_a_scale_up_makes_no_pod_too_many(parts: Parts) -> None:
    """After the kill the new process counts what is there. One too many would be deleted: none ever is."""
    await parts.create(DEPLOYMENTS, deployment_body("many", 40))
    await parts.pods_until(len, "the first pods are there")
    await parts.supervisor.kill("controllers")
    await parts.supervisor.ready("controllers")
    most = [0]

    async def look() -> dict[str, Pod]:
        pods = await parts.pods("app=many")
        most.append(len(pods))
        return pods

    await parts.until(look, lambda seen: sum(map(is_ready, seen.values())) == 40, "40 are ready")
    assert max(most) == 40


async def test_a_job_counts_every_pod_once_over_a_kill(parts: Parts) -> None:
    template = {
        "metadata": {"annotations": {RUN_SECONDS: "1"}},
        "spec": {**pod_spec(), "restartPolicy": "Never"},
    }
    spec = {"parallelism": 3, "completions": 6, "template": template}
    await parts.create(JOBS, {"metadata": {"name": "batch"}, "spec": spec})
    await parts.pods_until(
        lambda seen: any(pod.status.phase == "Succeeded" for pod in seen.values()), "the first pod has succeeded"
    )
    await parts.supervisor.kill("controllers")
    job = await parts.until(
        lambda: parts.client.get(JOBS, "batch", NAMESPACE),
        lambda seen: any(one.type == "Complete" and one.status == "True" for one in seen.status.conditions),
        "the job is complete",
    )
    assert (job.status.succeeded, job.status.failed, job.status.active) == (6, 0, 0)
    pods = await parts.pods("job-name=batch")
    assert len(pods) == 6
    assert all(pod.status.phase == "Succeeded" and not pod.metadata.finalizers for pod in pods.values())


async def test_an_eviction_spends_the_budget_until_the_successor_is_ready(parts: Parts) -> None:
    await parts.create(DEPLOYMENTS, deployment_body("kept", 3))
    pods = await _ready(parts, "kept", 3)
    budget = {"metadata": {"name": "kept"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "kept"}}}}
    await parts.create(PDBS, budget)
    await parts.until(
        lambda: parts.client.get(PDBS, "kept", NAMESPACE),
        lambda seen: seen.status.disruptions_allowed == 1,
        "one may go",
    )

    async def evict(name: str) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        status, _ = await parts.client.raw("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body=body)
        return status

    first, second, _ = sorted(pods)
    assert await evict(first) == 201
    assert await evict(second) == 429
    seen = await parts.until(
        lambda: parts.client.get(PDBS, "kept", NAMESPACE),
        lambda seen: seen.status.disruptions_allowed == 1 and not seen.status.disrupted_pods,
        "one may go again",
    )
    assert (seen.status.current_healthy, seen.status.desired_healthy, seen.status.expected_pods) == (3, 2, 3)
    await parts.client.delete(PDBS, "kept", NAMESPACE)


async def _silent_node(parts: Parts, name: str) -> None:
    """A node whose kubelet writes its lease once and never again."""
    await parts.create(NODES, {"metadata": {"name": name}})
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "9"},
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"},
    }
    await parts.client.patch(NODES, name, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")
    lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"holderIdentity": name}}
    await parts.client.create(LEASES, lease)


def _taints(node: Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints}


async def test_a_silent_node_becomes_unknown_and_loses_its_pods_in_time(parts: Parts) -> None:
    await _silent_node(parts, "silent")

    def tolerating(seconds: int | None) -> list[dict[str, object]]:
        tolerations: list[dict[str, object]] = []
        for key in ("not-ready", "unreachable"):
            toleration: dict[str, object] = {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
            }
            tolerations.append(toleration if seconds is None else {**toleration, "tolerationSeconds": seconds})
        return tolerations

    await parts.create(PODS, pod_body("soon", nodeName="silent", tolerations=tolerating(1)))
    await parts.create(PODS, pod_body("never", nodeName="silent", tolerations=tolerating(None)))
    node = await parts.until(
        lambda: parts.client.get(NODES, "silent"),
        lambda seen: condition_of(seen.status.conditions, "Ready").status == "Unknown" and len(seen.spec.taints) == 2,
        "it is unknown and tainted",
    )
    unreachable = "node.kubernetes.io/unreachable"
    assert _taints(node) == {(unreachable, "NoSchedule"), (unreachable, "NoExecute")}
    soon = await parts.until(
        lambda: parts.pod("soon"), lambda seen: seen.metadata.deletion_timestamp is not None, "it has to leave"
    )
    assert condition_of(soon.status.conditions, "DisruptionTarget").reason == "DeletionByTaintManager"
    never = await parts.pod("never")
    assert never is not None
    assert never.metadata.deletion_timestamp is None
    for name in ("n0", "n1"):
        assert _taints(await parts.client.get(NODES, name)) == set()  # their leases are renewed

    # Its kubelet gone for good, the node is removed: nobody is left to confirm that its pods have stopped.
    await parts.client.delete(NODES, "silent")
    await parts.pods_until(lambda seen: not seen, "the pods of the lost node are gone")


async def test_a_longer_toleration_in_time_keeps_the_pod(parts: Parts) -> None:
    """The bridge's outage tolerance: patched on a bound pod before its node is tainted, it must outlast a shorter one."""
    taint = {"key": "k", "effect": "NoExecute"}
    await parts.create(NODES, {"metadata": {"name": "tainted"}})
    tolerating = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    spec = {"nodeName": "tainted", "terminationGracePeriodSeconds": 0}
    for name in ("short", "long"):
        await parts.create(PODS, pod_body(name, tolerations=[{**tolerating, "tolerationSeconds": 3}], **spec))
    pod = await parts.client.get_document(PODS, "long", NAMESPACE)
    tolerations = [
        {**one, "tolerationSeconds": 3600} if one.get("key") == "k" else one for one in pod["spec"]["tolerations"]
    ]
    await parts.client.patch(
        PODS, "long", {"spec": {"tolerations": tolerations}}, kind=PatchKind.MERGE, namespace=NAMESPACE
    )
    await parts.client.patch(NODES, "tainted", {"spec": {"taints": [taint]}}, kind=PatchKind.MERGE)
    await parts.until(
        lambda: parts.pod("short"), lambda seen: seen is None or seen.metadata.deletion_timestamp, "the short one goes"
    )
    kept = await parts.pod("long")
    assert kept is not None
    assert kept.metadata.deletion_timestamp is None
    await parts.client.delete(NODES, "tainted")
    await parts.pods_until(lambda seen: not seen, "the pods of the lost node are gone")


async def test_a_job_that_the_lab_cannot_run_fails_by_name(parts: Parts) -> None:
    template = {"spec": {**pod_spec(), "restartPolicy": "Never"}}
    spec = {"completions": 2, "completionMode": "Indexed", "template": template}
    await parts.create(JOBS, {"metadata": {"name": "indexed"}, "spec": spec})
    job = await parts.until(
        lambda: parts.client.get(JOBS, "indexed", NAMESPACE),
        lambda seen: any(one.type == "Failed" and one.status == "True" for one in seen.status.conditions),
        "it fails",
    )
    failed = next(one for one in job.status.conditions if one.type == "Failed")
    assert failed.message == "the lab does not run Jobs with completionMode Indexed"
    assert await parts.pods("job-name=indexed") == {}
