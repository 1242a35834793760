"""What Prometheus answered: one number, or why there is none. Pure: status and body in, reading out.

The operator's query must give exactly one series. Nothing else is read as a number: an empty result is not zero,
several series are not their sum, and an answer with warnings may be partial. Infos are remarks on the query (a rate of
what is not named like a counter): the number stands, and they are told with it.
"""

import math
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from overspill_events.catalog import Reading
from overspill_events.reasons import Source, UnknownCause
from overspill_sampler.policy import unknown

DETAIL_LENGTH: Final = 300

Sample = tuple[float, str]  # Unix seconds, number as text


class Series(Struct, frozen=True):
    """One series of an instant vector."""

    value: Sample


class Vector(Struct, frozen=True, tag_field="resultType", tag="vector"):
    result: tuple[Series, ...]


class Scalar(Struct, frozen=True, tag_field="resultType", tag="scalar"):
    result: Sample


class Answer(Struct, frozen=True):
    """The HTTP API's envelope (prometheus.io, HTTP API, version 1)."""

    status: Annotated[str, Meta(pattern="^(success|error)$")]
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = msgspec.field(default="", name="errorType")
    error: str = ""
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


def read_answer(status: int, body: bytes, *, now: datetime, stale_after: float) -> Reading:
    """The reading in an answer; one evaluated further than `stale_after` seconds from `now` is stale.

    That is a clock that is wrong, or a stored answer. Old samples Prometheus must leave out itself, see `prometheus`.
    """

    def without(cause: UnknownCause, detail: str) -> Reading:
        return unknown(Source.QUERY, cause, now=now, detail=detail[:DETAIL_LENGTH])

    try:
        answer = msgspec.json.decode(body, type=Answer)
    except msgspec.DecodeError:
        return without(UnknownCause.REFUSED, f"HTTP {status}: not an answer of Prometheus: {body[:100]!r}")
    if answer.status == "error" or status >= 300:  # noqa: PLR2004
        return without(UnknownCause.REFUSED, f"HTTP {status}: {answer.error_type}: {answer.error}")
    if answer.warnings:
        return without(UnknownCause.WARNED, "; ".join(answer.warnings))
    try:
        data = msgspec.json.decode(answer.data, type=Vector | Scalar)
    except msgspec.DecodeError as error:
        return without(UnknownCause.REFUSED, f"neither an instant vector nor a scalar: {error}")
    samples = (data.result,) if isinstance(data, Scalar) else tuple(series.value for series in data.result)
    if not samples:
        return without(UnknownCause.NO_SERIES, f"the query gives no series from samples of the last {stale_after:g} s")
    if len(samples) > 1:
        return without(UnknownCause.MANY_SERIES, f"the query gives {len(samples)} series; aggregate them to one")
    return _number(samples[0], now=now, stale_after=stale_after, detail="; ".join(answer.infos)[:DETAIL_LENGTH])


def _number(sample: Sample, *, now: datetime, stale_after: float, detail: str) -> Reading:
    timestamp, text = sample
    age = now.timestamp() - timestamp
    if not abs(age) <= stale_after:
        return unknown(Source.QUERY, UnknownCause.STALE, now=now, detail=f"the value is {age:.0f} s old")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:  # fewer than no free GPUs is a mistake in the query, not a full home
        return unknown(Source.QUERY, UnknownCause.NOT_A_NUMBER, now=now, detail=f"the value is {text!r}")
    return Reading(source=Source.QUERY, observed_at=now, free=value, detail=detail)
