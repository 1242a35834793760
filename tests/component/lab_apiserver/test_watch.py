"""Watches: from a version, from now, through selectors, until they end; nobody who is slow slows a write."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from overspill_lab.apiserver import streaming
from tests.component.lab_apiserver.conftest import MERGE, PODS, Api

WAIT = 20.0


@contextlib.asynccontextmanager
async def watching(api: Api, path: str = PODS, **params: str) -> AsyncIterator[Any]:
    """An open watch; yields a function that waits for the next event, None at the end of the stream."""
    async with api.session.get(api.url + path, params={"watch": "true", **params}) as answer:

        async def following() -> dict[str, Any] | None:
            line = await asyncio.wait_for(answer.content.readline(), WAIT)
            return msgspec.json.decode(line) if line else None

        following.status = answer.status
        yield following


async def all_of(following) -> list[dict[str, Any]]:
    """Everything until the stream ends."""
    events = []
    while (event := await following()) is not None:
        events.append(event)
    return events


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def version(api: Api, path: str = PODS) -> str:
    return (await api.ok("GET", path))["metadata"]["resourceVersion"]


async def test_watch_from_a_version_misses_nothing(api):
    start = await version(api)
    await api.pod("a")
    await api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}}, content_type=MERGE)
    async with watching(api, resourceVersion=start) as following:
        assert seen(await following()) == ("ADDED", "a")
        assert seen(await following()) == ("MODIFIED", "a")
        await api.ok("DELETE", f"{PODS}/a")
        gone = await following()
    assert seen(gone) == ("DELETED", "a")
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(start) + 2
    assert gone["object"]["kind"] == "Pod"


async def test_watch_without_a_version_begins_with_what_is_there(api):
    await api.pod("a")
    await api.pod("b")
    async with watching(api) as following:
        assert [seen(await following()), seen(await following())] == [("ADDED", "a"), ("ADDED", "b")]
        await api.pod("c")
        assert seen(await following()) == ("ADDED", "c")


@pytest.mark.parametrize("history", [5])
async def test_version_that_is_forgotten_is_told_so(api, history):
    start = await version(api)
    for number in range(history + 2):
        await api.pod(f"p{number}")
    async with watching(api, resourceVersion=start) as following:
        event = await following()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await following() is None


@pytest.mark.parametrize("history", [3])
async def test_quiet_kind_remembers_what_busy_ones_forgot(api, history):
    """The memory is per kind: a watcher of nodes need not list again because pods are busy."""
    start = await version(api, "/api/v1/nodes")
    for number in range(history + 3):
        await api.pod(f"p{number}")
    async with watching(api, "/api/v1/nodes", resourceVersion=start) as following:
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        assert seen(await following()) == ("ADDED", "n")


async def test_selector_turns_changes_into_comings_and_goings(api):
    start = await version(api)
    async with watching(api, resourceVersion=start, labelSelector="x=1") as following:
        await api.pod("a")
        await api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}}, content_type=MERGE)
        assert seen(await following()) == ("ADDED", "a")
        out = await api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "2"}}}, content_type=MERGE)
        left = await following()
    assert seen(left) == ("DELETED", "a")
    assert left["object"]["metadata"]["labels"] == {"x": "1"}
    assert left["object"]["metadata"]["resourceVersion"] == out["metadata"]["resourceVersion"]


async def test_namespace_bounds_a_watch(api):
    start = await version(api)
    async with watching(api, resourceVersion=start) as following:
        await api.ok("POST", "/api/v1/namespaces/kube-system/pods", {"metadata": {"name": "x"}, "spec": POD_SPEC})
        await api.pod("a")
        assert seen(await following()) == ("ADDED", "a")


POD_SPEC = {"containers": [{"name": "main", "image": "example/image:1"}]}


async def test_bookmark_comes_before_the_deadline(api):
    start = await version(api)
    async with watching(api, resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds="2") as following:
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        event = (await all_of(following))[-1]
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(start)


async def test_initial_events_end_with_a_marked_bookmark(api):
    await api.pod("a")
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watching(api, **options) as following:
        assert seen(await following()) == ("ADDED", "a")
        mark = await following()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_contradictory_options_are_refused(api):
    async with watching(api, sendInitialEvents="true") as following:
        assert following.status == 422
    async with watching(api, resourceVersion="soon") as following:
        assert following.status == 400


async def test_slow_watcher_is_cut_off_and_writes_go_on(api, monkeypatch):
    monkeypatch.setattr(streaming, "_QUEUE_BYTES", 10_000)
    start = await version(api)
    async with watching(api, resourceVersion=start) as following:
        big = {"metadata": {"annotations": {"note": "x" * 200_000}}}
        await api.pod("a")
        for number in range(150):
            big["metadata"]["annotations"]["number"] = str(number)
            await api.ok("PATCH", f"{PODS}/a", big, content_type=MERGE)
        with pytest.raises(aiohttp.ClientError):
            await all_of(following)
    assert (await api.ok("GET", f"{PODS}/a"))["metadata"]["annotations"]["number"] == "149"


async def test_watch_as_table_tells_its_columns_once(api):
    start = await version(api)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    async with api.session.get(
        api.url + PODS, params={"watch": "1", "resourceVersion": start}, headers=table
    ) as answer:
        await api.pod("a")
        await api.pod("b")
        first, second = [msgspec.json.decode(await asyncio.wait_for(answer.content.readline(), WAIT)) for _ in "12"]
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] == []
    assert second["object"]["rows"][0]["cells"][:3] == ["b", "0/1", "Pending"]
