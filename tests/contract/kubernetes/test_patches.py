"""The patch kinds, and what each does to the lists that more than one of us writes."""

from __future__ import annotations

import pytest

from tests.contract.kubernetes.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, Object
from tests.contract.kubernetes.objects import CONFIG_MAPS, PODS, READY, config_map, pod


async def _pod(api: Api, namespace: str, **spec: object) -> str:
    (await api.post(PODS.format(namespace), pod("patched", **spec))).ok()
    return f"{PODS.format(namespace)}/patched"


def _types(conditions: list[Object]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in conditions}


async def test_a_merge_patch_merges_maps_and_deletes_with_null(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, config_map("merged", {"a": "1", "b": "2"}))).ok()
    patched = (await api.patch(f"{path}/merged", {"data": {"b": None, "c": "3"}}, MERGE_PATCH)).ok()
    assert patched["data"] == {"a": "1", "c": "3"}


async def test_a_json_patch_applies_its_operations_in_order(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, config_map("ordered", {"a": "1"}))).ok()
    patch = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b~1c", "value": "2"},
        {"op": "copy", "from": "/data/a", "path": "/data/d"},
        {"op": "move", "from": "/data/a", "path": "/data/e"},
        {"op": "remove", "path": "/data/d"},
    ]
    status = await api.patch(f"{path}/ordered", patch, JSON_PATCH)
    status.refused(422, "Invalid")  # b/c is no key of a ConfigMap: validation sees the result
    patch[1]["path"] = "/data/b"
    assert (await api.patch(f"{path}/ordered", patch, JSON_PATCH)).ok()["data"] == {"b": "2", "e": "1"}


async def test_a_json_pointer_escapes_slashes(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    patch = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/overspill.dev~1why", "value": "a~b"},
    ]
    patched = (await api.patch(path, patch, JSON_PATCH)).ok()
    assert patched["metadata"]["annotations"] == {"overspill.dev/why": "a~b"}


async def test_a_json_patch_of_what_is_not_there_is_refused(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    for patch in (
        [{"op": "remove", "path": "/metadata/labels/none"}],
        [{"op": "remove", "path": "/spec/tolerations/9"}],
        [{"op": "test", "path": "/spec/nothing", "value": 1}],
        [{"op": "add", "path": "/metadata/annotations/a", "value": "the map itself is missing"}],
        [{"op": "replace", "path": "/metadata/annotations/a", "value": "the map itself is missing"}],
    ):
        (await api.patch(path, patch, JSON_PATCH)).refused(422, "Invalid")


async def test_a_json_patch_may_test_that_something_is_not_there(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    patch = [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
    ]
    (await api.patch(path, patch, JSON_PATCH)).ok()
    (await api.patch(path, patch, JSON_PATCH)).refused(422, "Invalid")


async def test_a_malformed_json_patch_is_a_bad_request(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    (await api.patch(path, {"metadata": {}}, JSON_PATCH)).refused(400, "BadRequest")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-patch"])
async def test_an_unknown_patch_kind_is_refused(api: Api, namespace: str, kind: str) -> None:
    path = await _pod(api, namespace)
    (await api.patch(path, {}, kind)).refused(415, "UnsupportedMediaType")


async def test_a_strategic_patch_merges_conditions_by_type(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    ready, mine = READY, {"type": "overspill.dev/Mine", "status": "False", "reason": "Why"}
    (await api.patch(f"{path}/status", {"status": {"conditions": [ready]}}, STRATEGIC_PATCH)).ok()
    (await api.patch(f"{path}/status", {"status": {"conditions": [mine]}}, STRATEGIC_PATCH)).ok()
    changed = {"type": "overspill.dev/Mine", "status": "True"}
    seen = (await api.patch(f"{path}/status", {"status": {"conditions": [changed]}}, STRATEGIC_PATCH)).ok()

    conditions = seen["status"]["conditions"]
    assert _types(conditions) == {"Ready": "True", "overspill.dev/Mine": "True"}
    # Fields that the patch leaves out stay: it merges each condition too.
    assert next(each for each in conditions if each["type"] == mine["type"])["reason"] == "Why"


async def test_a_strategic_patch_can_delete_one_condition(api: Api, namespace: str) -> None:
    path = f"{await _pod(api, namespace)}/status"
    both = [READY, {"type": "overspill.dev/Mine", "status": "True"}]
    (await api.patch(path, {"status": {"conditions": both}}, STRATEGIC_PATCH)).ok()
    gone = {"type": "overspill.dev/Mine", "$patch": "delete"}
    seen = (await api.patch(path, {"status": {"conditions": [gone]}}, STRATEGIC_PATCH)).ok()
    assert _types(seen["status"]["conditions"]) == {"Ready": "True"}


async def test_a_merge_patch_replaces_conditions_whole(api: Api, namespace: str) -> None:
    path = f"{await _pod(api, namespace)}/status"
    (await api.patch(path, {"status": {"conditions": [READY]}}, STRATEGIC_PATCH)).ok()
    other = {"type": "overspill.dev/Mine", "status": "True"}
    seen = (await api.patch(path, {"status": {"conditions": [other]}}, MERGE_PATCH)).ok()
    assert _types(seen["status"]["conditions"]) == {"overspill.dev/Mine": "True"}


async def test_a_strategic_patch_removes_one_scheduling_gate_by_name(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace, schedulingGates=[{"name": "overspill.dev/a"}, {"name": "overspill.dev/b"}])
    gone = {"spec": {"schedulingGates": [{"name": "overspill.dev/a", "$patch": "delete"}]}}
    seen = (await api.patch(path, gone, STRATEGIC_PATCH)).ok()
    assert seen["spec"]["schedulingGates"] == [{"name": "overspill.dev/b"}]


async def test_a_strategic_patch_replaces_tolerations_whole(api: Api, namespace: str) -> None:
    mine = {"key": "overspill.dev/a", "operator": "Exists"}
    path = await _pod(api, namespace, tolerations=[mine])
    # The list is atomic, so a patch with one more entry must repeat the others, or it takes them away: refused.
    more = {"spec": {"tolerations": [{"key": "overspill.dev/b", "operator": "Exists"}]}}
    (await api.patch(path, more, STRATEGIC_PATCH)).refused(422, "Invalid")
    seen = (await api.get(path)).ok()
    assert mine in seen["spec"]["tolerations"]


async def test_a_strategic_patch_merges_containers_by_name(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    seen = (await api.patch(path, {"spec": {"containers": [{"name": "main", "image": "other"}]}}, STRATEGIC_PATCH)).ok()
    assert seen["spec"]["containers"][0]["image"] == "other"
    assert seen["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "10m"}


async def test_a_patch_cannot_rename(api: Api, namespace: str) -> None:
    path = await _pod(api, namespace)
    (await api.patch(path, {"metadata": {"name": "renamed"}})).refused(400, "BadRequest")
