"""The three questions of the README, answered from events alone."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from overspill_cli.asking import moment, parse
from overspill_cli.explaining import explain_node, explain_pod, explain_workload
from overspill_cli.output import UsageError
from overspill_events import catalog
from overspill_events.reasons import (
    DeferReason,
    GateReason,
    HoldReason,
    InstanceEnd,
    Place,
    Source,
    SpillReason,
    Verdict,
)
from overspill_recorder.ledger import StoredEvent

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POD = catalog.PodRef(namespace="inference", name="chat-1", uid="u1")
NEXT = catalog.PodRef(namespace="inference", name="chat-2", uid="u2")
DECIDED = catalog.GateDecided(
    node="v",
    verdict=Verdict.OPEN,
    reason=GateReason.HOME_FULL,
    average=3.5,
    low_mark=8,
    high_mark=40,
    window_seconds=60,
    samples=12,
    source=Source.QUERY,
    hold_seconds=30,
)
REQUESTED = catalog.InstanceRequested(
    key="k", pod=POD, node="v", provider="fake", offering="a100-eu", gpus=1, price_per_hour=1.5
)


def stored(*events: catalog.Event, caused: dict[int, int] | None = None) -> list[StoredEvent]:
    """Events in order, one a second; `caused` maps an index to the index of its cause."""
    caused = caused or {}
    return [
        StoredEvent(
            position=index + 1,
            id=f"e{index}",
            stream_sequence=index + 1,
            source="/overspill/lab/test",
            epoch="1-a",
            sequence=index + 1,
            type=event.spec.type,
            subject="overspill.v1.lab",
            time=START + timedelta(seconds=index),
            correlation_id="c",
            causation_id=f"e{caused[index]}" if index in caused else None,
            payload=msgspec.json.encode(event),
            event=event,
        )
        for index, event in enumerate(events)
    ]


def test_why_did_the_gate_open():
    """With the average, the marks and the hold of the decision that caused it."""
    events = stored(DECIDED, catalog.GateOpened(node="v", reason=GateReason.HOME_FULL, average=3.5), caused={1: 0})
    answer = explain_node("v", events)
    assert answer.headline == "The gate of v is open since 2026-11-30T12:00:01Z."
    assert "free GPUs averaged 3.5 over 60 s (12 samples of the query)" in answer.because[0]
    assert "opens at 8 or less" in answer.because[0]
    assert "held for 30 s" in answer.because[0]
    assert answer.because[1].startswith("Now, as decided at 2026-11-30T12:00:00Z: gate of v should be open")


def test_why_is_this_pod_external():
    """Because of the opening before it was bound, not a later one."""
    events = stored(
        DECIDED,
        catalog.GateOpened(node="v", reason=GateReason.HOME_FULL, average=3.5),
        REQUESTED,
        catalog.InstanceRunning(key="k", pod=POD, provider="fake", instance="i-1", seconds_to_running=4.0),
        catalog.PodHeld(pod=POD, node="v", reason=HoldReason.AT_FLOOR, needed=2, available=1),
        catalog.GateOpened(node="v", reason=GateReason.DRIFT, average=50),
        caused={1: 0},
    )
    answer = explain_pod("inference/chat-1", events[2:5], events)
    assert answer.headline == "inference/chat-1 is external, its instance runs."
    assert answer.because[0].startswith("It overflowed because the gate of v opened: home-full, 3.5 GPUs free")
    assert any("at-floor, needs 2 ready replicas, available 1" in reason for reason in answer.because)


def test_a_pod_without_an_opening_on_record_is_not_explained_away():
    """The answer admits what the ledger does not hold."""
    answer = explain_pod("inference/chat-1", stored(REQUESTED), [])
    assert "The ledger holds no opening" in answer.because[0]


def test_a_pod_that_cannot_leave_is_told_so_first():
    """That it is not brought home either comes after it."""
    unsupported = catalog.SpillDeferred(
        pod=POD, node="v", reason=SpillReason.UNSUPPORTED, detail="spec.initContainers is not supported"
    )
    held = catalog.PodHeld(pod=POD, node="v", reason=HoldReason.GATE_OPEN)
    answer = explain_pod("inference/chat-1", stored(unsupported, held), [])
    assert answer.headline == (
        "inference/chat-1 waits on v without an instance: unsupported (spec.initContainers is not supported)."
    )
    assert any("gate-open" in reason for reason in answer.because)


def test_a_gate_that_was_ordered_is_explained_by_the_order_not_the_marks():
    ordered = msgspec.structs.replace(DECIDED, reason=GateReason.BY_OPERATOR, detail="by anna: a demonstration")
    opened = catalog.GateOpened(node="v", reason=GateReason.BY_OPERATOR, average=3.5, detail=ordered.detail)
    answer = explain_node("v", stored(ordered, opened, caused={1: 0}))
    move = next(reason for reason in answer.because if "opened" in reason)
    assert "by anna: a demonstration" in move
    assert "opens at" not in move


def test_a_returned_pod_and_its_successor():
    """Both ends of a return know each other."""
    settled = catalog.ReturnSettled(pod=POD, place=Place.HOME, successor=NEXT, node="h1")
    ended = catalog.InstanceTerminated(
        key="k", pod=POD, provider="fake", instance="i", end=InstanceEnd.POD_DELETED, hours=2, cost=3
    )
    events = stored(REQUESTED, settled, ended)
    assert "evicted so that its successor could run at home" in explain_pod("inference/chat-1", events, []).headline
    assert any("$3" in reason for reason in explain_pod("inference/chat-1", events, []).because)
    successor = explain_pod("inference/chat-2", events[1:2], [])
    assert "is the successor of inference/chat-1, which came back: it is home on h1" in successor.headline


def test_why_does_a_workload_wait():
    """The last reason, with quota figures."""
    job = catalog.WorkloadRef(kind="Job", namespace="research", name="train", uid="u")
    use = catalog.QuotaUse(flavor="home", resource="nvidia.com/gpu", nominal=8, used=6, asked=4)
    events = stored(
        catalog.WorkloadQueued(workload=job, local_queue="training"),
        catalog.AdmissionDeferred(workload=job, reason=DeferReason.NO_QUOTA, cluster_queue="training", quota=(use,)),
    )
    answer = explain_workload("research/train", events)
    assert answer.headline == "research/train waits, for the reason told at 2026-11-30T12:00:01Z."
    assert "asks 4, 6 of 8 used" in answer.because[-1]


def test_silence_is_said():
    """No events, no claims."""
    assert explain_pod("a/b", [], []).headline == "The ledger knows nothing about pod a/b."
    assert explain_node("n", []).headline == "The ledger knows nothing about node n."
    assert explain_workload("a/b", []).headline == "The ledger knows nothing about workload a/b."


@pytest.mark.parametrize(
    ("what", "namespace", "expected"),
    [
        ("pod/inference/chat-1", "default", ("pod", "chat-1", "inference")),
        ("pod/chat-1", "inference", ("pod", "chat-1", "inference")),
        ("po/chat-1", "default", ("po", "chat-1", "default")),
        ("node/v", "default", ("node", "v", "default")),
        ("workload/research/train", "default", ("workload", "train", "research")),
    ],
)
def test_things_are_named_as_with_kubectl(what: str, namespace: str, expected: tuple[str, str, str]):
    """Kind and name, with the namespace in the name or as an option."""
    assert parse(what, namespace) == expected


@pytest.mark.parametrize("what", ["chat-1", "queue/a", "pod/", "pod/a/b/c"])
def test_other_names_are_refused_with_the_form(what: str):
    """The message shows what can be asked."""
    with pytest.raises(UsageError, match="pod/NAMESPACE/NAME"):
        parse(what, "default")


def test_moments():
    """Ago or absolute; a time without a zone is UTC."""
    assert moment("15m", now=START) == START - timedelta(minutes=15)
    assert moment("2026-11-30T11:00:00", now=START) == START - timedelta(hours=1)
    with pytest.raises(UsageError, match="ISO 8601"):
        moment("yesterday", now=START)


@pytest.mark.parametrize("text", ["1000000d", "9" * 30 + "h", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_moments_before_and_after_all_times_are_refused(text: str):
    with pytest.raises(UsageError, match="years 1 to 9999"):
        moment(text, now=START)


def test_digits_that_count_nothing_are_no_moment():
    with pytest.raises(UsageError, match="ISO 8601"):
        moment("²d", now=START)
