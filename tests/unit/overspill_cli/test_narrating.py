"""Every event of the catalogue has a sentence, and unknown numbers are never told as zero."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from overspill_cli.narrating import SENTENCES, amount, narrate, number
from overspill_events import catalog
from overspill_events.catalog import CATALOG, Event
from overspill_events.reasons import HoldReason, RefusalReason, Source, UnknownCause

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


@pytest.mark.parametrize(
    ("reason", "needed", "available", "told"),
    [
        (HoldReason.CYCLE_LIMIT, 6, None, "cycle-limit, its turn has not come, at most 6 return in a cycle"),
        (
            HoldReason.GATE_SETTLING, 2, 0.5,
            "gate-settling, the gate has been closed for 0.5 s, 2 s are waited for",
        ),
        (HoldReason.AT_FLOOR, 2, 1, "at-floor, needs 2 ready replicas, available 1"),
        (HoldReason.PDB, 1, None, "pdb, needs 1 disruption, allowed unknown"),
        (HoldReason.UNKNOWN, 1, None, "unknown, needs 1, available unknown"),
    ],
)  # fmt: skip
def test_a_hold_is_told_in_the_unit_of_its_reason(reason: HoldReason, needed: float, available: float, told: str):
    """Only what could be known and is not is called unknown."""
    held = catalog.PodHeld(pod=POD, node="v", reason=reason, needed=needed, available=available)
    assert narrate(held) == f"inference/chat-1 stays on v: {told}"


def test_bytes_are_told_in_the_units_of_kubernetes():
    """Of memory and storage, also in the names of a ResourceQuota; everything else is a number."""
    gib = 1024.0**3
    assert [
        amount(name, 1.5 * gib) for name in ("memory", "requests.memory", "ephemeral-storage", "hugepages-2Mi")
    ] == ["1.5Gi"] * 4
    assert (amount("memory", 512.0 * 1024**2), amount("memory", 2048), amount("memory", 12)) == ("512Mi", "2Ki", "12")
    assert (amount("nvidia.com/gpu", 2048), amount("memory", 0.0), amount("memory", None)) == ("2,048", "0", "unknown")
    held = catalog.PodHeld(
        pod=POD,
        node="v",
        reason=HoldReason.QUOTA,
        detail="ResourceQuota team: requests.memory",
        needed=8 * gib,
        available=0,
    )
    assert narrate(held).endswith("quota, needs 8Gi, available 0 (ResourceQuota team: requests.memory)")
    job = catalog.WorkloadRef(kind="Job", namespace="research", name="train", uid="u3")
    queued = catalog.WorkloadQueued(workload=job, local_queue="training", requests={"cpu": 4, "memory": 32 * gib})
    assert narrate(queued).endswith("asks cpu 4, memory 32Gi")
    use = catalog.QuotaUse(flavor="home", resource="memory", nominal=64 * gib, used=0, asked=32 * gib)
    admitted = catalog.WorkloadAdmitted(workload=job, cluster_queue="training", flavor="home", quota=(use,))
    assert "memory in home: asks 32Gi, 0 of 64Gi used" in narrate(admitted)
