"""What plain kubectl asks for: discovery, tables, and the events of an object."""

from __future__ import annotations

import pytest

from tests.contract.kubernetes.client import Api, Object
from tests.contract.kubernetes.objects import DEPLOYMENTS, JOBS, NODES, PODS, deployment, job, pod, report, unique

AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def _table(api: Api, path: str, **params: str) -> Object:
    table = (await api.send("GET", path, params=params, accept=AS_TABLE)).ok()
    assert (table["apiVersion"], table["kind"]) == ("meta.k8s.io/v1", "Table")
    return table


def _cells(table: Object, row: int = 0) -> Object:
    """One row of a table, by column."""
    return dict(zip((each["name"] for each in table["columnDefinitions"]), table["rows"][row]["cells"], strict=True))


async def test_the_server_tells_its_version(api: Api) -> None:
    version = (await api.get("/version")).ok()
    assert version["major"] == "1"
    assert version["gitVersion"].startswith("v1.")


async def test_the_core_group_is_discovered(api: Api) -> None:
    assert "v1" in (await api.get("/api")).ok()["versions"]
    listed = (await api.get("/api/v1")).ok()
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")
    resources = {each["name"]: each for each in listed["resources"]}
    assert (resources["pods"]["kind"], resources["pods"]["namespaced"]) == ("Pod", True)
    assert "po" in resources["pods"]["shortNames"]
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(resources["pods"]["verbs"])
    assert resources["nodes"]["namespaced"] is False
    assert {"pods/status", "pods/binding", "pods/eviction", "nodes/status"} <= set(resources)
    assert (resources["pods/eviction"]["kind"], resources["pods/eviction"]["group"]) == ("Eviction", "policy")


async def test_the_other_groups_are_discovered(api: Api) -> None:
    groups = {each["name"]: each for each in (await api.get("/apis")).ok()["groups"]}
    for group, plural in (
        ("apps", "deployments"),
        ("batch", "jobs"),
        ("policy", "poddisruptionbudgets"),
        ("coordination.k8s.io", "leases"),
        ("scheduling.k8s.io", "priorityclasses"),
    ):
        preferred = groups[group]["preferredVersion"]["groupVersion"]
        listed = (await api.get(f"/apis/{preferred}")).ok()
        assert plural in {each["name"] for each in listed["resources"]}


async def test_pods_come_as_a_table(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("shown"))).ok()
    await report(api, namespace, "shown", phase="Running")
    table = await _table(api, PODS.format(namespace))

    cells = _cells(table)
    assert (cells["Name"], cells["Ready"], cells["Status"]) == ("shown", "0/1", "Running")
    assert {"Restarts", "Age", "IP", "Node"} <= set(cells)
    # Names and labels of each row are there for `kubectl get -l` and `--show-labels`.
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["rows"][0]["object"]["metadata"]["name"] == "shown"
    assert int(table["metadata"]["resourceVersion"]) > 1


async def test_a_single_object_comes_as_a_table_of_one_row(api: Api, namespace: str, nodes) -> None:
    name = await nodes.add()
    cells = _cells(await _table(api, f"{NODES}/{name}"))
    assert (cells["Name"], cells["Status"]) == (name, "Ready")

    (await api.post(JOBS.format(namespace), job("shown", suspend=True))).ok()
    cells = _cells(await _table(api, f"{JOBS.format(namespace)}/shown"))
    assert (cells["Name"], cells["Completions"]) == ("shown", "0/1")


async def test_deployments_come_as_a_table(api: Api, namespace: str) -> None:
    (await api.post(DEPLOYMENTS.format(namespace), deployment("shown", 2))).ok()
    cells = _cells(await _table(api, DEPLOYMENTS.format(namespace)))
    assert cells["Name"] == "shown"
    assert cells["Ready"] in ("0/0", "0/2")  # until its controller has seen it


async def test_a_table_can_be_watched(api: Api, namespace: str) -> None:
    path = PODS.format(namespace)
    async with api.watch(path, accept=AS_TABLE) as watch:
        (await api.post(path, pod("shown"))).ok()
        event = await watch.next()
    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][0] == "shown"


async def test_a_refusal_is_a_status_even_where_a_table_was_asked_for(api: Api, namespace: str) -> None:
    (await api.send("GET", f"{PODS.format(namespace)}/nobody", accept=AS_TABLE)).refused(404, "NotFound")


async def test_a_form_that_is_not_served_is_refused(api: Api, namespace: str) -> None:
    reply = await api.send("GET", PODS.format(namespace), accept="application/x-nothing")
    assert reply.status == 406


@pytest.mark.parametrize("field", ["involvedObject.name", "involvedObject.uid", "reason"])
async def test_the_events_of_an_object_are_found(api: Api, namespace: str, field: str) -> None:
    events, uid = f"/api/v1/namespaces/{namespace}/events", unique("uid")
    for name, reason in (("ours", "Spilled"), ("other", "Returned")):
        involved = {"kind": "Pod", "namespace": namespace, "name": name, "uid": f"{uid}-{name}"}
        body = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": involved,
            "reason": reason,
            "message": "why",
            "type": "Normal",
            "source": {"component": "overspill-bridge"},
            "firstTimestamp": "2026-11-30T06:00:00Z",
            "lastTimestamp": "2026-11-30T06:00:00Z",
            "count": 1,
        }
        (await api.post(events, body)).ok()
    wanted = {"involvedObject.name": "ours", "involvedObject.uid": f"{uid}-ours", "reason": "Spilled"}[field]
    listing = (await api.get(events, fieldSelector=f"{field}={wanted}")).ok()
    assert [each["reason"] for each in listing["items"]] == ["Spilled"]


async def test_an_event_must_be_about_something_of_its_namespace(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "lost"}, "involvedObject": {"kind": "Pod", "namespace": "elsewhere", "name": "a"}}
    (await api.post(f"/api/v1/namespaces/{namespace}/events", body)).refused(422, "Invalid")


async def test_a_secret_may_be_written_as_text_and_is_kept_encoded(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "key"}, "stringData": {"token": "abc"}}
    (await api.post(f"/api/v1/namespaces/{namespace}/secrets", body)).ok()
    seen = (await api.get(f"/api/v1/namespaces/{namespace}/secrets/key")).ok()
    assert seen["data"] == {"token": "YWJj"}
    assert "stringData" not in seen
    assert seen["type"] == "Opaque"
