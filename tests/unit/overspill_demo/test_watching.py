"""What the outside view makes of the stream's messages."""

from datetime import UTC, datetime

from overspill_bus import Recorded
from overspill_demo.invariants import Return
from overspill_demo.watching import Stream
from overspill_events.catalog import Event, OwnerRef, PodRef, ReturnIntended, ReturnSettled
from overspill_events.envelope import Envelope
from overspill_events.reasons import Place

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


# --- returns ------------------------------------------------------------------------------------------------------------


def told(stream: Stream, event: Event, *, name: str, cause: str | None = None) -> None:
    envelope = Envelope(
        id=name, type="t", source="/overspill/lab/evictor", time=NOW, subject="overspill.v1.lab.x", epoch="e",
        sequence=1, correlation_id="c", causation_id=cause, stream_sequence=1,
    )  # fmt: skip
    stream.take(Recorded(envelope=envelope, event=event, data=b"", redelivered=0, stored_at=NOW))


def pod(uid: str) -> PodRef:
    return PodRef(namespace="inference", name=uid, uid=uid)


def intended(uid: str) -> ReturnIntended:
    owner = OwnerRef(kind="ReplicaSet", name="r", uid="r")
    return ReturnIntended(pod=pod(uid), owner=owner, node="v", home_node="h", gpus=1, expires_at=NOW)


def settled(uid: str, place: Place) -> ReturnSettled:
    return ReturnSettled(pod=pod(uid), place=place, successor=pod(f"{uid}-heir") if place is Place.HOME else None)


def a_return(uid: str, *ends: Place, begun: bool = True) -> Return:
    return Return(uid=uid, pod=f"inference/{uid}", begun=begun, ends=ends)


def test_each_intent_has_the_ends_that_name_it_as_their_cause():
    """A pod may be intended twice: the first time it was not evicted. An end that comes first is of the same return."""
    stream = Stream()
    told(stream, intended("a"), name="a-1")
    told(stream, settled("a", Place.NOT_EVICTED), name="end-1", cause="a-1")
    told(stream, intended("a"), name="a-2")
    told(stream, settled("b", Place.HOME), name="end-b", cause="b-1")
    told(stream, intended("b"), name="b-1")
    assert stream.returns() == (a_return("a", Place.NOT_EVICTED), a_return("a"), a_return("b", Place.HOME))
    told(stream, settled("a", Place.HOME), name="end-2", cause="a-2")
    assert stream.returns()[1] == a_return("a", Place.HOME)
    assert stream.successions == [("b", "b-heir"), ("a", "a-heir")]


def test_an_end_of_which_no_intent_is_known_is_a_return_that_never_began():
    """Also when it names no cause at all."""
    stream = Stream()
    told(stream, settled("a", Place.HOME), name="end-a", cause="elsewhere")
    told(stream, settled("b", Place.EXPIRED), name="end-b")
    assert stream.returns() == (a_return("a", Place.HOME, begun=False), a_return("b", Place.EXPIRED, begun=False))
