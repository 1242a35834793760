"""A bare HTTP client for the contract suite.

It is deliberately not our library: a suite that judges the lab through the library under test would share its mistakes. So
it sends what it is told and hands back status, headers and body, and no reply is an exception.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import json
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import yaml

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

# Generous: a busy two-core machine must not turn a slow answer into a failure. Nothing waits this long when all is well.
DEADLINE_S = 30.0
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=45)
# Long enough for a server that would answer wrongly to do so, short enough to be paid by every "nothing happens" test.
QUIET_S = 1.0

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where an API server is and how to be its admin."""

    url: str
    token: str | None = None
    ca_file: str | None = None
    client_files: tuple[str, str] | None = None  # certificate and key, where that is how the admin signs in

    def ssl(self) -> ssl.SSLContext | bool:
        """The trust that this server's certificate needs."""
        if self.ca_file is None:
            return True
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.client_files is not None:
            context.load_cert_chain(*self.client_files)
        return context


def endpoint_of(kubeconfig: Path) -> Endpoint:
    """The endpoint of a kubeconfig's current context. JSON is YAML, so any kubeconfig is read as YAML."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"]).get("user") or {}
    certificate = _file_of(user, "client-certificate")
    key = _file_of(user, "client-key")
    return Endpoint(
        url=cluster["server"].rstrip("/"),
        token=user.get("token"),
        ca_file=_file_of(cluster, "certificate-authority"),
        client_files=(certificate, key) if certificate and key else None,
    )


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _file_of(entry: Object, key: str) -> str | None:
    """The file that holds this part; one that stands in the kubeconfig itself is written to a file of its own."""
    inline = entry.get(f"{key}-data")
    if inline is None:
        return entry.get(key)
    with tempfile.NamedTemporaryFile(prefix="overspill-", suffix=f".{key}", delete=False) as file:
        atexit.register(os.unlink, file.name)
        file.write(base64.b64decode(inline))
    return file.name


@dataclass(frozen=True)
class Reply:
    """What the server said."""

    status: int
    body: Any
    headers: dict[str, str]

    def ok(self) -> Object:
        """The body of a reply that must be a success."""
        assert 200 <= self.status < 300, f"{self.status}: {self.body}"
        return self.body

    def not_taken(self) -> Object:
        """The Status object of a reply that must be a refusal, where the real server's code is an accident (a 500
        without a reason) that nobody should rely on.
        """
        assert self.status >= 400, f"expected a refusal, got {self.status}: {self.body}"
        assert (self.body["kind"], self.body["status"]) == ("Status", "Failure"), self.body
        return self.body

    def refused(self, status: int, reason: str | None = None) -> Object:
        """The Status object of a reply that must be a refusal of this kind."""
        assert self.status == status, f"expected {status}, got {self.status}: {self.body}"
        assert self.body["kind"] == "Status", self.body
        assert self.body["status"] == "Failure", self.body
        assert self.body["code"] == status, self.body
        if reason is not None:
            assert self.body["reason"] == reason, self.body
        return self.body


class Watch:
    """An open watch: its events, one at a time."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def next(self, within_s: float = DEADLINE_S) -> Object:
        """The next event. Raises EOFError when the server has ended the stream."""
        line = await asyncio.wait_for(self._reply.content.readline(), within_s)
        if not line:
            raise EOFError
        return json.loads(line)

    async def expect(self, kind: str, name: str) -> Object:
        """The object of the next event, which must be of this kind and about this name."""
        event = await self.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == (kind, name), event
        return event["object"]

    async def until(self, kind: str, name: str) -> Object:
        """The object of the first such event; others (of a busy collection) are passed over."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                event = await self.next()
                if (event["type"], event["object"]["metadata"].get("name")) == (kind, name):
                    return event["object"]

    async def quiet(self) -> None:
        """Assert that nothing comes for a while."""
        with contextlib.suppress(TimeoutError):
            event = await self.next(QUIET_S)
            raise AssertionError(f"expected no event, got {event}")

    async def rest(self) -> list[Object]:
        """Every event until the server ends the stream."""
        events = []
        with contextlib.suppress(EOFError):
            while True:
                events.append(await self.next())
        return events


class Api:
    """One connection pool to one API server."""

    def __init__(self, endpoint: Endpoint) -> None:
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        self.endpoint = endpoint
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=REQUEST_TIMEOUT, connector=aiohttp.TCPConnector(ssl=endpoint.ssl(), limit=50)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **params: str) -> Reply:
        """GET; keyword arguments are query parameters."""
        return await self.send("GET", path, params=params)

    async def post(self, path: str, body: Any, **params: str) -> Reply:
        """POST a JSON body."""
        return await self.send("POST", path, body=body, params=params)

    async def put(self, path: str, body: Any, **params: str) -> Reply:
        """PUT a JSON body."""
        return await self.send("PUT", path, body=body, params=params)

    async def patch(self, path: str, body: Any, kind: str = MERGE_PATCH, **params: str) -> Reply:
        """PATCH with the given content type."""
        return await self.send("PATCH", path, body=body, params=params, content_type=kind)

    async def delete(self, path: str, body: Any = None, **params: str) -> Reply:
        """DELETE, with DeleteOptions when given."""
        return await self.send("DELETE", path, body=body, params=params)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: dict[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Reply:
        """Send one request and read its whole reply; a reply that is not JSON is handed back as text."""
        data = None if body is None else json.dumps(body)
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        async with self._session.request(
            method, self.endpoint.url + path, data=data, headers=headers, params=params
        ) as reply:
            text = await reply.text()
            is_json = reply.content_type == "application/json"
            return Reply(reply.status, json.loads(text) if is_json else text, dict(reply.headers))

    @contextlib.asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json", **params: str) -> AsyncIterator[Watch]:
        """Open a watch that must be accepted; closed with the block."""
        address, asked = self.endpoint.url + path, {"watch": "true", **params}
        async with self._session.get(address, params=asked, headers={"Accept": accept}) as reply:
            assert reply.status == 200, f"{reply.status}: {await reply.text()}"
            yield Watch(reply)

    async def eventually(self, path: str, holds: Callable[[Object], Any], what: str) -> Object:
        """GET until the object holds the condition; fails with the last reply seen."""
        return (
            await eventually(lambda: self.get(path), lambda reply: reply.status == 200 and holds(reply.body), what)
        ).body

    async def gone(self, path: str) -> None:
        """GET until the server answers 404."""
        await eventually(lambda: self.get(path), lambda reply: reply.status == 404, f"{path} is gone")


async def eventually(read: Callable[[], Awaitable[T]], holds: Callable[[T], Any], what: str) -> T:
    """Read until the condition holds, with a deadline; fails with the last value seen."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        seen = await read()
        if holds(seen):
            return seen
        assert asyncio.get_running_loop().time() < deadline, f"never came: {what}; last seen: {seen}"
        await asyncio.sleep(0.1)
