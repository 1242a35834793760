"""What kubectl needs: discovery, tables, a kubeconfig; and the process as a whole."""

import asyncio
import sys

import aiohttp
import pytest
import yaml

from tests.component.lab_apiserver.conftest import PODS, TOKEN

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def test_discovery_lists_every_kind_with_its_names(api):
    groups = {group["name"] for group in (await api.ok("GET", "/apis"))["groups"]}
    assert groups == {
        "apps", "batch", "policy", "coordination.k8s.io", "scheduling.k8s.io", "kueue.x-k8s.io",
    }  # fmt: skip
    core = {resource["name"]: resource for resource in (await api.ok("GET", "/api/v1"))["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods/eviction"]["group"] == "policy"
    assert core["nodes"]["namespaced"] is False
    both = [(await api.ok("GET", f"/apis/kueue.x-k8s.io/{version}"))["resources"] for version in ("v1beta1", "v1beta2")]
    assert both[0] == both[1]
    assert (await api.ok("GET", "/version"))["gitVersion"].startswith("v1.37")


async def test_create_is_told_that_fields_are_not_checked(api):
    """kubectl asks OpenAPI whether the server validates; what the lab leaves out it says in a Warning."""
    index = (await api.ok("GET", "/openapi/v3"))["paths"]
    document = await api.ok("GET", index["api/v1"]["serverRelativeURL"])
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    body = {"metadata": {"name": "c"}}
    url = f"{api.url}/api/v1/namespaces/default/configmaps"
    async with api.session.post(url, json=body, params={"fieldValidation": "Strict"}) as answer:
        assert "unknown fields" in answer.headers["Warning"]


@pytest.mark.parametrize(
    ("path", "columns", "cells"),
    [
        (PODS, ["Name", "Ready", "Status", "Restarts"], ["p", "0/1", "Pending", "0"]),
        ("/api/v1/nodes", ["Name", "Status", "Roles"], ["n", "NotReady,SchedulingDisabled", "<none>"]),
        ("/api/v1/namespaces", ["Name", "Status"], ["default", "Active"]),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", ["Name", "Value"], ["system-cluster-critical", 2_000_000_000]),
        ("/api/v1/namespaces/default/configmaps", ["Name", "Age"], ["c"]),
    ],
)
async def test_tables(api, path, columns, cells):
    await api.pod()
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": status}
    await api.ok("POST", "/api/v1/nodes", node)
    await api.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    async with api.session.get(api.url + path, headers=TABLE) as answer:
        table = await answer.json()
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]][: len(columns)] == columns
    assert table["rows"][0]["cells"][: len(cells)] == cells
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_what_is_not_json_cannot_be_had(api):
    async with api.session.get(api.url + PODS, headers={"Accept": "application/vnd.kubernetes.protobuf"}) as answer:
        assert answer.status == 406


async def test_token_in_the_path_serves_clients_that_send_none(api, url):
    """client-go keeps tokens off plain HTTP; a wrong header is refused all the same."""
    path = f"{url}/as/{TOKEN}{PODS}"
    async with aiohttp.ClientSession() as anonymous:
        async with anonymous.get(path) as answer:
            assert answer.status == 200
        async with anonymous.get(path, headers={"Authorization": "Bearer wrong"}) as answer:
            assert answer.status == 401
        async with anonymous.get(f"{url}/as/wrong{PODS}") as answer:
            assert answer.status == 401


async def test_process_announces_itself_serves_and_stops(tmp_path):
    """The kubeconfig is there before the line on stdout, readable by its owner alone; SIGTERM ends open watches."""
    file = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "overspill_lab.apiserver", "--kubeconfig-out", str(file), stdout=asyncio.subprocess.PIPE
    )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        config = yaml.safe_load(file.read_text())
        assert file.stat().st_mode & 0o077 == 0
        server = config["clusters"][0]["cluster"]["server"]
        assert yaml.safe_load(line)["url"] in server
        token = config["users"][0]["user"]["token"]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            async with session.get(f"{server}/api/v1/namespaces/kube-system") as answer:
                assert len((await answer.json())["metadata"]["uid"]) == 36
            async with session.get(f"{server}/api/v1/pods", params={"watch": "true"}) as answer:
                process.terminate()
                assert await asyncio.wait_for(answer.content.readline(), 20) == b""
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
