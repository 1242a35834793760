"""The vocabulary of Overspill: events, reasons, names, subjects. Imports msgspec and nothing else.

Auditors and tests get the words from here without a bus and without a cluster.
"""

from overspill_events.coding import decode, encode
from overspill_events.envelope import Envelope, derived_id, from_headers, source_uri, to_headers
from overspill_events.errors import EventError
from overspill_events.subjects import subject_filter, subject_for, subject_token

__all__ = [
    "Envelope",
    "EventError",
    "decode",
    "derived_id",
    "encode",
    "from_headers",
    "source_uri",
    "subject_filter",
    "subject_for",
    "subject_token",
    "to_headers",
]
