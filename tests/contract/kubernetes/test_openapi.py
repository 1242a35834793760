"""The schemas that kubectl asks for before it sends the items of a List; it reads them in one form only."""

from __future__ import annotations

import aiohttp

from tests.contract.kubernetes.client import REQUEST_TIMEOUT, Api, Endpoint

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
SWAGGER = b"\x0a\x032.0"  # the document's first member


async def test_the_second_version_is_served_as_json(api: Api) -> None:
    document = (await api.get("/openapi/v2")).ok()
    assert document["swagger"] == "2.0"
    assert {"info", "paths"} <= set(document)


async def test_the_second_version_is_served_as_protobuf(endpoint: Endpoint) -> None:
    headers = {"Accept": PROTOBUF} | ({"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {})
    async with (
        aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session,
        session.get(f"{endpoint.url}/openapi/v2", headers=headers, ssl=endpoint.ssl()) as reply,
    ):
        assert (reply.status, await reply.content.readexactly(len(SWAGGER))) == (200, SWAGGER)
        assert reply.content_type == PROTOBUF.replace("@", ".")
