"""Devices through DRA: who has them, and what is said when that cannot be known."""

import pytest

from overspill_kube.client import connect
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.settings import KubeSettings
from overspill_sampler.devices import Devices, find_devices
from tests.support.house import GPU
from tests.support.lab_apiserver import lab_apiserver
from tests.support.scripted_api import reply, scripted_api, status

GROUP = reply({"kind": "APIGroup", "name": "resource.k8s.io", "versions": [{"version": "v1"}, {"version": "v1beta1"}]})


def slices(*specs):
    items = [{"metadata": {"name": f"s{n}"}, "spec": spec} for n, spec in enumerate(specs)]
    return reply({"kind": "ResourceSliceList", "metadata": {"resourceVersion": "1"}, "items": items})


async def found(tmp_path, *answers):
    async with scripted_api() as api:
        api.others.extend(answers)
        kubeconfig = str(api.write_kubeconfig(tmp_path))
        async with connect(KubeSettings(kubeconfig=kubeconfig)) as client:
            return await find_devices(client, resource=GPU)


async def test_only_the_vendors_slices_count(tmp_path):
    answer = slices(
        {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}},
        {"driver": "dra.net", "nodeName": "n2"},
        {"driver": "gpu.notnvidia.com", "nodeName": "n3"},
    )
    assert await found(tmp_path, GROUP, answer) == Devices(nodes=frozenset({"n1"}), shared=False)


async def test_devices_of_no_single_node_are_told(tmp_path):
    assert (await found(tmp_path, GROUP, slices({"driver": "gpu.nvidia.com", "allNodes": True}))).shared


async def test_a_cluster_without_dra_has_none(tmp_path):
    async with lab_apiserver(tmp_path) as kubeconfig, connect(KubeSettings(kubeconfig=str(kubeconfig))) as client:
        assert await find_devices(client, resource=GPU) == Devices()


async def test_not_being_allowed_to_look_is_not_having_none(tmp_path):
    with pytest.raises(KubeError, match="403"):
        await found(tmp_path, GROUP, reply(status(403, "Forbidden", "no"), code=403))


async def test_a_server_in_trouble_is_not_having_none(tmp_path):
    with pytest.raises(KubeUnavailable):
        await found(tmp_path, reply(status(503, "ServiceUnavailable", "later"), code=503))
