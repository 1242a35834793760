"""What a network and an API server can do to a single request, and the credentials that it carries."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from overspill_events.catalog import PodRef
from overspill_kube.client import Client, connect
from overspill_kube.effects import PdbBlocked, evict, record_event
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.outcomes import Done, Throttled
from overspill_kube.resources import EVENTS, PODS
from overspill_kube.settings import KubeSettings
from overspill_objects.meta import ObjectReference
from tests.support.scripted_api import (
    Answer,
    ScriptedApi,
    kubeconfig,
    listing,
    pod,
    reply,
    scripted_api,
    silence,
    status,
)

TARGET = PodRef(namespace="ns", name="a", uid="uid-a")


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as server:
        yield server


@pytest.fixture
async def client(api: ScriptedApi, tmp_path: Path) -> AsyncIterator[Client]:
    settings = KubeSettings(kubeconfig=str(api.write_kubeconfig(tmp_path)), user_agent="overspill-test")
    async with connect(settings) as made:
        yield made


def bearer(token: str, body: object) -> Answer:
    """Answers only who has this token, as an API server does."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == f"Bearer {token}":
            return web.json_response(body)
        return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)

    return answer


async def test_a_rotated_token_is_picked_up_when_the_old_one_is_refused(
    api: ScriptedApi, client: Client, tmp_path: Path
) -> None:
    api.lists.extend([bearer("secret", pod("a", "1"))] + [bearer("rotated", pod("a", "1"))] * 3)
    assert await client.get(PODS, "a", "ns") is not None
    api.write_kubeconfig(tmp_path, token="rotated\n")
    assert await client.get(PODS, "a", "ns") is not None
    assert await client.get(PODS, "a", "ns") is not None
    tokens = [request.headers["Authorization"] for request in api.requests]
    assert tokens == ["Bearer secret", "Bearer secret", "Bearer rotated", "Bearer rotated"]


async def test_credentials_that_stay_wrong_are_an_error_and_not_a_loop(api: ScriptedApi, client: Client) -> None:
    api.lists.extend([bearer("another", {})] * 9)
    for _ in range(2):
        with pytest.raises(KubeError) as caught:
            await client.get(PODS, "a", "ns")
        assert caught.value.status == 401
    assert len(api.requests) == 3, "one renewal within a few seconds, not one per request"


async def test_a_token_file_is_read_without_its_newline(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    config = kubeconfig(api.url, "")
    config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    api.lists.append(bearer("from-a-file", pod("a", "1")))
    async with connect(KubeSettings(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        assert await client.get(PODS, "a", "ns") is not None


async def test_the_two_meanings_of_429(api: ScriptedApi, client: Client) -> None:
    """A budget says "not this pod"; throttling says "not so fast" and how long to wait."""
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    blocked = status(429, "TooManyRequests", "Cannot evict pod as it would violate the budget.", causes=[cause])
    busy = status(429, "TooManyRequests", "the server is overloaded", retryAfterSeconds=3)
    api.lists.extend([reply(pod("a", "1"))] * 3)
    api.others.append(reply(blocked, code=429))
    outcome = await evict(client, TARGET)
    assert isinstance(outcome, PdbBlocked)
    assert outcome.pdb == "web"
    assert "needs 2 healthy pods" in outcome.message
    api.others.append(reply(busy, code=429))
    assert isinstance(outcome := await evict(client, TARGET), Throttled)
    assert outcome.retry_after == 3
    api.others.append(reply(busy, code=429, headers={"Retry-After": "7"}))
    assert isinstance(outcome := await evict(client, TARGET), Throttled)
    assert outcome.retry_after == 7


async def test_an_eviction_always_carries_the_uid(api: ScriptedApi, client: Client) -> None:
    api.lists.append(reply(pod("a", "1")))
    api.others.append(reply(status(201, "", "ok"), code=201))
    await evict(client, TARGET, grace=5)
    sent = json.loads(api.bodies[-1])
    assert sent["deleteOptions"] == {"preconditions": {"uid": "uid-a"}, "gracePeriodSeconds": 5}


async def test_a_read_that_is_throttled_says_when_to_come_back(api: ScriptedApi, client: Client) -> None:
    api.lists.append(reply(status(429, "TooManyRequests", "busy"), code=429, headers={"Retry-After": "4"}))
    with pytest.raises(KubeUnavailable) as caught:
        await client.list(PODS)
    assert caught.value.retry_after == 4


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_server_in_trouble_is_unavailable(api: ScriptedApi, client: Client, code: int) -> None:
    api.others.append(reply({"oops": True}, code=code))
    with pytest.raises(KubeUnavailable) as caught:
        await client.create(EVENTS, {"metadata": {"name": "e"}}, "ns")
    assert caught.value.status == code


async def test_a_request_without_an_answer_ends_in_time(api: ScriptedApi, tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    api.lists.append(never)
    settings = KubeSettings(kubeconfig=str(api.write_kubeconfig(tmp_path)), request_seconds=0.2)
    async with connect(settings) as client:
        with pytest.raises(KubeUnavailable):
            await client.get(PODS, "a", "ns")


async def test_nobody_at_the_other_end_is_unavailable(tmp_path: Path) -> None:
    async with scripted_api() as server:
        path = server.write_kubeconfig(tmp_path)
    async with connect(KubeSettings(kubeconfig=str(path))) as client:
        with pytest.raises(KubeUnavailable):
            await client.get(PODS, "a", "ns")


async def test_a_list_is_whole_or_an_error(api: ScriptedApi, client: Client) -> None:
    gone = reply(status(410, "Expired", "the continue token is too old"), code=410)
    api.lists.extend([listing("5", pod("a", "1"), continue_="next"), gone])
    api.lists.extend([listing("6", pod("a", "1"), continue_="next"), listing("6", pod("b", "2"))])
    whole = await client.list(PODS)
    assert [item.metadata.name for item in whole.items] == ["a", "b"]
    assert whole.resource_version == "6"
    assert all("resourceVersion" not in request.query for request in api.requests), "a live read, not a cached one"
    api.lists.extend([listing("7", pod("a", "1"), continue_="next"), reply({}, code=500)])
    with pytest.raises(KubeUnavailable):
        await client.list(PODS)


async def test_an_expired_list_is_not_begun_anew_for_ever(api: ScriptedApi, client: Client) -> None:
    gone = reply(status(410, "Expired", "too old"), code=410)
    api.lists.extend([listing("5", pod("a", "1"), continue_="next"), gone] * 10)
    with pytest.raises(KubeUnavailable):
        await client.list(PODS)
    assert len(api.requests) == 6


async def test_an_empty_list_may_be_null(api: ScriptedApi, client: Client) -> None:
    api.lists.append(reply({"metadata": {"resourceVersion": "5"}, "items": None}))
    assert (await client.list(PODS)).items == ()


async def test_names_are_quoted_in_paths(api: ScriptedApi, client: Client) -> None:
    api.lists.append(reply(status(404, "NotFound", "no", name="x"), code=404))
    await client.get(PODS, "a/../b?c", "ns")
    assert api.requests[0].raw_path == "/api/v1/namespaces/ns/pods/a%2F..%2Fb%3Fc"


async def test_every_request_says_who_asks_and_is_measured(api: ScriptedApi, tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []
    settings = KubeSettings(kubeconfig=str(api.write_kubeconfig(tmp_path)), user_agent="overspill-test")
    async with connect(settings, on_request=lambda method, path, code, _: seen.append((method, path, code))) as client:
        api.others.append(reply(pod("a", "1"), code=201))
        assert isinstance(await client.create(PODS, {"metadata": {"name": "a"}}, "ns"), Done)
    assert api.requests[0].headers["User-Agent"] == "overspill-test"
    assert api.requests[0].query["fieldManager"] == "overspill-test"
    assert seen == [("POST", "/api/v1/namespaces/ns/pods", 201)]


@pytest.mark.parametrize("answer", [reply({}, code=503), reply({}, code=401), reply("no object"), silence()])
async def test_a_note_that_cannot_be_left_hurts_nobody(api: ScriptedApi, tmp_path: Path, answer: Answer) -> None:
    """Nor does it hold anybody up: who is slow with notes is not waited for as long as for what matters."""
    api.others.append(answer)
    involved = ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="a", uid="u")
    settings = KubeSettings(kubeconfig=str(api.write_kubeconfig(tmp_path)), request_seconds=3600.0)
    async with connect(settings) as client:
        assert not await record_event(client, involved, reason="R", message="m", component="overspill-test")


async def test_a_server_on_this_machine_is_not_asked_through_a_proxy(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl does: whoever has a proxy in the environment can still use the lab."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api.lists.append(reply(pod("a", "1")))
    async with connect(KubeSettings(kubeconfig=str(api.write_kubeconfig(tmp_path)))) as client:
        assert await client.get(PODS, "a", "ns") is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "kubeconfig"),
        ("not: [yaml", "kubeconfig"),
        ("{}", "kubeconfig"),
        ('{"current-context": "x", "contexts": [], "clusters": [], "users": []}', "x"),
    ],
)
async def test_an_unusable_kubeconfig_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        async with connect(KubeSettings(kubeconfig=str(path))):
            pass
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        async with connect(KubeSettings(kubeconfig=str(tmp_path / "absent"))):
            pass
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="OVERSPILL_KUBECONFIG"):
        async with connect(KubeSettings()):
            pass


async def test_the_context_can_be_chosen(api: ScriptedApi, tmp_path: Path) -> None:
    config = kubeconfig(api.url, "secret")
    config["contexts"].append({"name": "other", "context": {"cluster": "test", "user": "other"}})
    config["users"].append({"name": "other", "user": {"token": "other-token"}})
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    api.lists.append(bearer("other-token", pod("a", "1")))
    async with connect(KubeSettings(kubeconfig=str(path), context="other")) as client:
        assert await client.get(PODS, "a", "ns") is not None


def test_the_generated_models_stay_out_and_a_normal_import_still_works() -> None:
    """The library is imported without its 1,500 models, which a later import still finds."""
    script = (
        "import sys, overspill_kube.client\n"
        "assert not [name for name in sys.modules if 'kubernetes_asyncio.client.models' in name]\n"
        "assert 'kubernetes_asyncio' not in sys.modules\n"
        "import kubernetes_asyncio\n"
        "assert kubernetes_asyncio.client.V1Pod is not None\n"
        "assert kubernetes_asyncio.client.ApiClient is not object\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_cancelling_a_request_leaves_the_client_usable(api: ScriptedApi, client: Client) -> None:
    arrived = asyncio.Event()

    async def never(_: web.Request) -> web.StreamResponse:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    api.lists.append(never)
    task = asyncio.create_task(client.get(PODS, "a", "ns"))
    await asyncio.wait_for(arrived.wait(), 20)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    api.lists.append(reply(pod("a", "1")))
    assert await client.get(PODS, "a", "ns") is not None
