"""Messages that could not be read or handled, kept with their original.

A dead letter is a copy of the message, headers and all, plus headers of ours that say why and where the original stands
in the record. It is stored before the original is given up. This module must not know why a handler refused.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

from overspill_bus.connection import Connection
from overspill_bus.jetstream import checked
from overspill_bus.recorded import Delivery
from overspill_bus.sending import message_size
from overspill_events.subjects import DLQ, DLQ_ROOT, STREAM, SUBJECT_ROOT

_TIMEOUT: Final = 5.0
_PREFIX: Final = "overspill-"
_DETAIL_LIMIT: Final = 2000  # characters


class DeadReason(StrEnum):
    """Why a message was given up."""

    UNDECODABLE = "undecodable"
    POISON = "poison"  # its handler says that it can never be handled
    EXHAUSTED = "exhausted"  # it failed as often as it may


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that was given up: `stream_sequence` and `subject` are the original's in the record."""

    sequence: int
    reason: str
    detail: str
    durable: str
    subject: str
    stream_sequence: int
    deliveries: int
    headers: Mapping[str, str]
    data: bytes
    stored_at: datetime


async def bury(connection: Connection, delivery: Delivery, *, durable: str, reason: DeadReason, detail: str) -> None:
    """Store the dead letter; the same one again is stored once. Raises BusUnavailable, or ApiError for a refusal."""
    kept = {name: value for name, value in delivery.headers.items() if not name.lower().startswith("nats-")}
    headers = {
        **kept,
        "Nats-Msg-Id": f"{STREAM}:{delivery.stream_sequence}:{durable}",
        f"{_PREFIX}reason": reason.value,
        f"{_PREFIX}detail": quote(detail[:_DETAIL_LIMIT]),
        f"{_PREFIX}durable": durable,
        f"{_PREFIX}subject": delivery.subject,
        f"{_PREFIX}stream-sequence": str(delivery.stream_sequence),
        f"{_PREFIX}deliveries": str(delivery.deliveries),
    }
    data = delivery.data
    if message_size(headers, data) > connection.max_payload:
        data = b""  # the original stays reachable by its sequence
    subject = f"{DLQ_ROOT}.{durable}.{delivery.subject.removeprefix(SUBJECT_ROOT + '.')}"
    reply = await connection.request(subject, data, headers=headers, timeout=_TIMEOUT)
    checked(f"dead letter in {DLQ}", reply.data)


def dead_letter(delivery: Delivery) -> DeadLetter:
    """A message of the DLQ stream as what it tells."""
    ours = {name: value for name, value in delivery.headers.items() if name.startswith(_PREFIX)}
    return DeadLetter(
        sequence=delivery.stream_sequence,
        reason=ours.get(f"{_PREFIX}reason", ""),
        detail=unquote(ours.get(f"{_PREFIX}detail", "")),
        durable=ours.get(f"{_PREFIX}durable", ""),
        subject=ours.get(f"{_PREFIX}subject", ""),
        stream_sequence=int(ours.get(f"{_PREFIX}stream-sequence", "0")),
        deliveries=int(ours.get(f"{_PREFIX}deliveries", "0")),
        headers={name: value for name, value in delivery.headers.items() if name not in ours},
        data=delivery.data,
        stored_at=delivery.stored_at,
    )
