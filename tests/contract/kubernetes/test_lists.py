"""Lists: versions, pages, and selectors over labels and fields."""

from __future__ import annotations

import pytest

from tests.contract.kubernetes.client import Api, Object
from tests.contract.kubernetes.objects import CONFIG_MAPS, NODES, PODS, bind, config_map, pod, report, unique

LABELLED = {
    "a": {"pool": "home", "tier": "gold"},
    "b": {"pool": "home"},
    "c": {"pool": "virtual", "tier": "iron"},
    "d": {"other": ""},
}


def _names(listing: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


async def test_a_list_has_a_version_to_watch_from(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    made = (await api.post(path, config_map("one"))).ok()
    listing = (await api.get(path)).ok()

    assert (listing["apiVersion"], listing["kind"]) == ("v1", "ConfigMapList")
    assert int(listing["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    # Items of a typed list do not repeat their kind.
    assert "kind" not in listing["items"][0]


async def test_an_empty_list_is_a_list(api: Api, namespace: str) -> None:
    listing = (await api.get(PODS.format(namespace))).ok()
    assert listing["items"] == []
    assert int(listing["metadata"]["resourceVersion"]) > 1


async def test_an_unknown_namespace_lists_nothing(api: Api) -> None:
    assert (await api.get(PODS.format("no-such-place"))).ok()["items"] == []


async def test_all_namespaces_are_listed_together(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("seen", labels={"whose": namespace}))).ok()
    listing = (await api.get("/api/v1/pods", labelSelector=f"whose={namespace}")).ok()
    assert _names(listing) == ["seen"]


async def test_pages_together_are_the_list_at_its_beginning(api: Api, namespace: str) -> None:
    path, ours = CONFIG_MAPS.format(namespace), {"labelSelector": "paged=yes"}
    for number in range(5):
        (await api.post(path, config_map(f"p{number}", labels={"paged": "yes"}))).ok()

    first = (await api.get(path, limit="2", **ours)).ok()
    (await api.delete(f"{path}/p3")).ok()
    (await api.post(path, config_map("p9", labels={"paged": "yes"}))).ok()
    second = (await api.get(path, limit="2", **{"continue": first["metadata"]["continue"]}, **ours)).ok()
    third = (await api.get(path, limit="2", **{"continue": second["metadata"]["continue"]}, **ours)).ok()

    assert [_names(page) for page in (first, second, third)] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


async def test_a_limit_above_the_number_of_items_is_one_page(api: Api, namespace: str) -> None:
    path = PODS.format(namespace)
    (await api.post(path, pod("only"))).ok()
    listing = (await api.get(path, limit="500")).ok()
    assert _names(listing) == ["only"]
    assert "continue" not in listing["metadata"]


async def test_a_page_mark_that_is_not_ours_is_refused(api: Api, namespace: str) -> None:
    (await api.get(PODS.format(namespace), limit="2", **{"continue": "nonsense"})).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("pool=home", "ab"),
        ("pool==home", "ab"),
        ("pool!=home", "cd"),
        ("pool", "abc"),
        ("!pool", "d"),
        ("pool in (home,virtual)", "abc"),
        ("pool in (virtual)", "c"),
        ("pool notin (home)", "cd"),
        ("pool=home,tier=gold", "a"),
        ("pool=home,!tier", "b"),
        ("other=", "d"),
    ],
)
async def test_label_selectors(api: Api, namespace: str, selector: str, selected: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    for name, labels in LABELLED.items():
        (await api.post(path, config_map(name, labels={"mine": "yes", **labels}))).ok()
    assert _names((await api.get(path, labelSelector=f"mine=yes,{selector}")).ok()) == list(selected)


@pytest.mark.parametrize("selector", ["a in (b", "a=b=c", "not valid!=x", "a in b"])
async def test_a_label_selector_that_cannot_be_read_is_refused(api: Api, namespace: str, selector: str) -> None:
    (await api.get(CONFIG_MAPS.format(namespace), labelSelector=selector)).refused(400, "BadRequest")


async def test_pods_are_selected_by_name_node_and_phase(api: Api, namespace: str) -> None:
    path, node = PODS.format(namespace), unique("selected")
    for name in ("bound", "done", "free"):
        (await api.post(path, pod(name))).ok()
    await bind(api, namespace, "bound", node)
    await bind(api, namespace, "done", node)
    await report(api, namespace, "done", phase="Succeeded")

    async def selected(fields: str) -> list[str]:
        return _names((await api.get(path, fieldSelector=fields)).ok())

    assert await selected(f"spec.nodeName={node}") == ["bound", "done"]
    assert await selected("spec.nodeName=") == ["free"]
    assert await selected("spec.nodeName!=") == ["bound", "done"]
    assert await selected("status.phase=Succeeded") == ["done"]
    assert await selected("status.phase!=Succeeded,status.phase!=Failed") == ["bound", "free"]
    assert await selected(f"spec.nodeName={node},status.phase=Pending") == ["bound"]
    assert await selected("metadata.name=free") == ["free"]
    assert await selected(f"metadata.namespace={namespace},metadata.name=free") == ["free"]
    assert await selected("spec.schedulerName=nobody") == ["bound", "done", "free"]
    across = (await api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")).ok()
    assert _names(across) == ["bound", "done"]


async def test_a_field_that_cannot_be_selected_is_refused(api: Api, namespace: str) -> None:
    (await api.get(PODS.format(namespace), fieldSelector="spec.priority=0")).refused(400, "BadRequest")
    (await api.get(NODES, fieldSelector="spec.nodeName=a")).refused(400, "BadRequest")


async def test_a_collection_is_deleted_by_selector(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    for name, pool in (("a", "home"), ("b", "home"), ("c", "virtual")):
        (await api.post(path, config_map(name, labels={"pool": pool}))).ok()
    (await api.delete(path, labelSelector="pool=home")).ok()
    assert _names((await api.get(path, labelSelector="pool")).ok()) == ["c"]
