"""ReplicaSets and Deployments: as many pods as wanted, whatever happens to them, and the cheapest to lose go first."""

from __future__ import annotations

import pytest

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    deployment,
    pod,
    replica_set,
    report,
    run,
)


async def _pods(api: Api, namespace: str, app: str, count: int, without: str = "") -> list[Object]:
    """The unfinished pods of this app that are not going, once they are as many as this and without that uid."""

    async def read() -> list[Object]:
        reply = (await api.get(PODS.format(namespace), labelSelector=f"app={app}")).ok()
        return [
            each
            for each in reply["items"]
            if "deletionTimestamp" not in each["metadata"] and each["status"]["phase"] in ("Pending", "Running")
        ]

    return await eventually(
        read,
        lambda seen: len(seen) == count and without not in {each["metadata"]["uid"] for each in seen},
        f"{app} has {count} pods",
    )


async def _running(
    api: Api, namespace: str, node: str, count: int, costs: dict[int, str] | None = None
) -> list[Object]:
    """As many pods, of which some have a deletion cost; the controller has counted them all as ready.

    A pod has its cost before it runs, so whoever has counted it knows the cost, too: the controller hears of pods and of
    ReplicaSets by two watches, and may hear of a number before it hears of costs.
    """
    (await api.post(REPLICA_SETS.format(namespace), replica_set("web", count))).ok()
    pods = await _pods(api, namespace, "web", count)
    for number, cost in (costs or {}).items():
        annotation = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}
        (await api.patch(f"{PODS.format(namespace)}/{pods[number]['metadata']['name']}", annotation)).ok()
    for each in pods:
        await run(api, namespace, each["metadata"]["name"], node)
    await api.eventually(
        f"{REPLICA_SETS.format(namespace)}/web",
        lambda each: each["status"].get("readyReplicas") == count,
        "all are ready",
    )
    return pods


async def test_a_replica_set_makes_its_pods(api: Api, namespace: str) -> None:
    made = (await api.post(REPLICA_SETS.format(namespace), replica_set("web", 3))).ok()
    for each in await _pods(api, namespace, "web", 3):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("apps/v1", "ReplicaSet", "web")
        assert owner["uid"] == made["metadata"]["uid"]
        assert owner["controller"] is True
        assert each["metadata"]["name"].startswith("web-")


async def test_its_status_counts_what_is_ready(api: Api, namespace: str, nodes) -> None:
    pods = await _running(api, namespace, await nodes.add(), 2)
    path = f"{REPLICA_SETS.format(namespace)}/web"
    seen = await api.eventually(path, lambda each: each["status"].get("readyReplicas") == 2, "both are ready")
    assert (seen["status"]["replicas"], seen["status"]["availableReplicas"]) == (2, 2)
    assert seen["status"]["observedGeneration"] == 1

    not_ready = {"type": "Ready", "status": "False"}
    await report(api, namespace, pods[0]["metadata"]["name"], conditions=[not_ready])
    await api.eventually(path, lambda each: each["status"].get("readyReplicas") == 1, "one is ready")


@pytest.mark.parametrize("how", ["deleted", "evicted", "failed"])
async def test_a_lost_pod_is_replaced(api: Api, namespace: str, nodes, how: str) -> None:
    pods = await _running(api, namespace, await nodes.add(), 2)
    name, uid = pods[0]["metadata"]["name"], pods[0]["metadata"]["uid"]
    path = f"{PODS.format(namespace)}/{name}"
    if how == "deleted":
        (await api.delete(path)).ok()
    elif how == "evicted":
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        (await api.post(f"{path}/eviction", body)).ok()
    else:
        await report(api, namespace, name, phase="Failed")

    after = await _pods(api, namespace, "web", 2, without=uid)
    # The successor has another name; the predecessor may still be going.
    assert len({each["metadata"]["name"] for each in after} - {each["metadata"]["name"] for each in pods}) == 1


async def test_fewer_replicas_take_the_cheapest_pods_to_delete(api: Api, namespace: str, nodes) -> None:
    pods = await _running(api, namespace, await nodes.add(), 4, {1: "-100", 2: "-100"})
    path = f"{REPLICA_SETS.format(namespace)}/web"
    cheap = {each["metadata"]["name"] for each in pods[1:3]}
    (await api.patch(f"{path}/scale", {"spec": {"replicas": 2}})).ok()

    left = await _pods(api, namespace, "web", 2)
    assert {each["metadata"]["name"] for each in left} == {each["metadata"]["name"] for each in pods} - cheap


async def test_a_deletion_cost_is_compared_as_a_number_and_silence_is_zero(api: Api, namespace: str, nodes) -> None:
    pods = await _running(api, namespace, await nodes.add(), 4, {0: "9", 1: "10", 2: "-1"})
    names = [each["metadata"]["name"] for each in pods]
    for count, going in ((3, names[2]), (2, names[3]), (1, names[0])):
        before = {each["metadata"]["name"] for each in await _pods(api, namespace, "web", count + 1)}
        (await api.patch(f"{REPLICA_SETS.format(namespace)}/web/scale", {"spec": {"replicas": count}})).ok()
        after = {each["metadata"]["name"] for each in await _pods(api, namespace, "web", count)}
        assert before - after == {going}


async def test_an_unready_pod_goes_before_a_cheap_one(api: Api, namespace: str, nodes) -> None:
    """Why the cost cannot save a spilled pod that is still starting: readiness counts first."""
    pods = await _running(api, namespace, await nodes.add(), 2, {0: "-100"})
    names = [each["metadata"]["name"] for each in pods]
    await report(api, namespace, names[1], conditions=[{"type": "Ready", "status": "False"}])
    path = f"{REPLICA_SETS.format(namespace)}/web"
    await api.eventually(path, lambda each: each["status"].get("readyReplicas") == 1, "one is ready")
    (await api.patch(f"{path}/scale", {"spec": {"replicas": 1}})).ok()
    (left,) = await _pods(api, namespace, "web", 1)
    assert left["metadata"]["name"] == names[0]


@pytest.mark.parametrize("cost", ["cheap", "+5", "007", "2147483648", ""])
async def test_a_deletion_cost_that_is_no_number_is_refused(api: Api, namespace: str, cost: str) -> None:
    body = pod("priced")
    body["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    status = (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")
    field = "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]"
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]
    (await api.post(PODS.format(namespace), pod("priced"))).ok()
    patch = {"metadata": {"annotations": body["metadata"]["annotations"]}}
    (await api.patch(f"{PODS.format(namespace)}/priced", patch)).refused(422, "Invalid")


async def test_fewer_replicas_take_the_unassigned_before_the_running(api: Api, namespace: str, nodes) -> None:
    pods = await _running(api, namespace, await nodes.add(), 2)
    path = f"{REPLICA_SETS.format(namespace)}/web"
    (await api.patch(path, {"spec": {"replicas": 4}})).ok()
    await _pods(api, namespace, "web", 4)
    (await api.patch(path, {"spec": {"replicas": 2}})).ok()

    left = await _pods(api, namespace, "web", 2)
    assert {each["metadata"]["uid"] for each in left} == {each["metadata"]["uid"] for each in pods}


async def test_no_replicas_are_no_pods(api: Api, namespace: str) -> None:
    (await api.post(REPLICA_SETS.format(namespace), replica_set("web", 2))).ok()
    await _pods(api, namespace, "web", 2)
    (await api.patch(f"{REPLICA_SETS.format(namespace)}/web", {"spec": {"replicas": 0}})).ok()
    await _pods(api, namespace, "web", 0)


async def test_a_deployment_makes_a_replica_set_that_makes_the_pods(api: Api, namespace: str) -> None:
    made = (await api.post(DEPLOYMENTS.format(namespace), deployment("web", 2))).ok()
    (pod, _) = await _pods(api, namespace, "web", 2)
    (parent,) = pod["metadata"]["ownerReferences"]
    owner = (await api.get(f"{REPLICA_SETS.format(namespace)}/{parent['name']}")).ok()

    digest = owner["metadata"]["labels"]["pod-template-hash"]
    assert owner["metadata"]["name"] == f"web-{digest}"
    assert pod["metadata"]["labels"]["pod-template-hash"] == digest
    assert owner["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    (grandparent,) = owner["metadata"]["ownerReferences"]
    assert (grandparent["kind"], grandparent["uid"]) == ("Deployment", made["metadata"]["uid"])


async def test_a_deployments_status_counts_what_is_ready(api: Api, namespace: str, nodes) -> None:
    node, path = await nodes.add(), f"{DEPLOYMENTS.format(namespace)}/web"
    (await api.post(DEPLOYMENTS.format(namespace), deployment("web", 2))).ok()
    for each in await _pods(api, namespace, "web", 2):
        await run(api, namespace, each["metadata"]["name"], node)
    seen = await api.eventually(path, lambda each: each["status"].get("readyReplicas") == 2, "both are ready")
    assert (seen["status"]["replicas"], seen["status"]["updatedReplicas"]) == (2, 2)
    assert seen["status"]["observedGeneration"] == seen["metadata"]["generation"]


async def test_a_deployment_is_scaled_through_its_scale(api: Api, namespace: str) -> None:
    path = f"{DEPLOYMENTS.format(namespace)}/web"
    (await api.post(DEPLOYMENTS.format(namespace), deployment("web", 1))).ok()
    scale = (await api.get(f"{path}/scale")).ok()
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)
    (await api.patch(f"{path}/scale", {"spec": {"replicas": 3}})).ok()

    await _pods(api, namespace, "web", 3)
    assert (await api.get(path)).ok()["spec"]["replicas"] == 3


async def test_the_whole_family_of_a_deleted_deployment_goes(api: Api, namespace: str) -> None:
    (await api.post(DEPLOYMENTS.format(namespace), deployment("web", 1))).ok()
    (pod,) = await _pods(api, namespace, "web", 1)
    (await api.delete(f"{DEPLOYMENTS.format(namespace)}/web")).ok()
    await api.gone(f"{REPLICA_SETS.format(namespace)}/{pod['metadata']['ownerReferences'][0]['name']}")
    await api.gone(f"{PODS.format(namespace)}/{pod['metadata']['name']}")
