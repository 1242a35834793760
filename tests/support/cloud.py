"""The lab's GPU cloud as a process of its own, with what tests ask of it: its audit, its bill, its faults."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from overspill_providers.fake import FakeCloudProvider

FAST = ("--queue-seconds", "0.02", "--provision-seconds", "0.05", "--start-seconds", "0.05", "--stop-seconds", "0.05")
START_WITHIN_S = 30.0


class Cloud:
    """A running cloud."""

    def __init__(self, url: str, token: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.token = token
        self._session = session

    @property
    def setting(self) -> str:
        """As OVERSPILL_BRIDGE_PROVIDERS wants it."""
        return f"fake={self.url}?token={self.token}"

    @contextlib.asynccontextmanager
    async def provider(self) -> AsyncIterator[FakeCloudProvider]:
        provider = FakeCloudProvider(url=self.url, token=self.token, name="fake")
        try:
            yield provider
        finally:
            await provider.close()

    async def call(self, method: str, path: str, body: object = None) -> Any:
        async with self._session.request(method, self.url + path, json=body) as response:
            assert response.status < 300, (response.status, await response.text())
            return await response.json()

    async def audit(self) -> Any:
        return await self.call("GET", "/v1/audit")

    async def living(self) -> list[Any]:
        return [instance for instance in (await self.audit())["instances"] if instance["living"]]

    async def faults(self, **switches: Any) -> None:
        await self.call("PUT", "/v1/faults", {name.replace("_", "-"): setting for name, setting in switches.items()})

    async def end(self, instance_id: str, state: str, exit_code: int | None = None) -> None:
        await self.call("POST", f"/v1/instances/{instance_id}/end", {"state": state, "exitCode": exit_code})

    async def rent(self, name: str, *, offering: str = "a100-1x-north", tags: dict[str, str] | None = None) -> str:
        """An instance that the bridge did not make."""
        body = {"name": name, "offering": offering, "image": "none", "tags": tags or {}}
        return str((await self.call("POST", "/v1/instances", body))["id"])


@contextlib.asynccontextmanager
async def cloud(*arguments: str) -> AsyncIterator[Cloud]:
    """A cloud that is fast, ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "overspill_lab.cloud", *FAST, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_WITHIN_S):
            line = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {line['token']}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield Cloud(line["url"], line["token"], session)
    finally:
        process.terminate()
        await process.communicate()
