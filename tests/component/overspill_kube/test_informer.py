"""The informer against an API server, with and without a network that breaks."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.resources import CONFIG_MAPS
from overspill_kube.settings import KubeSettings, WatchTiming
from overspill_objects.core import ConfigMap
from tests.support.faulty_proxy import faulty_proxy
from tests.support.kube_place import Place, done, eventually

LABEL = {"followed": "yes"}
SELECTOR = "followed=yes"


class Journal:
    """What an informer reported, and whether it can be true."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[ChangeKind]] = defaultdict(list)
        self._versions: dict[str, list[str]] = defaultdict(list)

    def note(self, change: Change[ConfigMap]) -> None:
        meta = change.object.metadata
        known = bool(self.kinds[meta.name]) and self.kinds[meta.name][-1] is not ChangeKind.DELETED
        assert known is (change.kind is not ChangeKind.ADDED), (
            f"{meta.name}: {change.kind} after {self.kinds[meta.name]}"
        )
        self.kinds[meta.name].append(change.kind)
        if change.kind is not ChangeKind.DELETED:
            assert meta.resource_version not in self._versions[meta.name], "the same state was reported twice"
            self._versions[meta.name].append(meta.resource_version)


@contextlib.asynccontextmanager
async def followed(client: Client, namespace: str, journal: Journal) -> AsyncIterator[Informer[ConfigMap]]:
    informer = Informer(client, CONFIG_MAPS, namespace=namespace, labels=SELECTOR, on_change=journal.note)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
        if task.done():
            await task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def body(name: str, value: str = "0", labels: dict[str, str] = LABEL) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"value": value}}


async def set_value(client: Client, namespace: str, name: str, value: str) -> None:
    change = {"data": {"value": value}}
    done(await client.patch(CONFIG_MAPS, name, change, kind=PatchKind.MERGE, namespace=namespace))


async def caught_up(informer: Informer[ConfigMap], client: Client, namespace: str) -> None:
    """The cache holds exactly what the server holds."""

    async def same() -> bool:
        there = await client.list(CONFIG_MAPS, namespace=namespace, labels=SELECTOR)
        return {item.metadata.name: item for item in there.items} == {
            name: item for (_, name), item in informer.items.items()
        }

    await eventually(same)


async def test_it_follows_what_comes_changes_and_goes(client: Client, place: Place) -> None:
    journal = Journal()
    await place.create(CONFIG_MAPS, body("old"))
    await place.create(CONFIG_MAPS, body("other", labels={}))
    async with followed(client, place.namespace, journal) as informer:
        await asyncio.wait_for(informer.wait_synced(), 20)
        assert set(informer.items) == {(place.namespace, "old")}
        await place.create(CONFIG_MAPS, body("new"))
        await set_value(client, place.namespace, "old", "1")
        done(await client.delete(CONFIG_MAPS, "new", place.namespace))
        await eventually(lambda: _is(journal, "new", ChangeKind.DELETED))
        await caught_up(informer, client, place.namespace)
        assert journal.kinds["old"] == [ChangeKind.ADDED, ChangeKind.MODIFIED]
        assert journal.kinds["new"] == [ChangeKind.ADDED, ChangeKind.DELETED]
        assert "other" not in journal.kinds
        assert informer.last_contact_age() < 60


async def _is(journal: Journal, name: str, kind: ChangeKind) -> bool:
    return journal.kinds[name][-1:] == [kind]


async def test_an_object_that_leaves_the_selection_is_gone(client: Client, place: Place) -> None:
    journal = Journal()
    await place.create(CONFIG_MAPS, body("one"))
    async with followed(client, place.namespace, journal) as informer:
        await asyncio.wait_for(informer.wait_synced(), 20)
        change = {"metadata": {"labels": {"followed": "no"}}}
        done(await client.patch(CONFIG_MAPS, "one", change, kind=PatchKind.MERGE, namespace=place.namespace))
        await eventually(lambda: _is(journal, "one", ChangeKind.DELETED))
        assert not informer.items


async def test_waiting_for_a_change(client: Client, place: Place) -> None:
    async with followed(client, place.namespace, Journal()) as informer:
        await asyncio.wait_for(informer.wait_synced(), 20)
        assert not await informer.next_change(0.05)
        await place.create(CONFIG_MAPS, body("one"))
        assert await informer.next_change(20)
        before = informer.revision
        assert not await informer.next_change(0.05, after=before)
        await set_value(client, place.namespace, "one", "1")
        assert await informer.next_change(20, after=before)


async def test_a_watch_that_the_server_ends_goes_on_without_a_new_list(
    kubeconfig: Path, client: Client, place: Place
) -> None:
    """Short watches, as the lab uses them: many ends, one list, no gap, always synced."""
    timing = WatchTiming.short(1)
    async with (
        connect(KubeSettings(kubeconfig=str(kubeconfig), watch=timing)) as impatient,
        followed(impatient, place.namespace, Journal()) as informer,
    ):
        await asyncio.wait_for(informer.wait_synced(), 20)
        for number in range(8):
            await place.create(CONFIG_MAPS, body(f"one-{number}"))
            await asyncio.sleep(0.4)
            assert informer.is_synced
        await caught_up(informer, client, place.namespace)
        assert informer.relists == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nothing_is_lost_or_doubled_on_a_network_that_breaks_anywhere(
    kubeconfig: Path, client: Client, place: Place, tmp_path: Path, seed: int
) -> None:
    """Connections are reset after a random number of bytes, in the middle of whatever is there, while objects change."""
    chance = random.Random(seed)
    journal = Journal()
    quick = WatchTiming(server_seconds=(5, 6), silence_seconds=3, stale_seconds=60, backoff_seconds=(0.01, 0.05))
    async with contextlib.AsyncExitStack() as stack:
        proxy, proxied = await stack.enter_async_context(faulty_proxy(kubeconfig, tmp_path))
        broken = await stack.enter_async_context(connect(KubeSettings(kubeconfig=str(proxied), watch=quick)))
        informer = await stack.enter_async_context(followed(broken, place.namespace, journal))
        await asyncio.wait_for(informer.wait_synced(), 20)
        proxy.cut_each_after(lambda: chance.randint(1, 12_000))
        proxy.cut_all()
        await _churn(client, place, chance)
        cuts = proxy.cuts
        proxy.cut_each_after(None)
        proxy.cut_all()
        await caught_up(informer, client, place.namespace)
        assert informer.is_synced
    assert cuts >= 3, "the network was too healthy to prove anything"


async def _churn(client: Client, place: Place, chance: random.Random) -> None:
    alive: list[str] = []
    for number in range(60):
        if alive and chance.random() < 0.25:
            name = alive.pop(chance.randrange(len(alive)))
            done(await client.delete(CONFIG_MAPS, name, place.namespace))
        elif alive and chance.random() < 0.6:
            await set_value(client, place.namespace, chance.choice(alive), str(number))
        else:
            # A name that is used again is another object: deletion and creation must both be seen.
            name = f"map-{chance.randrange(6)}"
            if name not in alive:
                await place.create(CONFIG_MAPS, body(name, value="x" * chance.randrange(800)))
                alive.append(name)
        await asyncio.sleep(0.02)


async def test_a_partition_makes_it_say_that_it_does_not_know(
    kubeconfig: Path, client: Client, place: Place, tmp_path: Path
) -> None:
    """Silence longer than the stale time: not synced. What was deleted meanwhile is reported when the network heals."""
    timing = WatchTiming(server_seconds=(60, 60), silence_seconds=0.5, stale_seconds=1, backoff_seconds=(0.05, 0.1))
    journal = Journal()
    await place.create(CONFIG_MAPS, body("one"))
    async with contextlib.AsyncExitStack() as stack:
        proxy, proxied = await stack.enter_async_context(faulty_proxy(kubeconfig, tmp_path))
        settings = KubeSettings(kubeconfig=str(proxied), watch=timing, request_seconds=1)
        cut_off = await stack.enter_async_context(connect(settings))
        informer = await stack.enter_async_context(followed(cut_off, place.namespace, journal))
        await asyncio.wait_for(informer.wait_synced(), 20)
        proxy.freeze()
        done(await client.delete(CONFIG_MAPS, "one", place.namespace))

        async def unsynced() -> bool:
            return not informer.is_synced

        await eventually(unsynced)
        assert (place.namespace, "one") in informer.items
        proxy.thaw()
        proxy.cut_all()
        await eventually(lambda: _is(journal, "one", ChangeKind.DELETED))
        await asyncio.wait_for(informer.wait_synced(), 20)
