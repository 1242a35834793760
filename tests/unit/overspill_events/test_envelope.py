"""CloudEvents binary mode: what is written is read again, whatever it holds; what is missing is named."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_events import Envelope, EventError, derived_id, from_headers, source_uri, to_headers
from tests.support.events import TIMES

SUBJECT = "overspill.v1.c.decider.gate-opened.n_1"
FILLED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@st.composite
def envelopes(draw):
    return Envelope(
        id=draw(FILLED),
        type=draw(FILLED),
        source=draw(FILLED),
        time=draw(TIMES),
        subject=SUBJECT,
        epoch=draw(FILLED),
        sequence=draw(st.integers(1, 10**12)),
        correlation_id=draw(FILLED),
        causation_id=draw(st.none() | FILLED),
        traceparent=draw(st.none() | FILLED),
    )


def envelope(**changes):
    fields = {"id": "i", "type": "t", "source": "/s", "time": datetime(2026, 1, 2, tzinfo=UTC), "subject": SUBJECT}
    return Envelope(**{**fields, "epoch": "1-abcd", "sequence": 7, "correlation_id": "c", **changes})


@given(envelopes())
def test_headers_hold_the_whole_envelope(written):
    headers = to_headers(written)
    assert all(value.isascii() and value.isprintable() and not set(value) & set(' "') for value in headers.values())
    assert from_headers(headers, subject=SUBJECT) == written


def test_the_header_block_is_cloudevents():
    headers = to_headers(envelope(causation_id="why"))
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "i",
        "ce-type": "t",
        "ce-source": "/s",
        "ce-subject": "n.1",
        "ce-time": "2026-01-02T00:00:00Z",
        "ce-datacontenttype": "application/json",
        "ce-epoch": "1-abcd",
        "ce-sequence": "000000000007",
        "ce-correlationid": "c",
        "ce-causationid": "why",
    }


def test_percent_encoding_is_upper_case_and_undone_once():
    assert to_headers(envelope(id='a "é%20'))["ce-id"] == "a%20%22%C3%A9%2520"
    assert from_headers(to_headers(envelope(id="%2541")), subject=SUBJECT).id == "%2541"


def test_names_of_headers_are_read_in_any_case():
    shouted = {name.upper(): value for name, value in to_headers(envelope()).items()}
    assert from_headers(shouted, subject=SUBJECT) == envelope()


def test_a_trace_of_the_hop_is_taken_where_the_event_has_none():
    headers = {**to_headers(envelope()), "traceparent": "00-hop"}
    assert from_headers(headers, subject=SUBJECT).traceparent == "00-hop"
    assert from_headers({**headers, "ce-traceparent": "00-own"}, subject=SUBJECT).traceparent == "00-own"


def test_times_are_written_in_utc():
    east = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3)))
    assert to_headers(envelope(time=east))["ce-time"] == "2026-01-02T00:00:00Z"


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type", "time", "epoch", "sequence", "correlationid"])
def test_a_missing_header_is_named(name):
    headers = to_headers(envelope())
    del headers[f"ce-{name}"]
    with pytest.raises(EventError, match=f"ce-{name}"):
        from_headers(headers, subject=SUBJECT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specversion", "0.3"),
        ("id", ""),
        ("time", "yesterday"),
        ("time", "2026-01-02T00:00:00"),
        ("time", "0001-01-01T00:00:00%2B14:00"),
        ("time", "1969-12-31T23:59:59Z"),
        ("time", "9999-12-31T23:59:59-14:00"),
        ("sequence", "seven"),
        ("sequence", "-1"),
        ("source", "%FF"),
    ],
)
def test_a_bad_header_is_named(name, value):
    with pytest.raises(EventError, match=f"ce-{name}"):
        from_headers({**to_headers(envelope()), f"ce-{name}": value}, subject=SUBJECT)


def test_a_message_without_headers_is_no_event():
    with pytest.raises(EventError, match="ce-specversion"):
        from_headers(None, subject=SUBJECT)


def test_what_is_no_unicode_cannot_be_written():
    with pytest.raises(EventError, match="ce-id"):
        to_headers(envelope(id="\ud800"))


def test_a_derived_id_depends_on_cause_type_and_key_and_on_nothing_else():
    ids = {derived_id("a", "t", "k"), derived_id("b", "t", "k"), derived_id("a", "u", "k"), derived_id("a", "t", "l")}
    assert len(ids) == 4
    assert derived_id("a", "t", "k") in ids


def test_the_source_says_who_speaks():
    assert source_uri("prod", "sampler") == "/overspill/prod/sampler"
    assert source_uri("prod", "sampler", "3") == "/overspill/prod/sampler/3"
