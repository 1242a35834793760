"""Payloads to JSON and back, dispatched by the CloudEvents type.

Readers of today meet events of tomorrow: an unknown type is no error, unknown fields are ignored, unknown enumeration
members read as UNKNOWN. Writers are strict: what would not read back as it was is refused. This module must not know
envelopes or transport.
"""

import msgspec

from overspill_events.catalog import CATALOG, Event
from overspill_events.errors import EventError

_ENCODER = msgspec.json.Encoder()
_DECODERS = {ce_type: msgspec.json.Decoder(cls) for ce_type, cls in CATALOG.items()}


def encode(event: Event) -> bytes:
    """The payload as JSON.

    Construction checks nothing (msgspec), so the bytes are read back: NaN, a naive time, a broken constraint or a value
    of the wrong type raise EventError naming the field.
    """
    name = event.spec.name
    try:
        data = _ENCODER.encode(event)
        again = _DECODERS[event.spec.type].decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeError, ValueError) as error:
        raise EventError(f"{name}: {error}") from None
    if again != event:
        raise EventError(f"{name}: {_first_difference(event, again)}")
    return data


def decode(ce_type: str, data: bytes) -> Event | None:
    """The payload of a known type, or None for a type this reader does not know.

    Raises EventError naming the field for a payload that is not what its type promises.
    """
    decoder = _DECODERS.get(ce_type)
    if decoder is None:
        return None
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise EventError(f"{ce_type}: {error}") from None


def _first_difference(event: Event, again: Event) -> str:
    for field in event.__struct_fields__:
        written, read = getattr(event, field), getattr(again, field)
        if written != read:
            return f"{field}: {written!r} would be read as {read!r}"
    return "would not be read as it was written"
