"""What the outside view makes of the stream's messages."""

from datetime import UTC, datetime

from overspill_bus import Recorded
from overspill_demo.watching import Stream
from overspill_events.envelope import Envelope

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def message(sequence: int, *, source: str = "/overspill/lab/bridge", stream: int = 1) -> Recorded:
    envelope = Envelope(
        id=f"{source}-{sequence}", type="t", source=source, time=NOW, subject="overspill.v1.lab.x", epoch="e" if source else "",
        sequence=sequence, correlation_id="c", stream_sequence=stream,
    )  # fmt: skip
    return Recorded(envelope=envelope, event=None, data=b"", redelivered=0, stored_at=NOW)


def test_gaps_are_missing_numbers_of_a_source():
    """From 1 to the highest seen."""
    stream = Stream()
    for sequence in (1, 2, 5):
        stream.take(message(sequence))
    assert stream.gaps() == {"/overspill/lab/bridge e": 2}


def test_a_message_that_is_no_event_is_counted_and_is_no_gap():
    """Its headers could not be read: no source, number 0."""
    stream = Stream()
    stream.take(message(0, source="", stream=7))
    assert (stream.events, stream.last, stream.gaps()) == (1, 7, {})
