"""Custom resources: Kueue's queues, as a server that was given their definitions serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.kubernetes.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, Object
from tests.contract.kubernetes.objects import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, unique

VERSIONS = ["v1beta1", "v1beta2"]
QUOTA = {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": []}]}


def _queue(name: str, version: str) -> Object:
    body = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "ClusterQueue", "metadata": {"name": name}}
    return {**body, "spec": QUOTA}


def _local(name: str) -> Object:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name}}
    return {**body, "spec": {"clusterQueue": "all"}}


@pytest_asyncio.fixture
async def queue(api: Api) -> AsyncIterator[str]:
    """The path of a ClusterQueue."""
    name = unique("queue")
    path = CLUSTER_QUEUES.format(version="v1beta2")
    (await api.post(path, _queue(name, "v1beta2"))).ok()
    yield f"{path}/{name}"
    await api.delete(f"{path}/{name}")


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_versions_serve_one_object(api: Api, version: str) -> None:
    name = unique("both")
    (await api.post(CLUSTER_QUEUES.format(version=version), _queue(name, version))).ok()
    seen = [(await api.get(f"{CLUSTER_QUEUES.format(version=each)}/{name}")).ok() for each in VERSIONS]
    (await api.delete(f"{CLUSTER_QUEUES.format(version=version)}/{name}")).ok()

    assert [each["apiVersion"] for each in seen] == [f"kueue.x-k8s.io/{each}" for each in VERSIONS]
    assert len({each["metadata"]["uid"] for each in seen}) == 1
    assert [each["spec"] for each in seen] == [QUOTA, QUOTA]


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_version_lists_and_watches_in_its_own_words(api: Api, version: str) -> None:
    name, path = unique("listed"), CLUSTER_QUEUES.format(version=version)
    made = (await api.post(CLUSTER_QUEUES.format(version="v1beta2"), _queue(name, "v1beta2"))).ok()
    try:
        listing = (await api.get(path, fieldSelector=f"metadata.name={name}")).ok()
        assert (listing["apiVersion"], listing["kind"]) == (f"kueue.x-k8s.io/{version}", "ClusterQueueList")
        (item,) = listing["items"]
        assert (item["apiVersion"], item["kind"]) == (f"kueue.x-k8s.io/{version}", "ClusterQueue")
        before = str(int(made["metadata"]["resourceVersion"]) - 1)
        async with api.watch(path, resourceVersion=before) as watch:
            assert (await watch.until("ADDED", name))["apiVersion"] == f"kueue.x-k8s.io/{version}"
    finally:
        (await api.delete(f"{path}/{name}")).ok()


async def test_flavors_are_of_the_cluster_and_local_queues_of_a_namespace(api: Api, namespace: str) -> None:
    path, name = FLAVORS.format(version="v1beta2"), unique("flavor")
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}
    (await api.post(path, {**flavor, "spec": {"nodeLabels": {"pool": "home"}}})).ok()
    assert "namespace" not in (await api.get(f"{path}/{name}")).ok()["metadata"]
    (await api.delete(f"{path}/{name}")).ok()

    (await api.post(LOCAL_QUEUES.format(namespace), _local("team"))).ok()
    listing = (await api.get("/apis/kueue.x-k8s.io/v1beta1/localqueues")).ok()
    assert (namespace, "team") in {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in listing["items"]}


async def test_a_strategic_patch_is_refused(api: Api, queue: str) -> None:
    (await api.patch(queue, {"spec": {"cohort": "a"}}, STRATEGIC_PATCH)).refused(415, "UnsupportedMediaType")


async def test_merge_and_json_patches_are_accepted(api: Api, queue: str) -> None:
    assert (await api.patch(queue, {"spec": {"cohort": "a"}}, MERGE_PATCH)).ok()["spec"] == {**QUOTA, "cohort": "a"}
    patch = [
        {"op": "test", "path": "/spec/cohort", "value": "a"},
        {"op": "replace", "path": "/spec/cohort", "value": "b"},
    ]
    assert (await api.patch(queue, patch, JSON_PATCH)).ok()["spec"]["cohort"] == "b"
    (await api.patch(queue, patch, JSON_PATCH)).refused(422, "Invalid")


async def test_status_is_apart_and_generation_counts_the_spec(api: Api, queue: str) -> None:
    main = (await api.patch(queue, {"status": {"pendingWorkloads": 1}})).ok()
    assert "status" not in main
    seen = (await api.patch(f"{queue}/status", {"spec": {"cohort": "x"}, "status": {"pendingWorkloads": 2}})).ok()
    assert seen["status"] == {"pendingWorkloads": 2}
    assert seen["spec"] == QUOTA
    assert seen["metadata"]["generation"] == 1
    assert (await api.patch(queue, {"spec": {"cohort": "a"}})).ok()["metadata"]["generation"] == 2


async def test_a_stale_replacement_is_a_conflict(api: Api, queue: str) -> None:
    made = (await api.get(queue)).ok()
    (await api.patch(queue, {"spec": {"cohort": "a"}})).ok()
    (await api.put(queue, made)).refused(409, "Conflict")


async def test_a_replacement_needs_a_version(api: Api, queue: str) -> None:
    made = (await api.get(queue)).ok()
    made["metadata"].pop("resourceVersion")
    (await api.put(queue, made)).refused(422, "Invalid")


async def test_an_unknown_version_or_kind_is_not_found(api: Api) -> None:
    for path in (
        "/apis/kueue.x-k8s.io/v9/clusterqueues",
        "/apis/kueue.x-k8s.io/v1beta2/nothings",
        "/apis/no.group/v1/as",
    ):
        assert (await api.get(path)).status == 404


async def test_the_group_is_discovered(api: Api) -> None:
    # A kind is served before it is told of.
    await api.eventually(
        "/apis/kueue.x-k8s.io",
        lambda group: {each["version"] for each in group["versions"]} == set(VERSIONS),
        "the group has both versions",
    )
    listed = await api.eventually(
        "/apis/kueue.x-k8s.io/v1beta2",
        lambda each: {"clusterqueues", "localqueues", "resourceflavors"} <= {one["name"] for one in each["resources"]},
        "the version has all kinds",
    )
    kinds = {each["name"]: (each["kind"], each["namespaced"]) for each in listed["resources"]}
    assert kinds["clusterqueues"] == ("ClusterQueue", False)
    assert kinds["localqueues"] == ("LocalQueue", True)
    assert kinds["resourceflavors"] == ("ResourceFlavor", False)
    assert "clusterqueues/status" in kinds
