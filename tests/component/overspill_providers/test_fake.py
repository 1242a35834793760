"""The first provider against the real cloud process, and against a server that lies."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from overspill_providers.errors import ErrorKind, ProviderError
from overspill_providers.fake import PAGE_SIZE, FakeCloudProvider
from overspill_providers.protocol import CreateRequest, InstanceState
from tests.support.cloud import cloud

REQUEST = CreateRequest(key="key", offering="a100-1x-north", image="image", tags={"tag": "value"}, env={"A": "b"})


async def test_an_instance_runs_and_is_terminated_twice_without_harm():
    async with cloud() as one, one.provider() as provider:
        created = await provider.create(REQUEST)
        assert created.committed
        async with asyncio.timeout(20):
            while (found := (await provider.list()).instances[0]).state is not InstanceState.RUNNING:  # noqa: ASYNC110 -- a cloud has no event to wait for
                await asyncio.sleep(0.02)
        assert (found.key, found.tags, found.gpus, found.price_per_hour) == ("key", {"tag": "value"}, 1, 1.89)
        assert found.running_at > found.created_at
        await provider.terminate(created.instance_id)
        await provider.terminate(created.instance_id)
        await provider.terminate("never-there")
        async with asyncio.timeout(20):
            while (await provider.list()).instances:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.02)


async def test_a_list_of_many_pages_is_complete():
    async with cloud() as one, one.provider() as provider:
        wanted = {await one.rent(f"n-{number}", offering="a100-1x-north") for number in range(PAGE_SIZE - 1)}
        wanted |= {await one.rent("n", offering="h100-1x-south") for _ in range(5)}
        inventory = await provider.list()
        assert inventory.complete
        assert {instance.id for instance in inventory.instances} == wanted


async def test_faults_arrive_as_what_they_are():
    async with cloud() as one, one.provider() as provider:
        await one.faults(no_capacity={"times": 1}, list_incomplete={"times": 1})
        with pytest.raises(ProviderError) as refusal:
            await provider.create(REQUEST)
        assert refusal.value.kind is ErrorKind.NO_CAPACITY
        await provider.create(REQUEST)
        assert not (await provider.list()).complete
        assert (await provider.list()).complete
        await one.faults(list_error={})
        with pytest.raises(ProviderError) as refusal:
            await provider.list()
        assert refusal.value.kind is ErrorKind.UNKNOWN


async def test_a_lost_answer_is_unknown_and_the_create_is_not_repeated():
    async with cloud() as one, one.provider() as provider:
        await one.faults(create_answer_lost={"times": 1})
        with pytest.raises(ProviderError) as error:
            await provider.create(REQUEST)
        assert error.value.kind is ErrorKind.UNKNOWN
        assert len((await one.audit())["instances"]) == 1


async def test_a_wrong_token_and_a_wrong_offering_blame_whom_they_concern():
    async with cloud() as one, one.provider() as provider:
        stranger = FakeCloudProvider(url=one.url, token="wrong", name="stranger")
        with pytest.raises(ProviderError) as error:
            await stranger.list()
        await stranger.close()
        assert error.value.kind is ErrorKind.AUTH
        with pytest.raises(ProviderError) as error:
            await provider.create(CreateRequest(key="k", offering="abacus", image="i"))
        assert error.value.kind is ErrorKind.INVALID
        assert "abacus" in error.value.message


@contextlib.asynccontextmanager
async def answering(status, body, *, headers=None, delay=0.0):
    """A server that gives every request the same answer."""

    async def handle(_):
        await asyncio.sleep(delay)
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider = FakeCloudProvider(url=f"http://127.0.0.1:{runner.addresses[0][1]}", token="t", name="liar", timeout=0.5)
    try:
        yield provider
    finally:
        await provider.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b'{"error": {"code": "no-capacity", "message": "a 5xx blames nobody"}}', ErrorKind.UNKNOWN),
        (503, b"<html>", ErrorKind.UNKNOWN),
        (201, b"not json", ErrorKind.UNKNOWN),
        (201, b"{}", ErrorKind.UNKNOWN),
        (401, b"", ErrorKind.AUTH),
        (402, b"", ErrorKind.PAYMENT),
        (422, b'{"error": {"code": "image", "message": "no such image"}}', ErrorKind.IMAGE),
        (400, b'{"error": {"code": "quota-exceeded", "message": "10 at most"}}', ErrorKind.QUOTA),
        (418, b"short and stout", ErrorKind.UNKNOWN),
    ],
)
async def test_every_answer_to_a_create_has_its_kind(status, body, kind):
    async with answering(status, body) as provider:
        with pytest.raises(ProviderError) as error:
            await provider.create(REQUEST)
        assert error.value.kind is kind


async def test_a_rate_limit_says_for_how_long():
    async with answering(429, b"", headers={"Retry-After": "7"}) as provider:
        with pytest.raises(ProviderError) as error:
            await provider.list()
        assert (error.value.kind, error.value.retry_after) == (ErrorKind.RATE_LIMITED, 7.0)


async def test_silence_and_refused_connections_are_unknown():
    async with answering(200, b"", delay=5) as provider:
        with pytest.raises(ProviderError) as error:
            await provider.terminate("i")
        assert error.value.kind is ErrorKind.UNKNOWN
    nobody = FakeCloudProvider(url="http://127.0.0.1:1", token="t", name="nobody")
    with pytest.raises(ProviderError) as error:
        await nobody.offerings()
    await nobody.close()
    assert error.value.kind is ErrorKind.UNKNOWN


async def test_a_list_with_one_unreadable_instance_is_no_list():
    body = b'{"instances": [{"id": "i", "name": "n", "state": "running"}], "complete": true, "next": null}'
    async with answering(200, body) as provider:
        with pytest.raises(ProviderError):
            await provider.list()


async def test_an_unknown_state_is_kept_as_unknown():
    body = (
        b'{"instances": [{"id": "i", "name": "n", "state": "hibernating", "offering": "o", "gpus": 1, '
        b'"pricePerHour": 1.0, "createdAt": "2026-01-01T00:00:00Z"}], "complete": true, "next": null}'
    )
    async with answering(200, body) as provider:
        (instance,) = (await provider.list()).instances
        assert instance.state is InstanceState.UNKNOWN
        assert instance.is_living


async def test_pages_without_end_are_an_incomplete_list():
    body = b'{"instances": [], "complete": true, "next": "1"}'
    async with answering(200, body) as provider:
        assert not (await provider.list()).complete
