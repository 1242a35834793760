"""A lab API server of its own for every test, over real HTTP on a free port."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from overspill_lab.apiserver import bootstrap
from overspill_lab.apiserver.documents import utc_now
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.server import application
from overspill_lab.apiserver.store import Store

TOKEN = "a-token"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "example/image:1"}]}}
PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Api:
    """A client that shows what the server answered: (status, document)."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str | None = None, **params: str
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": content_type or "application/json"} if body is not None else {}
        data = body if isinstance(body, bytes | None) else aiohttp.payload.JsonPayload(body)
        async with self.session.request(method, self.url + path, data=data, headers=headers, params=params) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str, **params: str) -> tuple[int, dict[str, Any]]:
        return await self.call("GET", path, **params)

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """Call and expect success; returns the document."""
        status, document = await self.call(method, path, body, **options)
        assert status < 300, document
        return document

    async def pod(self, name: str = "p", **parts: Any) -> dict[str, Any]:
        """Create a pod; `spec` members and `labels` may be given."""
        spec = {**POD["spec"], **parts.get("spec", {})}
        metadata = {"name": name, "labels": parts.get("labels", {}), **parts.get("metadata", {})}
        return await self.ok("POST", PODS, {"metadata": metadata, "spec": spec})


@pytest.fixture
def history() -> int:
    return 10_000


@pytest.fixture
async def registry(history: int) -> Registry:
    registry = Registry(Store(history=history), utc_now)
    bootstrap.fill(registry)
    return registry


@pytest.fixture
async def url(registry: Registry) -> AsyncIterator[str]:
    runner = web.AppRunner(application(registry, token=TOKEN), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield Api(session, url)
