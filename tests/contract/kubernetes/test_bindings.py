"""The binding subresource: a pod is assigned once, by whoever is first, and not before its gates are gone."""

from __future__ import annotations

import asyncio

from tests.contract.kubernetes.client import Api, Object
from tests.contract.kubernetes.objects import PODS, bind, nowhere, pod


def _binding(name: str, node: str, **metadata: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def test_a_binding_sets_the_node_and_the_condition(api: Api, namespace: str) -> None:
    path, node = f"{PODS.format(namespace)}/bound", nowhere()
    (await api.post(PODS.format(namespace), pod("bound"))).ok()
    reply = await api.post(f"{path}/binding", _binding("bound", node))

    assert reply.status == 201
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    seen = (await api.get(path)).ok()
    assert seen["spec"]["nodeName"] == node
    assert seen["status"]["phase"] == "Pending"
    scheduled = {condition["type"]: condition["status"] for condition in seen["status"]["conditions"]}
    assert scheduled == {"PodScheduled": "True"}


async def test_a_bound_pod_cannot_be_bound_again(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("twice"))).ok()
    path, first = f"{PODS.format(namespace)}/twice/binding", nowhere()
    (await api.post(path, _binding("twice", first))).ok()

    for node in (first, nowhere()):
        status = (await api.post(path, _binding("twice", node))).refused(409, "Conflict")
        assert f'is already assigned to node "{first}"' in status["message"]


async def test_of_two_schedulers_one_binds(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("raced"))).ok()
    path = f"{PODS.format(namespace)}/raced/binding"
    replies = await asyncio.gather(*(api.post(path, _binding("raced", f"node-{number}")) for number in range(4)))
    assert sorted(reply.status for reply in replies) == [201, 409, 409, 409]


async def test_a_gated_pod_cannot_be_bound(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("gated", schedulingGates=[{"name": "overspill.dev/q"}]))).ok()
    path = f"{PODS.format(namespace)}/gated"
    status = (await api.post(f"{path}/binding", _binding("gated", "node-a"))).refused(409, "Conflict")

    assert "schedulingGates" in status["message"]
    assert "nodeName" not in (await api.get(path)).ok()["spec"]


async def test_a_pod_that_is_going_cannot_be_bound(api: Api, namespace: str) -> None:
    body = pod("going")
    body["metadata"]["finalizers"] = ["overspill.dev/hold"]
    (await api.post(PODS.format(namespace), body)).ok()
    path = f"{PODS.format(namespace)}/going"
    await api.delete(path)
    (await api.post(f"{path}/binding", _binding("going", "node-a"))).refused(409, "Conflict")


async def test_a_binding_may_name_the_pod_it_means_by_uid(api: Api, namespace: str) -> None:
    made = (await api.post(PODS.format(namespace), pod("meant"))).ok()
    path = f"{PODS.format(namespace)}/meant/binding"
    (await api.post(path, _binding("meant", "n", uid="11111111-1111-1111-1111-111111111111"))).refused(409, "Conflict")
    (await api.post(path, _binding("meant", "n", uid=made["metadata"]["uid"]))).ok()


async def test_a_binding_without_a_node_is_refused(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("lost"))).ok()
    path = f"{PODS.format(namespace)}/lost/binding"
    (await api.post(path, _binding("lost", ""))).not_taken()
    (await api.post(path, {**_binding("lost", "a"), "target": {"kind": "Pod", "name": "a"}})).not_taken()
    assert "nodeName" not in (await api.get(f"{PODS.format(namespace)}/lost")).ok()["spec"]


async def test_a_binding_of_nothing_is_not_found(api: Api, namespace: str) -> None:
    path = f"{PODS.format(namespace)}/nobody/binding"
    (await api.post(path, _binding("nobody", "node-a"))).refused(404, "NotFound")


async def test_binding_does_not_need_the_node_to_exist(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("trusting"))).ok()
    await bind(api, namespace, "trusting", "no-such-node")
