"""Scheduling gates: put on at creation, taken off one by one, never put back."""

from __future__ import annotations

from tests.contract.kubernetes.client import JSON_PATCH, MERGE_PATCH, Api
from tests.contract.kubernetes.objects import PODS, pod

OURS, THEIRS = {"name": "overspill.dev/queue"}, {"name": "example.com/theirs"}


async def _gated(api: Api, namespace: str, *gates: dict[str, str], **spec: object) -> str:
    (await api.post(PODS.format(namespace), pod("gated", schedulingGates=list(gates), **spec))).ok()
    return f"{PODS.format(namespace)}/gated"


async def test_a_gated_pod_says_so(api: Api, namespace: str) -> None:
    seen = (await api.get(await _gated(api, namespace, OURS))).ok()
    assert seen["status"]["phase"] == "Pending"
    (condition,) = seen["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


async def test_gates_come_off_one_by_one(api: Api, namespace: str) -> None:
    path = await _gated(api, namespace, OURS, THEIRS)
    guarded = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": OURS["name"]},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    assert (await api.patch(path, guarded, JSON_PATCH)).ok()["spec"]["schedulingGates"] == [THEIRS]
    (await api.patch(path, guarded, JSON_PATCH)).refused(422, "Invalid")
    seen = (await api.patch(path, {"spec": {"schedulingGates": []}}, MERGE_PATCH)).ok()
    assert not seen["spec"].get("schedulingGates")


async def test_no_gate_is_added_later(api: Api, namespace: str) -> None:
    path = await _gated(api, namespace, THEIRS)
    more = {"spec": {"schedulingGates": [THEIRS, OURS]}}
    status = (await api.patch(path, more, MERGE_PATCH)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.schedulingGates[1].name"

    (await api.patch(path, {"spec": {"schedulingGates": []}}, MERGE_PATCH)).ok()
    (await api.patch(path, {"spec": {"schedulingGates": [OURS]}}, MERGE_PATCH)).refused(422, "Invalid")


async def test_a_gated_pod_cannot_be_made_on_a_node(api: Api, namespace: str) -> None:
    body = pod("placed", schedulingGates=[OURS], nodeName="node-a")
    (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")


async def test_a_gated_pod_may_be_narrowed_to_some_nodes(api: Api, namespace: str) -> None:
    path = await _gated(api, namespace, OURS, nodeSelector={"pool": "home"})
    (await api.patch(path, {"spec": {"nodeSelector": {"zone": "a"}}}, MERGE_PATCH)).ok()
    (await api.patch(path, {"spec": {"nodeSelector": {"pool": "virtual"}}}, MERGE_PATCH)).refused(422, "Invalid")
    (await api.patch(path, {"spec": {"schedulingGates": []}}, MERGE_PATCH)).ok()
    (await api.patch(path, {"spec": {"nodeSelector": {"rack": "7"}}}, MERGE_PATCH)).refused(422, "Invalid")


async def test_an_ungated_pod_keeps_its_place_free_of_conditions(api: Api, namespace: str) -> None:
    path = await _gated(api, namespace)
    assert "schedulingGates" not in (await api.get(path)).ok()["spec"]
    assert not (await api.get(path)).ok()["status"].get("conditions")
