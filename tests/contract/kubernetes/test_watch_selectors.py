"""Selectors on watches: coming into a selection is an addition, leaving it a deletion."""

from __future__ import annotations

from tests.contract.kubernetes.client import Api
from tests.contract.kubernetes.objects import CONFIG_MAPS, PODS, bind, config_map, pod, report


async def _version(api: Api, path: str) -> str:
    return (await api.get(path)).ok()["metadata"]["resourceVersion"]


async def test_only_what_is_selected_by_label_comes(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    async with api.watch(path, resourceVersion=await _version(api, path), labelSelector="pool=home") as watch:
        (await api.post(path, config_map("other", labels={"pool": "virtual"}))).ok()
        (await api.post(path, config_map("ours", labels={"pool": "home"}))).ok()
        await watch.expect("ADDED", "ours")
        (await api.delete(f"{path}/other")).ok()
        await watch.quiet()


async def test_leaving_a_label_selection_is_a_deletion_and_coming_back_an_addition(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    made = (await api.post(path, config_map("mover", labels={"pool": "home"}))).ok()
    version = made["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=version, labelSelector="pool=home") as watch:
        left = (await api.patch(f"{path}/mover", {"metadata": {"labels": {"pool": "virtual"}}})).ok()
        gone = await watch.expect("DELETED", "mover")
        (await api.patch(f"{path}/mover", {"data": {"a": "1"}})).ok()
        (await api.patch(f"{path}/mover", {"metadata": {"labels": {"pool": "home"}}})).ok()
        back = await watch.expect("ADDED", "mover")

    # It tells the object as it was last seen in the selection, under the version of the change that took it out.
    assert gone["metadata"]["labels"] == {"pool": "home"}
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    assert back["data"] == {"a": "1"}


async def test_a_pod_enters_the_watch_of_its_node_when_it_is_bound(api: Api, namespace: str, nodes) -> None:
    path, node = PODS.format(namespace), await nodes.add()
    for name in ("ours", "other"):
        (await api.post(path, pod(name))).ok()
    async with api.watch(
        path, resourceVersion=await _version(api, path), fieldSelector=f"spec.nodeName={node}"
    ) as watch:
        await bind(api, namespace, "other", "elsewhere")
        await bind(api, namespace, "ours", node)
        assert (await watch.expect("ADDED", "ours"))["spec"]["nodeName"] == node
        await report(api, namespace, "ours", phase="Running")
        assert (await watch.expect("MODIFIED", "ours"))["status"]["phase"] == "Running"


async def test_a_finished_pod_leaves_the_watch_of_the_unfinished(api: Api, namespace: str) -> None:
    path = PODS.format(namespace)
    (await api.post(path, pod("worker"))).ok()
    unfinished = "status.phase!=Succeeded,status.phase!=Failed"
    async with api.watch(path, resourceVersion=await _version(api, path), fieldSelector=unfinished) as watch:
        await report(api, namespace, "worker", phase="Running")
        await watch.expect("MODIFIED", "worker")
        await report(api, namespace, "worker", phase="Succeeded")
        await watch.expect("DELETED", "worker")


async def test_one_object_can_be_watched_by_its_name(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    async with api.watch(path, resourceVersion=await _version(api, path), fieldSelector="metadata.name=one") as watch:
        (await api.post(path, config_map("two"))).ok()
        (await api.post(path, config_map("one"))).ok()
        await watch.expect("ADDED", "one")
        (await api.delete(f"{path}/two")).ok()
        await watch.quiet()


async def test_selectors_apply_to_what_is_there_at_the_beginning(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, config_map("in", labels={"pool": "home"}))).ok()
    (await api.post(path, config_map("out", labels={"pool": "virtual"}))).ok()
    async with api.watch(path, labelSelector="pool=home") as watch:
        await watch.expect("ADDED", "in")
        await watch.quiet()
