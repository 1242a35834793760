"""The status subresource keeps what is wanted and what is seen apart."""

from __future__ import annotations

from tests.contract.kubernetes.client import STRATEGIC_PATCH, Api
from tests.contract.kubernetes.objects import JOBS, NODES, PODS, READY, job, node, pod, report, unique


async def test_status_sent_at_creation_is_dropped(api: Api, namespace: str) -> None:
    body = {**pod("eager"), "status": {"phase": "Running"}}
    assert (await api.post(PODS.format(namespace), body)).ok()["status"]["phase"] == "Pending"


async def test_the_main_resource_does_not_touch_status(api: Api, namespace: str) -> None:
    path = f"{PODS.format(namespace)}/main"
    (await api.post(PODS.format(namespace), pod("main"))).ok()
    seen = await report(api, namespace, "main", phase="Running")

    patched = (await api.patch(path, {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}})).ok()
    assert patched["status"]["phase"] == "Running"
    assert patched["metadata"]["labels"] == {"a": "b"}
    seen = (await api.get(path)).ok()
    seen["status"]["phase"] = "Failed"
    assert (await api.put(path, seen)).ok()["status"]["phase"] == "Running"


async def test_status_does_not_touch_the_spec(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/apart"
    (await api.post(JOBS.format(namespace), job("apart", suspend=True))).ok()
    both = {"spec": {"backoffLimit": 1}, "status": {"conditions": [{"type": "overspill.dev/Mine", "status": "True"}]}}
    seen = (await api.patch(f"{path}/status", both, STRATEGIC_PATCH)).ok()

    assert seen["spec"]["backoffLimit"] == 6
    assert "overspill.dev/Mine" in {condition["type"] for condition in seen["status"]["conditions"]}
    assert seen["metadata"]["generation"] == 1


async def test_replacing_a_status_leaves_the_spec(api: Api) -> None:
    name = unique("status")
    made = (await api.post(NODES, node(name))).ok()
    try:
        made["spec"]["unschedulable"] = True
        made["status"] = {"conditions": [READY], "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
        made["metadata"].pop("resourceVersion")
        seen = (await api.put(f"{NODES}/{name}/status", made)).ok()

        assert "unschedulable" not in seen["spec"]
        assert seen["status"]["capacity"] == {"cpu": "4"}
    finally:
        (await api.delete(f"{NODES}/{name}")).ok()


async def test_a_stale_status_is_a_conflict(api: Api, namespace: str) -> None:
    made = (await api.post(PODS.format(namespace), pod("stale"))).ok()
    path = f"{PODS.format(namespace)}/stale"
    (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok()

    made["status"]["phase"] = "Running"
    (await api.put(f"{path}/status", made)).refused(409, "Conflict")
    guard = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": {"phase": "Running"}}
    (await api.patch(f"{path}/status", guard, STRATEGIC_PATCH)).refused(409, "Conflict")


async def test_a_status_meant_for_another_uid_is_refused(api: Api, namespace: str) -> None:
    made = (await api.post(PODS.format(namespace), pod("successor"))).ok()
    path = f"{PODS.format(namespace)}/successor/status"
    other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "status": {"phase": "Running"}}
    (await api.patch(path, other, STRATEGIC_PATCH)).refused(422, "Invalid")
    assert (await api.get(path)).ok()["status"]["phase"] == "Pending"
    (await api.patch(path, {**other, "metadata": {"uid": made["metadata"]["uid"]}}, STRATEGIC_PATCH)).ok()


async def test_a_status_can_be_read_alone(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("read"))).ok()
    seen = (await api.get(f"{PODS.format(namespace)}/read/status")).ok()
    assert (seen["kind"], seen["status"]["phase"]) == ("Pod", "Pending")


async def test_a_status_of_nothing_is_not_found(api: Api, namespace: str) -> None:
    path = f"{PODS.format(namespace)}/nobody/status"
    (await api.patch(path, {"status": {"phase": "Running"}})).refused(404, "NotFound")
