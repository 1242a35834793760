"""The eviction subresource: asked, answered by the budgets, and meant for one pod and no successor of its name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes.client import Api, Object, Reply, eventually
from tests.contract.kubernetes.objects import BUDGETS, PODS, REPLICA_SETS, budget, pod, replica_set, report, run

LABELS = {"app": "server"}
OTHER_UID = "11111111-1111-1111-1111-111111111111"


async def _evict(api: Api, namespace: str, name: str, **options: Any) -> Reply:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await api.post(f"{PODS.format(namespace)}/{name}/eviction", body)


async def _servers(api: Api, namespace: str, node: str, count: int) -> list[Object]:
    pods = []
    for number in range(count):
        (await api.post(PODS.format(namespace), pod(f"server-{number}", labels=LABELS))).ok()
        pods.append(await run(api, namespace, f"server-{number}", node))
    return pods


async def _replicas(api: Api, namespace: str, node: str, count: int) -> list[str]:
    """Running pods that a ReplicaSet wants: only of such can a budget say what a share of them is."""
    (await api.post(REPLICA_SETS.format(namespace), replica_set("server", count))).ok()
    seen = await eventually(
        lambda: api.get(PODS.format(namespace), labelSelector="app=server"),
        lambda reply: len(reply.ok()["items"]) == count,
        "the ReplicaSet makes its pods",
    )
    names = [each["metadata"]["name"] for each in seen.body["items"]]
    for name in names:
        await run(api, namespace, name, node)
    return names


async def _protected(api: Api, namespace: str, *, allowed: int, healthy: int | None = None, **spec: Any) -> None:
    """A budget whose controller has come to this conclusion, from as many healthy pods where that is not the only way."""
    (await api.post(BUDGETS.format(namespace), budget("keep", LABELS, **spec))).ok()
    await api.eventually(
        f"{BUDGETS.format(namespace)}/keep",
        lambda seen: (
            seen["status"].get("observedGeneration") == 1
            and seen["status"]["disruptionsAllowed"] == allowed
            and healthy in (None, seen["status"]["currentHealthy"])
        ),
        f"the budget allows {allowed}",
    )


def _blocked_by_budget(reply: Reply) -> None:
    status = reply.refused(429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["DisruptionBudget"]
    assert "keep" in status["details"]["causes"][0]["message"]


async def _is_there(api: Api, namespace: str, name: str) -> Object:
    seen = (await api.get(f"{PODS.format(namespace)}/{name}")).ok()
    assert "deletionTimestamp" not in seen["metadata"]
    return seen


async def test_an_evicted_pod_goes_and_says_why(api: Api, namespace: str, nodes) -> None:
    (made,) = await _servers(api, namespace, await nodes.add(), 1)
    reply = await _evict(api, namespace, "server-0", preconditions={"uid": made["metadata"]["uid"]})

    assert reply.status == 201
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    going = (await api.get(f"{PODS.format(namespace)}/server-0")).ok()
    assert going["metadata"]["deletionTimestamp"]
    target = next(each for each in going["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_an_eviction_may_shorten_the_grace(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    (await _evict(api, namespace, "server-0", gracePeriodSeconds=0)).ok()
    await api.gone(f"{PODS.format(namespace)}/server-0")


async def test_an_eviction_of_nothing_is_not_found(api: Api, namespace: str) -> None:
    (await _evict(api, namespace, "nobody")).refused(404, "NotFound")


async def test_an_eviction_of_another_name_is_refused(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "server-1"}}
    (await api.post(f"{PODS.format(namespace)}/server-0/eviction", body)).refused(400, "BadRequest")


async def test_an_eviction_meant_for_another_uid_is_a_conflict(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    (await _evict(api, namespace, "server-0", preconditions={"uid": OTHER_UID})).refused(409, "Conflict")
    await _is_there(api, namespace, "server-0")


async def test_a_pod_without_a_budget_may_always_be_evicted(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 2)
    (await api.post(BUDGETS.format(namespace), budget("keep", {"app": "something-else"}, minAvailable=9))).ok()
    for name in ("server-0", "server-1"):
        assert (await _evict(api, namespace, name)).status == 201


async def test_a_budget_lets_go_as_many_as_it_allows(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 3)
    await _protected(api, namespace, allowed=1, minAvailable=2)

    assert (await _evict(api, namespace, "server-0")).status == 201
    _blocked_by_budget(await _evict(api, namespace, "server-1"))
    await _is_there(api, namespace, "server-1")


async def test_a_spent_budget_refills_when_a_successor_is_ready(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add()
    await _servers(api, namespace, node, 2)
    await _protected(api, namespace, allowed=1, minAvailable=1)
    (await _evict(api, namespace, "server-0", gracePeriodSeconds=0)).ok()
    _blocked_by_budget(await _evict(api, namespace, "server-1"))

    (await api.post(PODS.format(namespace), pod("successor", labels=LABELS))).ok()
    await run(api, namespace, "successor", node)
    await eventually(
        lambda: _evict(api, namespace, "server-1"), lambda reply: reply.status == 201, "the budget has refilled"
    )


async def test_a_budget_counts_the_ready_against_those_that_are_wanted(api: Api, namespace: str, nodes) -> None:
    names = await _replicas(api, namespace, await nodes.add(), 3)
    await _protected(api, namespace, allowed=1, minAvailable="50%")
    seen = (await api.get(f"{BUDGETS.format(namespace)}/keep")).ok()["status"]
    assert (seen["currentHealthy"], seen["desiredHealthy"], seen["expectedPods"]) == (3, 2, 3)

    await report(api, namespace, names[0], conditions=[{"type": "Ready", "status": "False"}])
    seen = await api.eventually(
        f"{BUDGETS.format(namespace)}/keep", lambda each: each["status"]["currentHealthy"] == 2, "one is unhealthy"
    )
    assert seen["status"]["disruptionsAllowed"] == 0
    condition = next(each for each in seen["status"]["conditions"] if each["type"] == "DisruptionAllowed")
    assert (condition["status"], condition["reason"]) == ("False", "InsufficientPods")


async def test_a_budget_of_unavailable_pods_counts_from_what_is_wanted(api: Api, namespace: str, nodes) -> None:
    names = await _replicas(api, namespace, await nodes.add(), 3)
    await _protected(api, namespace, allowed=2, maxUnavailable=2)
    (await _evict(api, namespace, names[0], gracePeriodSeconds=0)).ok()

    # Its successor is not ready yet, so the pods wanted are still three and the healthy two.
    seen = await api.eventually(
        f"{BUDGETS.format(namespace)}/keep", lambda each: each["status"]["currentHealthy"] == 2, "one is missed"
    )
    status = seen["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (1, 1, 3)


async def test_nobody_wants_pods_without_an_owner_so_none_of_a_share_may_go(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 2)
    await _protected(api, namespace, allowed=0, healthy=2, maxUnavailable=1)
    seen = (await api.get(f"{BUDGETS.format(namespace)}/keep")).ok()
    assert (seen["status"]["currentHealthy"], seen["status"]["expectedPods"]) == (2, 0)
    _blocked_by_budget(await _evict(api, namespace, "server-0"))


async def test_a_dry_run_is_judged_and_does_nothing(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 2)
    await _protected(api, namespace, allowed=1, minAvailable=1)

    for _ in range(2):
        assert (await _evict(api, namespace, "server-0", dryRun=["All"])).status == 201
    await _is_there(api, namespace, "server-0")
    assert (await _evict(api, namespace, "server-0")).status == 201
    _blocked_by_budget(await _evict(api, namespace, "server-1", dryRun=["All"]))


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_serves_nobody_passes_every_budget(api: Api, namespace: str, nodes, phase: str) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    (await api.post(PODS.format(namespace), pod("idle", labels=LABELS))).ok()
    if phase != "Pending":
        await report(api, namespace, "idle", phase=phase)
    await _protected(api, namespace, allowed=0, minAvailable=1)

    _blocked_by_budget(await _evict(api, namespace, "server-0"))
    assert (await _evict(api, namespace, "idle")).status == 201


async def test_a_pod_that_is_going_may_be_evicted_again_without_taking_budget(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 3)
    await _protected(api, namespace, allowed=2, minAvailable=1)
    for _ in range(2):
        assert (await _evict(api, namespace, "server-0")).status == 201
    assert (await _evict(api, namespace, "server-1")).status == 201


async def test_an_unready_pod_is_held_back_only_while_its_budget_is_short(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 2)
    await report(api, namespace, "server-0", conditions=[{"type": "Ready", "status": "False"}])
    await _protected(api, namespace, allowed=0, healthy=1, minAvailable=2)
    _blocked_by_budget(await _evict(api, namespace, "server-0"))

    (await api.patch(f"{BUDGETS.format(namespace)}/keep", {"spec": {"minAvailable": 1}})).ok()
    reached = lambda reply: reply.status == 201  # noqa: E731
    await eventually(lambda: _evict(api, namespace, "server-0"), reached, "the unready pod may go")
    await _is_there(api, namespace, "server-1")


async def test_an_unready_pod_always_goes_where_its_budget_says_so(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 2)
    await report(api, namespace, "server-0", conditions=[{"type": "Ready", "status": "False"}])
    await _protected(api, namespace, allowed=0, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await _evict(api, namespace, "server-0")).status == 201


async def test_two_budgets_over_one_pod_are_an_error(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    for name in ("keep", "keep-too"):
        (await api.post(BUDGETS.format(namespace), budget(name, LABELS, maxUnavailable=1))).ok()
    status = (await _evict(api, namespace, "server-0")).refused(500)

    assert "more than one PodDisruptionBudget" in status["message"]
    await _is_there(api, namespace, "server-0")


async def test_a_budget_with_an_empty_selector_covers_the_namespace(api: Api, namespace: str, nodes) -> None:
    await _servers(api, namespace, await nodes.add(), 1)
    body = budget("keep", {}, minAvailable=1)
    body["spec"]["selector"] = {}
    (await api.post(BUDGETS.format(namespace), body)).ok()
    await api.eventually(
        f"{BUDGETS.format(namespace)}/keep",
        lambda seen: seen.get("status", {}).get("currentHealthy") == 1,
        "the budget counts the pod",
    )
    _blocked_by_budget(await _evict(api, namespace, "server-0"))
