"""Resource quotas: what a namespace may hold at once, which a returning pod's successor must fit into."""

from __future__ import annotations

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import PODS, REPLICA_SETS, bind, nowhere, pod, replica_set, report

GPUS = "requests.nvidia.com/gpu"


async def _limited(api: Api, namespace: str, **hard: str) -> str:
    """A quota of GPUs or CPUs that its controller has counted and admission goes by; its path."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    amounts = {key.replace("gpus", GPUS).replace("cpu", "requests.cpu"): value for key, value in hard.items()}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": {"hard": amounts}}
    (await api.post(path, body)).ok()
    await _used(api, f"{path}/limit", dict.fromkeys(amounts, "0"))
    # Admission has a copy of its own. While that is older it lets everybody in, or nobody: "status unknown for quota".
    far_too_much = pod("too-much", gpus=1000, cpu="1000")
    await eventually(
        lambda: api.post(PODS.format(namespace), far_too_much, dryRun="All"),
        lambda reply: reply.status == 403 and "exceeded quota" in reply.body["message"],
        "admission goes by the quota",
    )
    return f"{path}/limit"


async def _used(api: Api, path: str, amounts: dict[str, str]) -> Object:
    return await api.eventually(
        path, lambda seen: seen.get("status", {}).get("used") == amounts, f"the quota has {amounts} in use"
    )


async def _refused(api: Api, namespace: str, body: Object) -> str:
    """Why the pod is refused. Asked again while it is not: the quota's controller counts on its own time, and may for a
    moment put an older count in place of a newer one. A dry run takes nothing.
    """
    reply = await eventually(
        lambda: api.post(PODS.format(namespace), body, dryRun="All"), lambda each: each.status != 201, "it is refused"
    )
    return reply.refused(403, "Forbidden")["message"]


async def test_a_quota_tells_what_is_used(api: Api, namespace: str) -> None:
    path = await _limited(api, namespace, gpus="4", pods="10")
    (await api.post(PODS.format(namespace), pod("one", gpus=3))).ok()
    seen = await _used(api, path, {GPUS: "3", "pods": "1"})
    assert seen["status"]["hard"] == {GPUS: "4", "pods": "10"}


async def test_what_goes_beyond_the_quota_is_refused_with_the_numbers(api: Api, namespace: str) -> None:
    path = await _limited(api, namespace, gpus="4")
    (await api.post(PODS.format(namespace), pod("one", gpus=3))).ok()
    await _used(api, path, {GPUS: "3"})
    message = await _refused(api, namespace, pod("two", gpus=2))
    assert f"exceeded quota: limit, requested: {GPUS}=2, used: {GPUS}=3, limited: {GPUS}=4" in message

    (await api.post(PODS.format(namespace), pod("fits", gpus=1))).ok()
    await _used(api, path, {GPUS: "4"})


async def test_a_finished_or_deleted_pod_gives_its_share_back(api: Api, namespace: str) -> None:
    path = await _limited(api, namespace, gpus="4")
    for name in ("done", "deleted"):
        (await api.post(PODS.format(namespace), pod(name, gpus=2))).ok()
    await _used(api, path, {GPUS: "4"})
    await report(api, namespace, "done", phase="Succeeded")
    await _used(api, path, {GPUS: "2"})
    (await api.delete(f"{PODS.format(namespace)}/deleted")).ok()
    await _used(api, path, {GPUS: "0"})


async def test_a_pod_that_is_going_holds_its_share_until_it_is_gone(api: Api, namespace: str) -> None:
    await _limited(api, namespace, gpus="2")
    (await api.post(PODS.format(namespace), pod("going", gpus=2))).ok()
    await bind(api, namespace, "going", nowhere())
    path = f"{PODS.format(namespace)}/going"
    (await api.delete(path)).ok()
    await _refused(api, namespace, pod("next", gpus=2))

    (await api.delete(path, gracePeriodSeconds="0")).ok()
    await eventually(
        lambda: api.post(PODS.format(namespace), pod("next", gpus=2)),
        lambda reply: reply.status == 201,
        "the share is free again",
    )


async def test_a_pod_must_say_what_it_takes_of_a_limited_resource(api: Api, namespace: str) -> None:
    await _limited(api, namespace, cpu="1")
    body = pod("silent")
    del body["spec"]["containers"][0]["resources"]
    assert "must specify requests.cpu" in await _refused(api, namespace, body)


async def test_a_replica_set_waits_for_its_quota(api: Api, namespace: str) -> None:
    await _limited(api, namespace, pods="1", gpus="1")
    (await api.post(REPLICA_SETS.format(namespace), replica_set("web", 2))).ok()
    seen = await api.eventually(
        f"{REPLICA_SETS.format(namespace)}/web",
        lambda each: [c for c in each["status"].get("conditions", []) if c["type"] == "ReplicaFailure"],
        "it says that it may not make its pods",
    )
    (condition,) = seen["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota" in condition["message"]
    assert seen["status"]["replicas"] <= 1
