"""Refusals are read from what API servers answer; the texts are those of a real one."""

import json
from typing import Any

import pytest

from overspill_kube.outcomes import (
    AlreadyExists,
    Blocked,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Replaced,
    SeveralPdbs,
    Throttled,
    classify,
    read_status,
)


def answer(reason: str, message: str = "", **details: Any) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason}
    return json.dumps(body | {"message": message, "details": details}).encode()


UID_ON_DELETE = (
    'Operation cannot be fulfilled on Pod "a": the UID in the precondition (1) does not match the UID in record (2). '
    "The object might have been deleted and then recreated"
)
UID_IN_STORE = "Precondition failed: UID in precondition: 1, UID in object meta: 2"
VERSION_ON_DELETE = (
    'Operation cannot be fulfilled on Pod "a": the ResourceVersion in the precondition (1) does not match the '
    "ResourceVersion in record (2). The object might have been modified"
)
BUDGET = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget keep-one needs 1 healthy pods and has 1 currently",
}
UNPROCESSED = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget web is still being processed by the server.",
}


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (404, answer("NotFound", 'pods "a" not found', name="a", kind="pods"), NotFound('pods "a" not found')),
        (409, answer("AlreadyExists", 'pods "a" already exists'), AlreadyExists('pods "a" already exists')),
        (409, answer("Conflict", "the object has been modified"), Conflict("the object has been modified")),
        (409, answer("Conflict", UID_ON_DELETE), Replaced(UID_ON_DELETE)),
        (409, answer("Conflict", UID_IN_STORE), Replaced(UID_IN_STORE)),
        (409, answer("Conflict", VERSION_ON_DELETE), Conflict(VERSION_ON_DELETE)),
        (
            422,
            answer("Invalid", "bad", causes=[{"field": "spec.a", "reason": "FieldValueRequired"}, {"field": "spec.b"}]),
            Invalid("bad", ("spec.a", "spec.b")),
        ),
        (422, answer("Invalid", "bad"), Invalid("bad")),
        (403, answer("Forbidden", "no"), Forbidden("no")),
        (429, answer("TooManyRequests", "busy", retryAfterSeconds=5), Throttled(5.0, "busy")),
        (429, answer("TooManyRequests", "busy"), Throttled(1.0, "busy")),
        (429, b"too many", Throttled(1.0, "too many")),
        (
            429,
            answer("TooManyRequests", "Cannot evict.", causes=[BUDGET]),
            Blocked(
                "Cannot evict. The disruption budget keep-one needs 1 healthy pods and has 1 currently", "keep-one"
            ),
        ),
        (
            429,
            answer("TooManyRequests", "Cannot evict.", causes=[UNPROCESSED], retryAfterSeconds=10),
            Blocked(
                "Cannot evict. The disruption budget web is still being processed by the server.", "web", retry_after=10
            ),
        ),
        (
            500,
            answer(
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ),
            SeveralPdbs(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            ),
        ),
    ],
)
def test_expected_refusals(code: int, body: bytes, expected: object) -> None:
    assert classify(code, body) == expected


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (404, b"404 page not found"),
        (404, answer("NotFound", "the server could not find the requested resource")),
        (404, b"<html>not found</html>"),
        (400, answer("BadRequest")),
        (401, answer("Unauthorized")),
        (500, answer("InternalError", "etcd is away")),
        (503, b""),
    ],
)
def test_everything_else_is_no_expected_refusal(code: int, body: bytes) -> None:
    """Above all: a kind that is not served must not read as an object that is gone."""
    assert classify(code, body) is None


def test_the_header_is_the_servers_own_wish() -> None:
    assert classify(429, answer("TooManyRequests", "busy", retryAfterSeconds=5), retry_after=9) == Throttled(9, "busy")


def test_an_answer_that_is_no_status_still_has_words() -> None:
    assert read_status(b"  upstream is away \n").message == "upstream is away"
    assert read_status(b'{"details": {"causes": null}}').causes == ()
