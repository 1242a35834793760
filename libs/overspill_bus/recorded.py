"""An event as a reader gets it from the stream. This module must not know who reads."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from nats.aio.msg import Msg

from overspill_events import Envelope, EventError, decode, from_headers
from overspill_events.catalog import Event


class Recorded(Struct, frozen=True, kw_only=True):
    """What the stream holds: `event` is absent for a type this reader does not know, and when `error` says why not.

    With an error in the headers the envelope is what the stream itself knows: type, source and epoch are empty and the
    number is 0. `redelivered`: it came before, and may have been handled; `stored_at` is the stream's time.
    """

    envelope: Envelope
    event: Event | None
    data: bytes
    redelivered: int
    stored_at: datetime
    error: str | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """One message out of a stream and where it stands there and with its consumer."""

    subject: str
    headers: Mapping[str, str]
    data: bytes
    reply: str
    stream_sequence: int
    consumer_sequence: int
    deliveries: int
    pending: int  # that match and come after it
    stored_at: datetime


def delivery_of(message: Msg) -> Delivery:
    """A JetStream message with its metadata, which travels in the reply subject."""
    metadata = message.metadata
    return Delivery(
        subject=message.subject,
        headers=message.headers or {},
        data=message.data,
        reply=message.reply,
        stream_sequence=metadata.sequence.stream,
        consumer_sequence=metadata.sequence.consumer,
        deliveries=metadata.num_delivered,
        pending=metadata.num_pending,
        stored_at=metadata.timestamp,
    )


def recorded(delivery: Delivery, *, retries: int = 0) -> Recorded:
    """The event in a message; what cannot be read is told in `error`, never raised: a reader goes on."""
    event, error = None, None
    try:
        envelope = from_headers(delivery.headers, subject=delivery.subject, stream_sequence=delivery.stream_sequence)
    except EventError as unreadable:
        envelope, error = _bare_envelope(delivery), str(unreadable)
    else:
        try:
            event = decode(envelope.type, delivery.data)
        except EventError as unreadable:
            error = str(unreadable)
    return Recorded(
        envelope=envelope,
        event=event,
        data=delivery.data,
        redelivered=delivery.deliveries - 1 + retries,
        stored_at=delivery.stored_at,
        error=error,
    )


def _bare_envelope(delivery: Delivery) -> Envelope:
    identity = f"stream-sequence-{delivery.stream_sequence}"
    return Envelope(
        id=identity,
        type="",
        source="",
        time=delivery.stored_at,
        subject=delivery.subject,
        epoch="",
        sequence=0,
        correlation_id=identity,
        stream_sequence=delivery.stream_sequence,
    )
