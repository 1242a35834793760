"""Nodes of kind get the GPUs that their labels promise, and no other node is touched."""

import asyncio
import os
import sys

import pytest

from overspill_kube.client import PatchKind, connect
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_kube.settings import KubeSettings
from overspill_lab.fake_gpus import LABEL, EquipError, equip
from tests.support.lab_apiserver import lab_apiserver

GPU = "nvidia.com/gpu"


@pytest.fixture
async def kubeconfig(tmp_path):
    async with lab_apiserver(tmp_path) as kubeconfig:
        yield kubeconfig


@pytest.fixture
async def client(kubeconfig):
    async with connect(KubeSettings(kubeconfig=str(kubeconfig))) as client:
        yield client


async def node(client, name, **labels):
    assert isinstance(await client.create(NODES, {"metadata": {"name": name, "labels": labels}}), Done)
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    assert isinstance(await client.patch(NODES, name, body, kind=PatchKind.MERGE, subresource="status"), Done)


async def test_labelled_nodes_get_their_gpus_beside_what_they_have(client):
    await node(client, "worker", **{LABEL: "8"})
    await node(client, "small", **{LABEL: "1"})
    await node(client, "control-plane")
    for _ in range(2):  # again after a kubelet's restart: the same
        assert await equip(client) == {"small": 1, "worker": 8}
        status = (await client.get(NODES, "worker")).status
        assert (status.capacity[GPU], status.allocatable[GPU], status.allocatable["cpu"]) == ("8", "8", "4")
    assert GPU not in (await client.get(NODES, "control-plane")).status.capacity


async def test_a_label_that_is_no_number_is_named_before_anything_is_written(client):
    await node(client, "good", **{LABEL: "8"})
    await node(client, "worker", **{LABEL: "many"})
    with pytest.raises(EquipError, match=f"worker.*{LABEL}.*many"):
        await equip(client)
    assert GPU not in (await client.get(NODES, "good")).status.capacity


async def run(kubeconfig):
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "overspill_lab.fake_gpus",
        env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await child.communicate()
    return child.returncode, out.decode(), error.decode()


async def test_as_a_program_it_says_what_it_did_or_why_not(client, kubeconfig):
    code, _, error = await run(kubeconfig)
    assert (code, error) == (1, f"no node carries the label {LABEL}\n")
    await node(client, "worker", **{LABEL: "8"})
    assert await run(kubeconfig) == (0, f"worker: 8 {GPU}\n", "")
