"""Every event of the catalogue has a sentence, and unknown numbers are never told as zero."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from overspill_cli.narrating import SENTENCES, narrate, number
from overspill_events import catalog
from overspill_events.catalog import CATALOG, Event
from overspill_events.reasons import RefusalReason, Source, UnknownCause

POD = catalog.PodRef(namespace="inference", name="chat-1", uid="u1")
SAMPLES: dict[type, Any] = {
    str: "text",
    int: 3,
    float: 2.5,
    bool: True,
    catalog.PodRef: POD,
    catalog.OwnerRef: catalog.OwnerRef(kind="ReplicaSet", name="chat", uid="u2"),
    catalog.WorkloadRef: catalog.WorkloadRef(kind="Job", namespace="research", name="train", uid="u3"),
    datetime: datetime(2026, 11, 30, 12, 0, tzinfo=UTC),
}


def example(event_type: type[Event]) -> Event:
    """An event with its required fields only."""
    values = {}
    for field in msgspec.structs.fields(event_type):
        if field.required:
            values[field.name] = _example_of(msgspec.inspect.type_info(field.type))
    return event_type(**values)


def _example_of(info: msgspec.inspect.Type) -> Any:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _example_of(inner)
        case msgspec.inspect.EnumType(cls=cls):
            return next(iter(cls))
        case msgspec.inspect.StructType(cls=cls):
            return SAMPLES[cls]
        case msgspec.inspect.UnionType(types=types):
            return _example_of(types[0])
        case msgspec.inspect.VarTupleType():
            return ()
        case msgspec.inspect.DateTimeType():
            return SAMPLES[datetime]
        case msgspec.inspect.IntType():
            return SAMPLES[int]
        case msgspec.inspect.FloatType():
            return SAMPLES[float]
        case msgspec.inspect.BoolType():
            return True
        case _:
            return SAMPLES[str]


def test_the_catalogue_is_told_whole():
    """A new event without a sentence would be shown as fields only."""
    assert set(SENTENCES) == set(CATALOG.values())


@pytest.mark.parametrize("event_type", CATALOG.values(), ids=lambda cls: cls.__name__)
def test_a_sentence_needs_nothing_optional(event_type: type[Event]):
    """Optional fields may be absent in old recordings; the sentence is one line all the same."""
    sentence = narrate(example(event_type))
    assert sentence
    assert "\n" not in sentence
    assert "None" not in sentence


def test_unknown_is_told_as_unknown():
    """A reading without a number names its cause."""
    assert number(None) == "unknown"
    assert number(0.0) == "0"
    reading = catalog.Reading(
        source=Source.QUERY, observed_at=SAMPLES[datetime], unknown=UnknownCause.NO_SERIES, detail="0 series"
    )
    told = narrate(catalog.CapacitySampled(pool="home", resource="nvidia.com/gpu", readings=(reading,)))
    assert told == "nvidia.com/gpu in home: query: unknown, no-series (0 series)"


def test_a_refusal_is_told_with_the_budgets_numbers():
    """Zero allowed disruptions is a number, not an absence."""
    told = narrate(
        catalog.EvictionRefused(
            pod=POD,
            node="v",
            reason=RefusalReason.PDB,
            pdb="chat",
            disruptions_allowed=0,
            current_healthy=4,
            desired_healthy=4,
        )
    )
    assert told == (
        "eviction of inference/chat-1 refused: pdb; PodDisruptionBudget chat allows 0 disruptions (4 healthy, 4 needed)"
    )
