"""Taints of nodes and tolerations of pods: lists that are replaced whole, and so need a guard."""

from __future__ import annotations

import asyncio

from tests.contract.kubernetes.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, Object, Reply
from tests.contract.kubernetes.objects import NODES, PODS, bind, make_ready, node, nowhere, pod

SWITCH = {"key": "overspill.dev/closed", "effect": "NoSchedule"}
BASE = {"key": "overspill.dev/virtual", "value": "yes", "effect": "NoSchedule"}


def _keys(seen: Object) -> list[str]:
    return [taint["key"] for taint in seen["spec"].get("taints", [])]


async def _guarded(api: Api, name: str, old: list[Object] | None, new: list[Object]) -> Reply:
    """Replace the taints if they are still what was read."""
    patch = [
        {"op": "test", "path": "/spec/taints", "value": old},
        {"op": "add", "path": "/spec/taints", "value": new},
    ]
    return await api.patch(f"{NODES}/{name}", patch, JSON_PATCH)


async def test_taints_are_replaced_only_if_they_are_what_was_read(api: Api, nodes) -> None:
    name = await nodes.add(taints=[BASE])
    (await _guarded(api, name, [BASE], [BASE, SWITCH])).ok()
    (await _guarded(api, name, [BASE], [])).refused(422, "Invalid")
    assert _keys((await api.get(f"{NODES}/{name}")).ok()) == [BASE["key"], SWITCH["key"]]


async def test_the_first_taint_is_added_if_there_is_still_none(api: Api, nodes) -> None:
    name = await nodes.add()
    assert "taints" not in (await api.get(f"{NODES}/{name}")).ok()["spec"]
    (await _guarded(api, name, None, [SWITCH])).ok()
    (await _guarded(api, name, None, [BASE])).refused(422, "Invalid")
    assert _keys((await api.get(f"{NODES}/{name}")).ok()) == [SWITCH["key"]]


async def test_of_two_owners_of_taints_one_must_read_again(api: Api, nodes) -> None:
    name = await nodes.add(taints=[BASE])
    mine, theirs = [BASE, SWITCH], [BASE, {"key": "example.com/theirs", "effect": "NoSchedule"}]
    replies = await asyncio.gather(_guarded(api, name, [BASE], mine), _guarded(api, name, [BASE], theirs))
    assert sorted(reply.status for reply in replies) == [200, 422]


async def test_a_guard_on_the_uid_keeps_a_node_of_the_same_name_safe(api: Api, nodes) -> None:
    name = await nodes.add()
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": "11111111-1111-1111-1111-111111111111"},
        {"op": "add", "path": "/spec/taints", "value": [SWITCH]},
    ]
    (await api.patch(f"{NODES}/{name}", patch, JSON_PATCH)).refused(422, "Invalid")


async def test_both_merging_patches_replace_all_taints(api: Api, nodes) -> None:
    name = await nodes.add(taints=[BASE])
    for kind in (MERGE_PATCH, STRATEGIC_PATCH):
        (await api.patch(f"{NODES}/{name}", {"spec": {"taints": [BASE]}}, kind)).ok()
        seen = (await api.patch(f"{NODES}/{name}", {"spec": {"taints": [SWITCH]}}, kind)).ok()
        assert _keys(seen) == [SWITCH["key"]]


async def test_a_taint_cannot_be_there_twice(api: Api, nodes) -> None:
    name = await nodes.add()
    (await api.patch(f"{NODES}/{name}", {"spec": {"taints": [SWITCH, SWITCH]}})).refused(422, "Invalid")
    wrong = {"key": "overspill.dev/closed", "effect": "Never"}
    (await api.patch(f"{NODES}/{name}", {"spec": {"taints": [wrong]}})).refused(422, "Invalid")


async def test_a_new_node_is_tainted_until_it_is_ready(api: Api, nodes) -> None:
    name = "late-" + nodes.label["contract.test/pool"]
    nodes.names.append(name)
    made = (await api.post(NODES, node(name, taints=[BASE]))).ok()
    assert set(_keys(made)) == {BASE["key"], "node.kubernetes.io/not-ready"}
    assert _keys(await make_ready(api, name)) == [BASE["key"]]


async def test_a_node_that_is_no_longer_ready_is_tainted_again(api: Api, nodes) -> None:
    name = await nodes.add()
    conditions = [{"type": "Ready", "status": "False"}]
    (await api.patch(f"{NODES}/{name}/status", {"status": {"conditions": conditions}}, STRATEGIC_PATCH)).ok()
    seen = await api.eventually(f"{NODES}/{name}", _keys, "the node is tainted not-ready")
    assert set(_keys(seen)) == {"node.kubernetes.io/not-ready"}


async def test_an_unschedulable_node_is_tainted(api: Api, nodes) -> None:
    name = await nodes.add()
    (await api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})).ok()
    await api.eventually(
        f"{NODES}/{name}", lambda seen: _keys(seen) == ["node.kubernetes.io/unschedulable"], "the node is tainted"
    )


async def _tolerating(api: Api, namespace: str) -> tuple[str, list[Object]]:
    (await api.post(PODS.format(namespace), pod("tolerant"))).ok()
    await bind(api, namespace, "tolerant", nowhere())
    path = f"{PODS.format(namespace)}/tolerant"
    return path, (await api.get(path)).ok()["spec"]["tolerations"]


async def test_the_time_of_a_toleration_may_change_on_a_bound_pod(api: Api, namespace: str) -> None:
    path, tolerations = await _tolerating(api, namespace)
    longer = [{**each, "tolerationSeconds": 3600} for each in tolerations]
    seen = (await api.patch(path, {"spec": {"tolerations": longer}}, MERGE_PATCH)).ok()
    assert {each["tolerationSeconds"] for each in seen["spec"]["tolerations"]} == {3600}


async def test_a_toleration_may_be_added_to_a_bound_pod(api: Api, namespace: str) -> None:
    path, tolerations = await _tolerating(api, namespace)
    more = {"key": "overspill.dev/virtual", "operator": "Exists"}
    seen = (await api.patch(path, {"spec": {"tolerations": [*tolerations, more]}}, MERGE_PATCH)).ok()
    assert more in seen["spec"]["tolerations"]
    (await api.patch(path, [{"op": "add", "path": "/spec/tolerations/-", "value": more}], JSON_PATCH)).ok()


async def test_a_toleration_can_neither_be_removed_nor_changed(api: Api, namespace: str) -> None:
    mine = {"key": "overspill.dev/virtual", "operator": "Exists", "effect": "NoSchedule"}
    (await api.post(PODS.format(namespace), pod("tolerant", tolerations=[mine]))).ok()
    await bind(api, namespace, "tolerant", nowhere())
    path = f"{PODS.format(namespace)}/tolerant"
    tolerations = (await api.get(path)).ok()["spec"]["tolerations"]
    others = [each for each in tolerations if each != mine]

    for wrong in (others, [*others, {**mine, "effect": "NoExecute"}], [*others, {**mine, "key": "another"}]):
        status = (await api.patch(path, {"spec": {"tolerations": wrong}}, MERGE_PATCH)).refused(422, "Invalid")
        assert status["details"]["causes"]
    assert (await api.get(path)).ok()["spec"]["tolerations"] == tolerations
