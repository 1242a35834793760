"""Manifests that are lists, as exports and generators write them: kubectl takes them apart, on both servers alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.test_kubectl import Kubectl, _kubeconfig, _web
from tests.contract.kubernetes.client import Endpoint, Object
from tests.contract.kubernetes.conftest import api, endpoint, namespace

__all__ = ["api", "endpoint", "namespace"]
pytestmark = pytest.mark.cluster


@pytest.fixture
def kubectl(endpoint: Endpoint, namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl in the test's own namespace."""
    (tmp_path / "kubeconfig").write_text(json.dumps(_kubeconfig(endpoint)))
    return Kubectl(folder=tmp_path, namespace=namespace)


def _list(*items: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


WEB = json.loads(_web(replicas=0, tier="a"))  # of another group than the ConfigMaps


async def test_apply_makes_and_changes_each_item_of_a_list(kubectl: Kubectl) -> None:
    made = (await kubectl("apply", "-f", "-", stdin=_list(_config_map("one", a="1"), WEB))).ok()
    assert made.splitlines() == ["configmap/one created", "deployment.apps/web created"]
    again = (await kubectl("apply", "-f", "-", stdin=_list(_config_map("one", a="2"), WEB))).ok()
    assert again.splitlines() == ["configmap/one configured", "deployment.apps/web unchanged"]
    assert (await kubectl.json("get", "configmap", "one"))["data"] == {"a": "2"}
    assert (await kubectl("diff", "-f", "-", stdin=_list(_config_map("one", a="2"), WEB))).ok() == ""


async def test_what_get_prints_of_several_objects_can_be_applied_and_deleted(kubectl: Kubectl) -> None:
    (await kubectl("create", "-f", "-", stdin=_list(_config_map("one"), _config_map("two")))).ok()
    printed = (await kubectl("get", "configmap/one", "configmap/two", "-o", "json")).ok()
    assert json.loads(printed)["kind"] == "List"
    (await kubectl("delete", "-f", "-", stdin=printed)).ok()
    for item in json.loads(printed)["items"]:
        assert "not found" in (await kubectl("get", "configmap", item["metadata"]["name"])).failed()
    assert (await kubectl("apply", "-f", "-", stdin=printed)).ok().count(" created") == 2


async def test_an_item_without_a_kind_is_refused_and_nothing_is_made(kubectl: Kubectl) -> None:
    refused = await kubectl("apply", "-f", "-", stdin=_list(_config_map("one"), {"apiVersion": "v1"}))
    assert "kind not set" in refused.failed()
    assert "not found" in (await kubectl("get", "configmap", "one")).failed()
