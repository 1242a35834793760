"""The informer against a server that misbehaves on purpose."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from overspill_kube.client import Client, connect
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.resources import PODS
from overspill_kube.settings import KubeSettings, WatchTiming
from overspill_objects.core import Pod
from tests.support.scripted_api import (
    ScriptedApi,
    bookmark,
    line,
    listing,
    pod,
    reply,
    scripted_api,
    status,
    stream,
)

QUICK = WatchTiming(server_seconds=(5, 6), silence_seconds=5, stale_seconds=30, backoff_seconds=(0.01, 0.05))
DEADLINE_S = 20


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as server:
        yield server


@contextlib.asynccontextmanager
async def client_of(api: ScriptedApi, folder: Path, timing: WatchTiming = QUICK) -> AsyncIterator[Client]:
    settings = KubeSettings(kubeconfig=str(api.write_kubeconfig(folder)), watch=timing)
    async with connect(settings) as client:
        yield client


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; a state without an event to wait for."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Following:
    """An informer that runs beside the test and the changes it reported."""

    def __init__(self, client: Client) -> None:
        self.changes: list[tuple[ChangeKind, str, str]] = []
        self.informer: Informer[Pod] = Informer(client, PODS, on_change=self._on_change)

    def _on_change(self, change: Change[Pod]) -> None:
        meta = change.object.metadata
        self.changes.append((change.kind, meta.name, meta.resource_version))

    async def until(self, *names: str, version: str | None = None) -> None:
        """Wait until the cache holds exactly these pods, and the last one in that version."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._holds(names, version):
                await self.informer.next_change(0.2)

    def _holds(self, names: tuple[str, ...], version: str | None) -> bool:
        items = {name: item.metadata.resource_version for (_, name), item in self.informer.items.items()}
        return set(items) == set(names) and (version is None or items[names[-1]] == version)


@contextlib.asynccontextmanager
async def following(client: Client) -> AsyncIterator[Following]:
    watcher = Following(client)
    task = asyncio.create_task(watcher.informer.run())
    try:
        yield watcher
        if task.done():
            await task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_gone_version_in_the_stream_means_a_new_list_with_synthesised_deletes(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """410 mid-watch: what vanished meanwhile is reported as deleted, what came as added, what stayed not at all."""
    api.lists.extend(
        [listing("10", pod("stays", "5"), pod("goes", "6")), listing("20", pod("stays", "5"), pod("new", "15"))]
    )
    gone = line("ERROR", status(410, "Expired", "too old resource version: 10 (15)"))
    api.watches.append(stream(line("MODIFIED", pod("goes", "11")), gone, end="close"))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("stays", "new")
        assert seen.changes == [
            (ChangeKind.ADDED, "stays", "5"),
            (ChangeKind.ADDED, "goes", "6"),
            (ChangeKind.MODIFIED, "goes", "11"),
            (ChangeKind.DELETED, "goes", "11"),
            (ChangeKind.ADDED, "new", "15"),
        ]
        assert seen.informer.is_synced
        assert api.watched_from[0] == "10"


async def test_a_gone_version_as_the_answer_means_a_new_list(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.extend([listing("10", pod("a", "5")), listing("20", pod("b", "15"))])
    api.watches.append(reply(status(410, "Expired", "too old resource version"), code=410))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("b")
    assert (ChangeKind.DELETED, "a", "5") in seen.changes


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_half_a_line_is_not_an_event_and_nothing_is_lost(api: ScriptedApi, tmp_path: Path, end: str) -> None:
    """The connection breaks in the middle of a line: resume from the last whole event."""
    whole, broken = line("ADDED", pod("a", "11")), line("ADDED", pod("b", "12"))
    api.lists.append(listing("10"))
    api.watches.extend([stream(whole, broken[:40], end=end), stream(broken, end="hold")])
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a", "b")
        assert seen.changes == [(ChangeKind.ADDED, "a", "11"), (ChangeKind.ADDED, "b", "12")]
        assert api.watched_from[:2] == ["10", "11"]
        assert seen.informer.relists == 1


async def test_events_split_over_chunks_and_several_in_one_chunk(api: ScriptedApi, tmp_path: Path) -> None:
    text = b"".join(line("ADDED", pod(name, str(11 + number))) for number, name in enumerate("abc"))
    api.lists.append(listing("10"))
    api.watches.append(stream(text[:10], text[10:200], text[200:], end="hold"))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a", "b", "c")
        assert [name for _, name, _ in seen.changes] == ["a", "b", "c"]


async def test_silence_is_noticed_and_the_watch_resumed(api: ScriptedApi, tmp_path: Path) -> None:
    timing = WatchTiming(server_seconds=(60, 60), silence_seconds=3, stale_seconds=30, backoff_seconds=(0.01, 0.05))
    api.lists.append(listing("10"))
    api.watches.extend([stream(bookmark("11")), stream(line("ADDED", pod("a", "12")))])
    async with client_of(api, tmp_path, timing) as client, following(client) as seen:
        await seen.until("a")
        assert api.watched_from[:2] == ["10", "11"]


async def test_a_bookmark_moves_the_version_on(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.append(listing("10", pod("a", "5")))
    api.watches.extend([stream(bookmark("30"), end="close"), stream(line("MODIFIED", pod("a", "31")))])
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a", version="31")
        assert api.watched_from[:2] == ["10", "30"]


async def test_garbage_on_the_line_is_a_broken_connection(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.append(listing("10"))
    api.watches.extend([stream(b"<html>bad gateway</html>\n"), stream(line("ADDED", pod("a", "11")))])
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a")
        assert api.watched_from[:2] == ["10", "10"]


async def test_throttled_lists_and_watches_wait_as_long_as_asked(api: ScriptedApi, tmp_path: Path) -> None:
    busy = reply(status(429, "TooManyRequests", "slow down"), code=429, headers={"Retry-After": "1"})
    api.lists.extend([busy, listing("10", pod("a", "5"))])
    api.watches.extend([busy, stream(line("ADDED", pod("b", "11")))])
    pauses: list[float] = []
    async with client_of(api, tmp_path) as client:
        client.clock = RecordingClock(client.clock, pauses)
        async with following(client) as seen:
            await seen.until("a", "b")
    assert [pause for pause in pauses if pause >= 1] == [1.0, 1.0]


class RecordingClock:
    """The client's clock, which notes every pause and shortens it."""

    def __init__(self, clock: object, pauses: list[float]) -> None:
        self._clock, self._pauses = clock, pauses

    def __getattr__(self, name: str) -> object:
        return getattr(self._clock, name)

    async def sleep(self, seconds: float) -> None:
        self._pauses.append(seconds)
        await asyncio.sleep(0)


async def test_a_server_that_is_down_is_retried_and_the_cache_says_it_does_not_know(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """No answer for longer than the stale time: not synced. When the server answers again: synced."""
    timing = WatchTiming(server_seconds=(1, 1), silence_seconds=0.2, stale_seconds=0.6, backoff_seconds=(0.05, 0.1))
    down = reply(status(503, "ServiceUnavailable", "starting"), code=503)
    api.lists.append(listing("10", pod("a", "5")))
    api.watches.extend([down] * 10_000)
    async with client_of(api, tmp_path, timing) as client, following(client) as seen:
        await seen.until("a")
        await eventually(lambda: not seen.informer.is_synced and "503" in (seen.informer.last_error or ""))
        assert seen.informer.last_contact_age() > timing.stale_seconds
        api.watches.clear()
        async with asyncio.timeout(DEADLINE_S):
            await seen.informer.wait_synced()


async def test_a_partial_list_deletes_nothing(api: ScriptedApi, tmp_path: Path) -> None:
    """The second page fails: the cache keeps what it has."""
    api.lists.extend(
        [
            listing("10", pod("a", "5"), pod("b", "6")),
            listing("20", pod("a", "5"), continue_="more"),
            reply(status(503, "ServiceUnavailable", "gone"), code=503),
            listing("21", pod("a", "5"), pod("b", "6"), pod("c", "20")),
        ]
    )
    api.watches.append(stream(line("ERROR", status(410, "Expired", "too old")), end="close"))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a", "b", "c")
        assert not [change for change in seen.changes if change[0] is ChangeKind.DELETED]


async def test_an_object_that_was_replaced_meanwhile_is_deleted_and_added(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.extend([listing("10", pod("a", "5", uid="one")), listing("20", pod("a", "15", uid="two"))])
    api.watches.append(reply(status(410, "Expired", "too old"), code=410))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await seen.until("a", version="15")
        assert [(kind, version) for kind, _, version in seen.changes] == [
            (ChangeKind.ADDED, "5"),
            (ChangeKind.DELETED, "5"),
            (ChangeKind.ADDED, "15"),
        ]


async def test_a_kind_that_is_not_served_is_never_an_empty_list(api: ScriptedApi, tmp_path: Path) -> None:
    """Not synced, with the reason; synced as soon as the kind appears."""
    api.lists.extend([reply({"not": "a status"}, code=404)] * 3)
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await eventually(lambda: seen.informer.last_error is not None)
        assert not seen.informer.is_synced
        api.lists.append(listing("10", pod("a", "5")))
        await seen.until("a")
        assert seen.informer.is_synced


async def test_an_unreadable_object_makes_the_cache_unsynced(api: ScriptedApi, tmp_path: Path) -> None:
    """What does not fit the view cannot be ignored: the cache would miss an object without saying so."""
    api.lists.extend([listing("10", pod("a", "5")), listing("20", pod("a", "5"), pod("b", "11", nodeName=7))])
    api.watches.append(stream(line("ADDED", pod("b", "11", nodeName=7))))
    async with client_of(api, tmp_path) as client, following(client) as seen:
        await eventually(lambda: "nodeName" in (seen.informer.last_error or "") and not seen.informer.is_synced)


async def test_a_watch_with_an_expired_token_goes_on_with_the_new_one(api: ScriptedApi, tmp_path: Path) -> None:
    """No new list and no moment of doubt, only new credentials."""
    api.lists.append(listing("10", pod("a", "5")))
    refused = reply(status(401, "Unauthorized", "Unauthorized"), code=401)
    api.watches.extend([stream(bookmark("11"), end="close"), refused, stream(line("ADDED", pod("b", "12")))])
    async with client_of(api, tmp_path) as client, following(client) as seen:
        api.write_kubeconfig(tmp_path, token="rotated")
        await seen.until("a", "b")
        assert seen.informer.relists == 1
    tokens = [request.headers["Authorization"] for request in api.requests if "watch" in request.query]
    assert tokens[:3] == ["Bearer secret", "Bearer secret", "Bearer rotated"]


async def test_a_handler_error_ends_the_informer(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.append(listing("10", pod("a", "5")))

    def fail(_: Change[Pod]) -> None:
        raise ArithmeticError("a bug in the handler")

    async with client_of(api, tmp_path) as client, asyncio.timeout(DEADLINE_S):
        with pytest.raises(ArithmeticError):
            await Informer(client, PODS, on_change=fail).run()
