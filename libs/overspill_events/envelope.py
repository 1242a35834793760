"""What travels around a payload: CloudEvents 1.0 in binary mode, one header per attribute.

Headers are written in lower case and read through a lower-cased copy, because NATS keeps the case of names while
CloudEvents ignores it. This module must not know payloads or how a message is carried.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import quote, unquote
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from msgspec import Meta, Struct

from overspill_events.errors import EventError
from overspill_events.subjects import readable_key

# CloudEvents' NATS binding: space, double quote, per cent and everything outside U+0021-U+007E are percent-encoded.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_NOTHING_TO_ESCAPE = re.compile(r"[!#$&-~]*")
_DERIVED_IDS = UUID(str(uuid5(NAMESPACE_URL, "https://overspill.dev/events")))

# Years 1 and 9999 have moments that no other time zone can write, and arithmetic around them overflows in every reader.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)

Filled = Annotated[str, Meta(min_length=1)]


class Envelope(Struct, frozen=True, kw_only=True):
    """Everything about an event but its payload.

    `sequence` numbers the events of one `source` within one `epoch` (a process start, "<milliseconds>-<4 hex>") from 1
    without a gap; 0: not numbered yet, the number is given when the event is sent. `stream_sequence` is the record's
    own number, absent before it is stored.
    """

    id: str
    type: str
    source: str
    time: datetime
    subject: str  # the NATS subject
    epoch: str
    sequence: int
    correlation_id: str
    causation_id: str | None = None
    traceparent: str | None = None
    stream_sequence: int | None = None


class _Attributes(Struct, frozen=True, kw_only=True, rename=lambda name: f"ce-{name}"):
    """The headers as they are on the wire, decoded."""

    specversion: Literal["1.0"]
    id: Filled
    source: Filled
    type: Filled
    time: Annotated[datetime, Meta(tz=True)]
    epoch: Filled
    sequence: Annotated[str, Meta(pattern="^[0-9]{1,15}$")]
    correlationid: Filled
    causationid: str | None = None
    traceparent: str | None = None


def source_uri(cluster: str, service: str, shard: str = "") -> str:
    """Who speaks, for `ce-source`: /overspill/<cluster>/<service>[/<shard>]."""
    return "/".join(["/overspill", cluster, service, *([shard] if shard else [])])


def derived_id(causation_id: str, ce_type: str, *key: str) -> str:
    """The id of an event that follows from another: an input handled twice gives the same id, which is stored once."""
    return str(uuid5(_DERIVED_IDS, "\n".join((causation_id, ce_type, *key))))


def to_headers(envelope: Envelope) -> dict[str, str]:
    """CloudEvents headers for a message. Raises EventError for a value that cannot be written as UTF-8."""
    attributes = {
        "specversion": "1.0",
        "id": envelope.id,
        "source": envelope.source,
        "type": envelope.type,
        "subject": readable_key(envelope.subject),
        "time": envelope.time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "epoch": envelope.epoch,
        "sequence": f"{envelope.sequence:012d}",  # zero-padded: ordered as text, too
        "correlationid": envelope.correlation_id,
        "causationid": envelope.causation_id,
        "traceparent": envelope.traceparent,
    }
    return {f"ce-{name}": _escaped(name, value) for name, value in attributes.items() if value}


def from_headers(headers: Mapping[str, str] | None, *, subject: str, stream_sequence: int | None = None) -> Envelope:
    """The envelope of a received message.

    Raises EventError naming the header that is missing or wrong, for instance for a message that is no CloudEvent.
    """
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    decoded = {name: _unescaped(name, value) for name, value in lowered.items() if name.startswith("ce-")}
    try:
        read = msgspec.convert(decoded, _Attributes)
    except msgspec.ValidationError as error:
        raise EventError(f"headers of {subject}: {error}") from None
    if not EARLIEST <= read.time < LATEST:
        raise EventError(f"headers of {subject}: ce-time {lowered['ce-time']!r} is not accepted: years 1970 to 8999")
    return Envelope(
        id=read.id,
        type=read.type,
        source=read.source,
        time=read.time,
        subject=subject,
        epoch=read.epoch,
        sequence=int(read.sequence),
        correlation_id=read.correlationid,
        causation_id=read.causationid,
        traceparent=read.traceparent or lowered.get("traceparent"),
        stream_sequence=stream_sequence,
    )


def _escaped(name: str, value: str) -> str:
    if _NOTHING_TO_ESCAPE.fullmatch(value):
        return value
    try:
        return quote(value, safe=_PLAIN)
    except UnicodeEncodeError as error:
        raise EventError(f"ce-{name}: {error}") from None


def _unescaped(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise EventError(f"{name}: percent-encoded bytes are not UTF-8: {error}") from None
