"""Payloads: strict when written, tolerant when read."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given

from overspill_events import EventError, decode, encode, reasons
from overspill_events.catalog import CapacitySampled, GateDecided, GateOpened, OwnerRef, PodRef, Reading, ReturnIntended
from tests.support.events import events

OPENED = GateOpened(node="n", reason=reasons.GateReason.HOME_FULL)


@given(events())
def test_every_event_is_read_as_it_was_written(event):
    assert decode(event.spec.type, encode(event)) == event


@given(events())
def test_every_field_is_written_in_camel_case_defaults_too(event):
    """A default that changes must not change old events, so nothing is left out."""
    written = msgspec.json.decode(encode(event))
    assert set(written) == {field.encode_name for field in msgspec.structs.fields(event)}
    assert not any("_" in name for name in written)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (GateOpened(node="n", reason=reasons.GateReason.DRIFT, average=float("nan")), "average"),
        (GateOpened(node=3, reason=reasons.GateReason.DRIFT), "node"),
        (GateOpened(node="n", reason="of-tomorrow"), "reason"),
        (CapacitySampled(pool="p", resource="r", readings=[]), "readings"),
        (
            CapacitySampled(
                pool="p",
                resource="r",
                readings=(Reading(source=reasons.Source.QUERY, observed_at=datetime(2026, 1, 1)),),  # noqa: DTZ001
            ),
            "observedAt",
        ),
        (
            ReturnIntended(
                pod=PodRef(namespace="a", name="b", uid="c"),
                owner=OwnerRef(kind="ReplicaSet", name="o", uid="u"),
                node="v",
                home_node="h",
                gpus=-1,
                expires_at=datetime.fromisoformat("2026-01-01T00:00:00Z"),
            ),
            "gpus",
        ),
        (GateOpened(node="\ud800", reason=reasons.GateReason.DRIFT), "GateOpened"),
    ],
)
def test_what_would_not_read_back_is_refused_by_name(event, field):
    with pytest.raises(EventError, match=field):
        encode(event)


def test_an_unknown_type_is_no_error():
    assert decode("dev.overspill.decider.gate-painted.v1", b"{}") is None
    assert decode("dev.overspill.decider.gate-opened.v2", b"{}") is None


def test_unknown_fields_and_enumeration_members_are_tolerated():
    data = msgspec.json.encode({**msgspec.json.decode(encode(OPENED)), "colour": "red", "reason": "of-tomorrow"})
    assert decode(OPENED.spec.type, data) == GateOpened(node="n", reason=reasons.GateReason.UNKNOWN)


def test_fields_that_came_later_have_their_defaults():
    data = b'{"node":"n","verdict":"open","reason":"drift","average":null,"lowMark":1,"highMark":2,"windowSeconds":3,"samples":4}'
    event = decode("dev.overspill.decider.gate-decided.v1", data)
    assert isinstance(event, GateDecided)
    assert (event.unsettled_returns, event.provider_stock, event.detail) == (0, None, "")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"{}", "node"),
        (b'{"node":1,"reason":"drift"}', "node"),
        (b'{"node":"n","reason":"drift","average":"much"}', "average"),
        (b"not json", "gate-opened"),
        (b"", "gate-opened"),
        (b'{"node":"\xff","reason":"drift"}', "gate-opened"),
    ],
)
def test_a_payload_that_breaks_its_promise_is_refused_by_name(data, named):
    with pytest.raises(EventError, match=named):
        decode(OPENED.spec.type, data)
