"""The watch: from a version on, every change once and in order, until the server or the client ends it."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import CONFIG_MAPS, LOCAL_QUEUES, PODS, config_map, pod

# The namespace's own (kube-root-ca.crt) is not of the test's making.
OURS = {"labelSelector": "watched=yes"}


def _watched(name: str, data: dict[str, str] | None = None) -> Object:
    return config_map(name, data, labels={"watched": "yes"})


async def _version(api: Api, path: str) -> str:
    return (await api.get(path)).ok()["metadata"]["resourceVersion"]


async def _heard(api: Api, path: str, name: str) -> None:
    """Wait until the server's watches, which lag behind its store, have come to this object."""
    async with api.watch(path, **OURS) as watch:
        await watch.until("ADDED", name)


async def test_from_a_version_on_every_change_comes_once_and_in_order(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, _watched("before"))).ok()
    async with api.watch(path, resourceVersion=await _version(api, path), **OURS) as watch:
        made = (await api.post(path, _watched("one"))).ok()
        changed = (await api.patch(f"{path}/one", {"data": {"a": "1"}})).ok()
        (await api.post(path, _watched("two"))).ok()
        (await api.delete(f"{path}/one")).ok()

        assert await watch.expect("ADDED", "one") == made
        assert await watch.expect("MODIFIED", "one") == changed
        await watch.expect("ADDED", "two")
        gone = await watch.expect("DELETED", "one")
        await watch.quiet()
    # The last state, under the version of the deletion: an informer may go on from there.
    assert gone["data"] == {"a": "1"}
    assert int(gone["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


async def test_a_watch_from_an_earlier_version_replays_what_came_since(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    version = await _version(api, path)
    (await api.post(path, _watched("one"))).ok()
    (await api.patch(f"{path}/one", {"data": {"a": "1"}})).ok()
    (await api.delete(f"{path}/one")).ok()

    async with api.watch(path, resourceVersion=version, **OURS) as watch:
        await watch.expect("ADDED", "one")
        assert (await watch.expect("MODIFIED", "one"))["data"] == {"a": "1"}
        await watch.expect("DELETED", "one")


async def test_a_watch_can_go_on_from_the_version_of_its_last_event(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    async with api.watch(path, resourceVersion=await _version(api, path), **OURS) as watch:
        (await api.post(path, _watched("one"))).ok()
        last = (await watch.expect("ADDED", "one"))["metadata"]["resourceVersion"]
    (await api.post(path, _watched("two"))).ok()

    async with api.watch(path, resourceVersion=last, **OURS) as watch:
        await watch.expect("ADDED", "two")
        await watch.quiet()


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_from_no_version_begins_with_what_is_there(api: Api, namespace: str, version: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    for name in ("a", "b"):
        (await api.post(path, _watched(name))).ok()
    await _heard(api, path, "b")
    async with api.watch(path, resourceVersion=version, **OURS) as watch:
        first = [(await watch.next()) for _ in range(2)]
        assert {event["type"] for event in first} == {"ADDED"}
        assert {event["object"]["metadata"]["name"] for event in first} == {"a", "b"}
        (await api.post(path, _watched("c"))).ok()
        await watch.expect("ADDED", "c")


async def test_events_carry_whole_objects_with_their_kind(api: Api, namespace: str) -> None:
    path = PODS.format(namespace)
    async with api.watch(path, resourceVersion=await _version(api, path)) as watch:
        (await api.post(path, pod("whole"))).ok()
        seen = await watch.expect("ADDED", "whole")
    assert (seen["apiVersion"], seen["kind"]) == ("v1", "Pod")
    assert seen["spec"]["containers"][0]["name"] == "main"


async def test_a_write_that_changes_nothing_is_no_event(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    made = (await api.post(path, _watched("same", {"a": "1"}))).ok()
    async with api.watch(path, resourceVersion=made["metadata"]["resourceVersion"], **OURS) as watch:
        (await api.patch(f"{path}/same", {"data": {"a": "1"}})).ok()
        (await api.put(f"{path}/same", made)).ok()
        await watch.quiet()


async def test_a_dry_run_is_no_event(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    made = (await api.post(path, _watched("dry"))).ok()
    async with api.watch(path, resourceVersion=made["metadata"]["resourceVersion"], **OURS) as watch:
        (await api.post(path, _watched("other"), dryRun="All")).ok()
        (await api.patch(f"{path}/dry", {"data": {"a": "1"}}, dryRun="All")).ok()
        (await api.delete(f"{path}/dry", dryRun="All")).ok()
        await watch.quiet()


async def test_a_timeout_ends_the_stream_cleanly(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    version = await _version(api, path)
    (await api.post(path, _watched("seen"))).ok()
    await _heard(api, path, "seen")
    async with api.watch(path, resourceVersion=version, timeoutSeconds="1", **OURS) as watch:
        events = await watch.rest()
    assert [event["type"] for event in events] == ["ADDED"]


async def test_bookmarks_come_when_allowed_and_carry_only_a_version(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    version = await _version(api, path)
    made = (await api.post(path, _watched("marked"))).ok()
    await _heard(api, path, "marked")

    async def rest() -> list[Object]:
        """All events; the real server sends a bookmark shortly before it ends a stream, unless it is late itself."""
        asked = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "4", **OURS}
        async with api.watch(path, **asked) as watch:
            return await watch.rest()

    events = await eventually(rest, lambda each: len(each) > 1, "a bookmark")
    assert events[0]["type"] == "ADDED"
    bookmarks = [event for event in events if event["type"] == "BOOKMARK"]
    assert bookmarks
    mark = bookmarks[-1]["object"]
    assert (mark["apiVersion"], mark["kind"]) == ("v1", "ConfigMap")
    assert int(mark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert "name" not in mark["metadata"]
    assert "data" not in mark


async def test_bookmarks_do_not_come_unasked(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    async with api.watch(path, resourceVersion=await _version(api, path), timeoutSeconds="4", **OURS) as watch:
        assert await watch.rest() == []


async def test_a_version_too_old_to_be_remembered_is_gone(api: Api, namespace: str) -> None:
    # Version 1 is older than these kinds themselves. The refusal is an event of a stream that was accepted.
    async with api.watch(LOCAL_QUEUES.format(namespace), resourceVersion="1", timeoutSeconds="5") as watch:
        events = await watch.rest()

    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", 410, "Expired")
    assert "too old resource version" in status["message"]


async def test_a_version_that_is_no_number_is_refused(api: Api, namespace: str) -> None:
    (await api.get(CONFIG_MAPS.format(namespace), watch="true", resourceVersion="soon")).not_taken()


@pytest.mark.parametrize("yes", ["true", "True", "1"])
async def test_a_watch_may_be_asked_for_in_several_spellings(api: Api, namespace: str, yes: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    version = await _version(api, path)
    (await api.post(path, _watched("one"))).ok()
    async with api.watch(path, watch=yes, resourceVersion=version, **OURS) as watch:
        await watch.expect("ADDED", "one")


async def test_a_list_and_a_watch_from_it_miss_nothing(api: Api, namespace: str) -> None:
    """What every informer does, while others write."""
    path = CONFIG_MAPS.format(namespace)

    async def write(writer: int) -> None:
        for number in range(12):
            name = f"w{writer}-{number}"
            (await api.post(path, _watched(name))).ok()
            (await api.patch(f"{path}/{name}", {"data": {"a": str(number)}})).ok()
            if number % 3 == 0:
                (await api.delete(f"{path}/{name}")).ok()

    async def write_all() -> None:
        await asyncio.gather(*(write(writer) for writer in range(3)))
        (await api.post(path, _watched("last"))).ok()

    async with asyncio.TaskGroup() as group:
        group.create_task(write_all())
        listing = (await api.get(path, limit="5", **OURS)).ok()
        items, version = listing["items"], listing["metadata"]["resourceVersion"]
        while mark := listing["metadata"].get("continue"):
            listing = (await api.get(path, limit="5", **{"continue": mark}, **OURS)).ok()
            items += listing["items"]
        seen = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items}
        async with api.watch(path, resourceVersion=version, **OURS) as watch:
            events = [await watch.next()]
            while events[-1]["object"]["metadata"]["name"] != "last":
                events.append(await watch.next())

    for event in events:
        name, at = event["object"]["metadata"]["name"], event["object"]["metadata"]["resourceVersion"]
        assert (event["type"] == "ADDED") == (name not in seen), event
        if event["type"] == "DELETED":
            del seen[name]
        else:
            seen[name] = at
    now = (await api.get(path, **OURS)).ok()["items"]
    assert seen == {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in now}
    assert len(now) == 24 + 1


async def test_a_watch_over_all_namespaces_sees_each(api: Api, namespace: str) -> None:
    made = (await api.post(CONFIG_MAPS.format(namespace), _watched("here"))).ok()
    version = str(int(made["metadata"]["resourceVersion"]) - 1)
    async with api.watch("/api/v1/configmaps", resourceVersion=version, **OURS) as watch:
        assert (await watch.until("ADDED", "here"))["metadata"]["namespace"] == namespace
