"""The streams, declared once: EVENTS is the record, DLQ keeps what could not be handled, with its original.

The declaration wins: a stream that differs is updated, so that a limit is changed in the settings and not on the
server. This module must not know who publishes or reads.
"""

from collections.abc import Mapping
from typing import Any

from overspill_bus.errors import ApiError
from overspill_bus.jetstream import JetStream
from overspill_bus.settings import Topology
from overspill_events.subjects import DLQ, DLQ_SUBJECTS, STREAM, STREAM_SUBJECTS

_NANOSECONDS = 1_000_000_000
_STREAM_NOT_FOUND = 10059
_NAME_IN_USE = 10058  # created by somebody else in the meantime, with another configuration


def stream_configs(topology: Topology) -> tuple[dict[str, Any], ...]:
    """The streams as JetStream's API wants them."""
    shared = {
        "retention": "limits",
        "discard": "old",
        "storage": "file",
        "num_replicas": topology.replicas,
        "duplicate_window": _nanoseconds(topology.duplicate_window),
        "allow_direct": True,
        "max_consumers": -1,
        "max_msgs": -1,
    }
    return (
        {
            "name": STREAM,
            "description": "Every event of Overspill: what was decided and why",
            "subjects": [STREAM_SUBJECTS],
            "max_age": _nanoseconds(topology.max_age),
            "max_bytes": topology.max_bytes,
            **shared,
        },
        {
            "name": DLQ,
            "description": "Messages that could not be read or handled, with their original",
            "subjects": [DLQ_SUBJECTS],
            "max_age": _nanoseconds(topology.dead_letter_max_age),
            "max_bytes": topology.dead_letter_max_bytes,
            **shared,
        },
    )


async def ensure(jetstream: JetStream, topology: Topology) -> None:
    """Create what is missing and update what differs.

    Raises BusUnavailable while nobody answers, ApiError when the server refuses (say: no room for `max_bytes`).
    """
    for wanted in stream_configs(topology):
        await _ensure_stream(jetstream, wanted)


def drift(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stream that are not as declared; what we do not declare is the server's or the operator's."""
    return {name: value for name, value in wanted.items() if found.get(name) != value}


async def _ensure_stream(jetstream: JetStream, wanted: dict[str, Any]) -> None:
    name = wanted["name"]
    try:
        found = await jetstream.stream_config(name)
    except ApiError as error:
        if error.err_code != _STREAM_NOT_FOUND:
            raise
        try:
            await jetstream.create_stream(wanted)
        except ApiError as refused:
            if refused.err_code != _NAME_IN_USE:
                raise
            found = await jetstream.stream_config(name)
        else:
            return
    if drift(wanted, found):
        await jetstream.update_stream({**found, **wanted})


def _nanoseconds(seconds: float) -> int:
    return round(seconds * _NANOSECONDS)
