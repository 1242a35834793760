"""JetStream's JSON API, as far as the bus uses it.

Spoken directly instead of through nats-py's objects: those ignore the configuration of a durable that exists, hide
error codes behind classes and leave consumers behind. This module must not know events.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from overspill_bus.connection import Connection
from overspill_bus.errors import ApiError

_API = "$JS.API"
_NO_MESSAGE = 10037
_ENCODER = msgspec.json.Encoder()


class StreamState(Struct, frozen=True, kw_only=True):
    """What a stream holds; sequences are 0 while it never held anything."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumer_count: int = 0


class StreamInfo(Struct, frozen=True, kw_only=True):
    """A stream: `created` tells a stream from its successor of the same name."""

    created: datetime
    config: dict[str, Any]
    state: StreamState


class Delivered(Struct, frozen=True, kw_only=True):
    """How far a consumer has come."""

    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """A consumer's state: `num_pending` messages match and were not delivered yet."""

    name: str
    delivered: Delivered = Delivered()
    ack_floor: Delivered = Delivered()
    num_pending: int = 0
    num_ack_pending: int = 0
    num_redelivered: int = 0
    config: dict[str, Any] = {}


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message as the stream keeps it."""

    subject: str
    sequence: int
    headers: dict[str, str]
    data: bytes


class JetStream:
    """Requests to JetStream. Every method raises ApiError for a refusal and BusUnavailable without an answer."""

    def __init__(self, connection: Connection, *, timeout: float = 5.0) -> None:
        self._connection = connection
        self._timeout = timeout

    async def stream_info(self, stream: str) -> StreamInfo:
        """State and configuration of a stream."""
        return msgspec.convert(await self._ask(f"STREAM.INFO.{stream}"), StreamInfo)

    async def stream_config(self, stream: str) -> dict[str, Any]:
        """The configuration as the server keeps it."""
        return (await self.stream_info(stream)).config

    async def create_stream(self, config: Mapping[str, Any]) -> None:
        """Create a stream; one that exists with the same configuration is left alone."""
        await self._ask(f"STREAM.CREATE.{config['name']}", config)

    async def update_stream(self, config: Mapping[str, Any]) -> None:
        """Change a stream to this configuration."""
        await self._ask(f"STREAM.UPDATE.{config['name']}", config)

    async def put_consumer(self, stream: str, config: Mapping[str, Any]) -> ConsumerInfo:
        """Create the consumer `config["name"]` or update it to this configuration."""
        body = {"stream_name": stream, "config": config}
        return msgspec.convert(await self._ask(f"CONSUMER.CREATE.{stream}.{config['name']}", body), ConsumerInfo)

    async def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        """State of a consumer."""
        return msgspec.convert(await self._ask(f"CONSUMER.INFO.{stream}.{consumer}"), ConsumerInfo)

    async def reset_consumer(self, stream: str, consumer: str, *, after: int = 0) -> ConsumerInfo:
        """Deliver everything after `after`, or else everything not acknowledged, in order and at once.

        Raises NoResponders before server 2.14.
        """
        query = {"seq": after + 1} if after else None
        return msgspec.convert(await self._ask(f"CONSUMER.RESET.{stream}.{consumer}", query), ConsumerInfo)

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Remove a consumer."""
        await self._ask(f"CONSUMER.DELETE.{stream}.{consumer}")

    async def message(self, stream: str, sequence: int, *, on: str | None = None) -> StoredMessage | None:
        """The stored message, read from the stream's leader; with `on`: the first on that subject from `sequence` on.

        None: there is none (any more).
        """
        query = {"seq": sequence, "next_by_subj": on} if on else {"seq": sequence}
        try:
            found = (await self._ask(f"STREAM.MSG.GET.{stream}", query))["message"]
        except ApiError as error:
            if error.err_code == _NO_MESSAGE:
                return None
            raise
        return StoredMessage(
            subject=found["subject"],
            sequence=found["seq"],
            headers=_headers(base64.b64decode(found.get("hdrs", ""))),
            data=base64.b64decode(found.get("data", "")),
        )

    async def _ask(self, action: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        payload = b"" if body is None else _ENCODER.encode(body)
        message = await self._connection.request(f"{_API}.{action}", payload, timeout=self._timeout)
        return checked(action, message.data)


def checked(what: str, reply: bytes) -> dict[str, Any]:
    """A reply of JetStream as a mapping. Raises ApiError when it is a refusal or no JSON object."""
    try:
        answer = msgspec.json.decode(reply, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ApiError(what, code=500, err_code=0, description=f"unreadable answer {reply[:80]!r}: {error}") from None
    if refusal := answer.get("error"):
        raise ApiError(
            what,
            code=refusal.get("code", 500),
            err_code=refusal.get("err_code", 0),
            description=refusal.get("description", ""),
        )
    return answer


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]  # the first is the protocol's version
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
