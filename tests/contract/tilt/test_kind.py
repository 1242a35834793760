"""The kind cluster of ctlptl.yaml and deploy/kind, the GPUs it pretends to have, and the wave that wants more of them."""

from __future__ import annotations

from typing import Any

import yaml

from overspill_events import names
from overspill_lab import fake_gpus
from tests.contract.tilt.evaluation import ROOT, assembled, evaluate

KIND = yaml.safe_load((ROOT / "deploy/kind/cluster.yaml").read_text())
WAVE = ROOT / "deploy/overlays/local/wave"


def gpus(container: dict[str, Any]) -> int:
    return int(container["resources"]["limits"][names.GPU_RESOURCE])


def home() -> int:
    return sum(int(node.get("labels", {}).get(fake_gpus.LABEL, "0")) for node in KIND["nodes"])


def wanted(folder: str, kind: str) -> dict[str, int]:
    """GPUs by workload."""
    found = [one for one in assembled(WAVE / folder) if one["kind"] == kind]
    return {
        one["metadata"]["name"]: one["spec"].get("replicas", 1)
        * sum(gpus(container) for container in one["spec"]["template"]["spec"]["containers"])
        for one in found
    }


def test_ctlptl_makes_the_cluster_that_the_tiltfile_allows() -> None:
    registry, cluster = yaml.safe_load_all((ROOT / "ctlptl.yaml").read_text())
    assert (registry["kind"], cluster["kind"], cluster["product"]) == ("Registry", "Cluster", "kind")
    assert cluster["registry"] == registry["name"]
    assert [cluster["name"]] == evaluate().contexts


def test_ctlptl_and_kind_make_the_same_cluster() -> None:
    _, cluster = yaml.safe_load_all((ROOT / "ctlptl.yaml").read_text())
    same = {key: value for key, value in KIND.items() if key not in {"kind", "apiVersion"}}
    assert cluster["kindV1Alpha4Cluster"] == same
    assert cluster["name"] == f"kind-{KIND['name']}"


def test_no_node_at_home_is_named_like_a_virtual_one() -> None:
    """kind names nodes after the cluster; what begins so is the bridge's to write, says a policy."""
    assert not KIND["name"].startswith("overspill")


def test_gpus_are_at_home_on_workers_alone() -> None:
    assert home() > 0
    assert all(fake_gpus.LABEL not in node.get("labels", {}) for node in KIND["nodes"] if node["role"] != "worker")


def test_the_job_that_gives_gpus_may_do_exactly_what_it_does() -> None:
    role = next(one for one in assembled(ROOT / "deploy/kind/fake-gpus") if one["kind"] == "ClusterRole")
    assert role["rules"] == [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in fake_gpus.RULES
    ]


def test_the_bridge_knows_the_fake_provider_by_its_address_and_token() -> None:
    objects = {one["kind"]: one for one in assembled(ROOT / "deploy/kind/fake-provider")}
    arguments = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    token = next(one.removeprefix("--token=") for one in arguments if one.startswith("--token="))
    service = objects["Service"]
    address = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}?token={token}"
    secret = (ROOT / "deploy/overlays/local/kustomization.yaml").read_text()
    assert f"providers=fake={address}" in secret


def test_uninstalling_does_not_stop_the_provider_before_its_instances_are_gone() -> None:
    deployment = next(one for one in assembled(ROOT / "deploy/kind/fake-provider") if one["kind"] == "Deployment")
    assert deployment["metadata"]["labels"][names.PART_OF_LABEL] != names.PART_OF


def test_the_wave_leaves_inference_too_little_room_at_home_and_gives_it_back() -> None:
    """The story that the buttons tell: research fits, inference beside it does not, and alone it does."""
    research, inference = wanted("research", "Job"), wanted("inference", "Deployment")
    assert sum(research.values()) <= home()
    assert sum(research.values()) + sum(inference.values()) > home()
    assert sum(inference.values()) <= home()


def test_research_waits_in_a_queue_that_has_room_for_it_and_inference_may_overflow() -> None:
    research = assembled(WAVE / "research")
    queues = {one["metadata"]["name"]: one for one in research if one["kind"] == "LocalQueue"}
    cluster_queue = next(one for one in research if one["kind"] == "ClusterQueue")
    for job in (one for one in research if one["kind"] == "Job"):
        queue = queues[job["metadata"]["labels"][names.QUEUE_LABEL]]
        assert queue["metadata"]["namespace"] == job["metadata"]["namespace"]
        assert queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    quota = cluster_queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert quota["name"] == names.GPU_RESOURCE
    assert sum(wanted("research", "Job").values()) <= int(quota["nominalQuota"]) <= home()
    deployment = next(one for one in assembled(WAVE / "inference") if one["kind"] == "Deployment")
    assert deployment["spec"]["template"]["metadata"]["labels"][names.SPILLABLE_LABEL] == "true"
