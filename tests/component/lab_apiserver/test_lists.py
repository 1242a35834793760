"""Lists: selectors, pages, versions."""

import pytest

from tests.component.lab_apiserver.conftest import MERGE, PODS


def names(listed) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture
async def three(api):
    await api.pod("a", labels={"app": "web", "tier": "front"})
    await api.pod("b", labels={"app": "web"})
    await api.pod("c", labels={"app": "db"})


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier=front", ["a"]),
        ("app!=web", ["c"]),
        ("tier!=front", ["b", "c"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web),tier", []),
        ("tier", ["a"]),
        ("!tier", ["b", "c"]),
        ("", ["a", "b", "c"]),
    ],
)
async def test_label_selectors(api, selector, expected):
    assert names(await api.ok("GET", PODS, labelSelector=selector)) == expected


@pytest.mark.usefixtures("three")
async def test_field_selectors(api):
    await api.ok("PATCH", f"{PODS}/a/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    assert names(await api.ok("GET", PODS, fieldSelector="status.phase=Running")) == ["a"]
    assert names(await api.ok("GET", PODS, fieldSelector="status.phase!=Running,metadata.name!=b")) == ["c"]
    assert names(await api.ok("GET", "/api/v1/pods", fieldSelector="spec.nodeName=")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "params",
    [{"fieldSelector": "spec.hostname=x"}, {"labelSelector": "a in"}, {"limit": "many"}, {"fieldSelector": "x"}],
)
async def test_what_cannot_be_understood_is_refused(api, params):
    status, answer = await api.get(PODS, **params)
    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_list_of_a_built_in_kind_names_the_type_once(api):
    """As on a real server: items carry no kind; those of custom resources do."""
    await api.pod()
    listed = await api.ok("GET", PODS)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    queues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    await api.ok("POST", queues, {"metadata": {"name": "q"}, "spec": {}})
    item = (await api.ok("GET", queues))["items"][0]
    assert (item["kind"], item["apiVersion"]) == ("ClusterQueue", "kueue.x-k8s.io/v1beta2")


async def test_pages_show_one_moment(api):
    """What is created or deleted between two pages does not disturb the list."""
    for name in "abcde":
        await api.pod(name)
    first = await api.ok("GET", PODS, limit="2")
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await api.pod("bb")
    await api.ok("DELETE", f"{PODS}/d")
    second = await api.ok("GET", PODS, **{"limit": "2", "continue": first["metadata"]["continue"]})
    third = await api.ok("GET", PODS, **{"limit": "2", "continue": second["metadata"]["continue"]})
    assert names(second) + names(third) == ["c", "d", "e"]
    assert third["metadata"].get("continue") is None
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }


@pytest.mark.parametrize("history", [4])
async def test_page_token_expires_with_the_memory(api, history):
    for name in "abc":
        await api.pod(name)
    token = (await api.ok("GET", PODS, limit="1"))["metadata"]["continue"]
    for number in range(history + 1):
        await api.pod(f"p{number}")
    status, answer = await api.get(PODS, **{"limit": "1", "continue": token})
    assert (status, answer["reason"]) == (410, "Expired")
    assert (await api.get(PODS, **{"continue": "nonsense"}))[0] == 400


async def test_exact_version_shows_the_past(api):
    await api.pod("a")
    past = (await api.ok("GET", PODS))["metadata"]["resourceVersion"]
    await api.pod("b")
    await api.ok("DELETE", f"{PODS}/a")
    exact = await api.ok("GET", PODS, resourceVersion=past, resourceVersionMatch="Exact")
    assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a"], past)
    assert names(await api.ok("GET", PODS, resourceVersion=past)) == ["b"]
    assert names(await api.ok("GET", PODS, resourceVersion="0")) == ["b"]


async def test_version_from_the_future_is_refused(api):
    status, answer = await api.get(PODS, resourceVersion="99999999", resourceVersionMatch="NotOlderThan")
    assert (status, answer["reason"]) == (504, "Timeout")
    assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_collection_is_deleted_by_selector(api):
    await api.pod("a", labels={"x": "1"})
    await api.pod("b")
    await api.ok("DELETE", PODS, labelSelector="x=1")
    assert names(await api.ok("GET", PODS)) == ["b"]
