"""Prometheus' answers, in the shapes that its HTTP API documents."""

import json

import pytest

from overspill_events.reasons import Source, UnknownCause
from overspill_sampler.answer import read_answer
from tests.unit.overspill_capacity.test_room import NOW

AT = NOW.timestamp()


def vector(*values, at=AT, **more):
    result = [{"metric": {"i": str(i)}, "value": [at, value]} for i, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


def read(answer, status=200):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(status, body, now=NOW, stale_after=60)


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        (vector("11"), 11.0),
        (vector("0"), 0.0),
        (vector("2.5", infos=["PromQL info: metric might not be a counter"]), 2.5),
        ({"status": "success", "data": {"resultType": "scalar", "result": [AT, "7"]}}, 7.0),
        (vector("3", at=AT - 60), 3.0),
    ],
)
def test_one_number_is_a_number(answer, free):
    reading = read(answer)
    assert (reading.source, reading.free, reading.unknown) == (Source.QUERY, free, None)


def test_infos_are_told_with_the_number():
    reading = read(vector("2.5", infos=["metric might not be a counter", "another"]))
    assert (reading.free, reading.detail) == (2.5, "metric might not be a counter; another")


@pytest.mark.parametrize(
    ("answer", "status", "cause", "said"),
    [
        (vector(), 200, UnknownCause.NO_SERIES, "no series"),
        (vector("1", "2"), 200, UnknownCause.MANY_SERIES, "2 series"),
        (vector("NaN"), 200, UnknownCause.NOT_A_NUMBER, "NaN"),
        (vector("+Inf"), 200, UnknownCause.NOT_A_NUMBER, "Inf"),
        (vector("-Inf"), 200, UnknownCause.NOT_A_NUMBER, "Inf"),
        (vector("-5"), 200, UnknownCause.NOT_A_NUMBER, "-5"),
        (vector("eleven"), 200, UnknownCause.NOT_A_NUMBER, "eleven"),
        (vector("11", at=AT - 61), 200, UnknownCause.STALE, "61 s old"),
        (vector("11", at=AT + 61), 200, UnknownCause.STALE, "-61 s old"),
        (vector("11", warnings=["remote read: partial"]), 200, UnknownCause.WARNED, "remote read: partial"),
        (
            {"status": "error", "errorType": "bad_data", "error": "parse error"},
            400,
            UnknownCause.REFUSED,
            "parse error",
        ),
        ({"status": "error", "errorType": "timeout", "error": "too slow"}, 503, UnknownCause.REFUSED, "503: timeout"),
        (
            {"status": "error", "errorType": "execution", "error": "many-to-many"},
            422,
            UnknownCause.REFUSED,
            "many-to-many",
        ),
        (b"<html>bad gateway</html>", 502, UnknownCause.REFUSED, "HTTP 502: not an answer"),
        (b"", 401, UnknownCause.REFUSED, "HTTP 401"),
        (vector("11"), 500, UnknownCause.REFUSED, "HTTP 500"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, 200, UnknownCause.REFUSED, "neither"),
        (
            {"status": "success", "data": {"resultType": "string", "result": [AT, "x"]}},
            200,
            UnknownCause.REFUSED,
            "neither",
        ),
        ({"status": "success"}, 200, UnknownCause.REFUSED, "neither"),
        (
            {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}},
            200,
            UnknownCause.REFUSED,
            "neither",
        ),
    ],
)
def test_everything_else_is_unknown_with_its_cause_and_never_zero(answer, status, cause, said):
    reading = read(answer, status)
    assert (reading.unknown, reading.free) == (cause, None)
    assert said in reading.detail
