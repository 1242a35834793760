"""Optimistic concurrency: who wrote since I read?"""

from __future__ import annotations

import asyncio

from tests.contract.kubernetes.client import JSON_PATCH, STRATEGIC_PATCH, Api
from tests.contract.kubernetes.objects import CONFIG_MAPS, config_map


async def _made(api: Api, namespace: str, name: str) -> tuple[str, dict]:
    path = CONFIG_MAPS.format(namespace)
    return f"{path}/{name}", (await api.post(path, config_map(name, {"a": "1"}))).ok()


async def test_replacing_what_was_read_is_accepted(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "fresh")
    replaced = (await api.put(path, {**made, "data": {"b": "2"}})).ok()

    assert replaced["data"] == {"b": "2"}
    assert replaced["metadata"]["uid"] == made["metadata"]["uid"]


async def test_replacing_what_has_changed_since_is_a_conflict(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "stale")
    (await api.patch(path, {"data": {"a": "2"}})).ok()
    status = (await api.put(path, {**made, "data": {"a": "3"}})).refused(409, "Conflict")

    assert status["details"]["name"] == "stale"
    assert "the object has been modified" in status["message"]
    assert (await api.get(path)).ok()["data"] == {"a": "2"}


async def test_a_replacement_without_a_version_wins(api: Api, namespace: str) -> None:
    path, _ = await _made(api, namespace, "careless")
    (await api.patch(path, {"data": {"a": "2"}})).ok()
    assert (await api.put(path, config_map("careless", {"a": "3"}))).ok()["data"] == {"a": "3"}


async def test_a_patch_may_carry_the_version_it_is_meant_for(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "guarded")
    guard = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    (await api.patch(path, {**guard, "data": {"a": "2"}})).ok()

    (await api.patch(path, {**guard, "data": {"a": "3"}})).refused(409, "Conflict")
    (await api.patch(path, {**guard, "data": {"a": "3"}}, STRATEGIC_PATCH)).refused(409, "Conflict")
    assert (await api.get(path)).ok()["data"] == {"a": "2"}


async def test_a_patch_for_another_uid_is_invalid(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "successor")
    (await api.patch(path, {"metadata": {"uid": made["metadata"]["uid"]}, "data": {"a": "2"}})).ok()
    other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "data": {"a": "3"}}
    # Not a conflict, as it is for a replacement and a deletion: the uid is a field that cannot change.
    status = (await api.patch(path, other)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.uid"
    assert (await api.get(path)).ok()["data"] == {"a": "2"}


async def test_a_replacement_for_another_uid_is_a_conflict(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "replaced")
    made["metadata"] = {"name": "replaced", "uid": "11111111-1111-1111-1111-111111111111"}
    (await api.put(path, made)).refused(409, "Conflict")


async def test_a_failed_test_of_a_json_patch_changes_nothing(api: Api, namespace: str) -> None:
    path, _ = await _made(api, namespace, "tested")
    patch = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "1"},
    ]
    (await api.patch(path, patch, JSON_PATCH)).refused(422, "Invalid")
    assert (await api.get(path)).ok()["data"] == {"a": "1"}


async def test_of_writers_with_the_same_version_one_wins(api: Api, namespace: str) -> None:
    path, made = await _made(api, namespace, "raced")
    writes = [{**made, "data": {"a": str(writer)}} for writer in range(8)]
    replies = await asyncio.gather(*(api.put(path, write) for write in writes))

    assert sorted(reply.status for reply in replies) == [200] + [409] * 7
    winner = next(reply for reply in replies if reply.status == 200)
    assert (await api.get(path)).ok()["data"] == winner.body["data"]


async def test_patches_without_a_version_all_take_effect(api: Api, namespace: str) -> None:
    path, _ = await _made(api, namespace, "shared")
    replies = await asyncio.gather(*(api.patch(path, {"data": {f"k{writer}": "1"}}) for writer in range(8)))

    assert {reply.status for reply in replies} == {200}
    assert (await api.get(path)).ok()["data"] == {"a": "1"} | {f"k{writer}": "1" for writer in range(8)}
