"""What the admitter remembers of the stream, and what it expects of the cluster."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec

from overspill_admitter.expectations import ANSWER_WITHIN, Expectations
from overspill_admitter.memory import Given, Memory
from overspill_admitter.workload import read_workloads
from overspill_events.catalog import (
    AdmissionDeferred,
    Event,
    OwnerRef,
    PodEvicted,
    PodRef,
    QuotaUse,
    ReturnIntended,
    ReturnSettled,
    WorkloadAdmitted,
    WorkloadFinished,
    WorkloadQueued,
    WorkloadRef,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import DeferReason, Place
from tests.unit.overspill_admitter.queues import GPU, START, job

JOB = WorkloadRef(kind="Job", namespace="team", name="train", uid="j")
OLD = PodRef(namespace="team", name="old", uid="old")


def envelope(number: int) -> Envelope:
    return Envelope(
        id=str(number), type="t", source="s", time=START + timedelta(seconds=number), subject="s", epoch="1-a",
        sequence=number, correlation_id="c",
    )  # fmt: skip


def fold(*events: Event, times: int = 1) -> Memory:
    memory = Memory()
    for _ in range(times):
        for number, event in enumerate(events, start=1):
            memory.record(event, envelope(number))
    return memory


def admitted(ref: WorkloadRef = JOB, **more: object) -> WorkloadAdmitted:
    use = QuotaUse(flavor="home", resource=GPU, nominal=8, used=0, asked=2)
    event = WorkloadAdmitted(workload=ref, cluster_queue="training", flavor="home", quota=(use,))
    return msgspec.structs.replace(event, **more)


def intended() -> ReturnIntended:
    owner = OwnerRef(kind="ReplicaSet", name="rs", uid="rs")
    return ReturnIntended(pod=OLD, owner=owner, node="v", home_node="h", gpus=2, expires_at=START)


def test_a_workload_from_queue_to_end() -> None:
    """What was said last is known; recording twice changes nothing."""
    events = (
        WorkloadQueued(workload=JOB, local_queue="research", cluster_queue="training"),
        AdmissionDeferred(workload=JOB, reason=DeferReason.NO_QUOTA),
        admitted(),
    )
    assert fold(*events[:2]).known["j"].deferred is DeferReason.NO_QUOTA
    known = fold(*events, times=2).known["j"]
    assert known.queued == envelope(1)
    assert known.admitted == envelope(3)
    assert known.deferred is None
    assert known.given == Given(cluster_queue="training", flavors={GPU: "home"}, requests={GPU: Decimal(2)})
    assert not known.is_finished
    assert fold(*events, WorkloadFinished(workload=JOB, outcome="succeeded")).known["j"].is_finished


def test_finished_workloads_are_forgotten_when_they_are_gone() -> None:
    """But not while the object is there, nor while a successor is to come."""
    pod = WorkloadRef(kind="Pod", namespace="team", name="old", uid="old")
    memory = fold(
        admitted(), admitted(pod), intended(), WorkloadFinished(workload=JOB, outcome="deleted"),
        WorkloadFinished(workload=pod, outcome="deleted"),
    )  # fmt: skip
    memory.forget({"j"})
    assert set(memory.known) == {"j", "old"}
    memory.forget(set())
    assert set(memory.known) == {"old"}
    memory.record(ReturnSettled(pod=OLD, place=Place.HOME), envelope(9))
    memory.forget(set())
    assert memory.known == {}


def test_a_return_is_open_until_it_is_settled_and_leaves_an_heir() -> None:
    """The evictor names the successor; it has the quota of the one before."""
    heir = WorkloadRef(kind="Pod", namespace="team", name="new", uid="new")
    evicted = PodEvicted(pod=OLD, node="v", home_node="h", gpus=2)
    memory = fold(admitted(heir), intended())
    assert not memory.returns["old"].is_evicted
    memory.record(evicted, envelope(3))
    assert memory.returns["old"].is_evicted
    settled = ReturnSettled(pod=OLD, place=Place.HOME, successor=PodRef(namespace="team", name="new", uid="new"))
    memory.record(settled, envelope(4))
    assert memory.returns == {}
    assert memory.known["new"].inherited_from == "old"


def test_an_intent_that_came_to_nothing_leaves_no_heir() -> None:
    """The pod stays, and so does its quota."""
    heir = WorkloadRef(kind="Pod", namespace="team", name="new", uid="new")
    settled = ReturnSettled(pod=OLD, place=Place.NOT_EVICTED, successor=PodRef(namespace="team", name="new", uid="new"))
    assert fold(admitted(heir), intended(), settled).known["new"].inherited_from == ""


def shown(*, suspend: bool = True, version: int = 5) -> list[Any]:
    return [*read_workloads([job("train", suspend=suspend, version=version)], [], [])]


def test_an_expectation_ends_when_the_copy_has_caught_up() -> None:
    """Visible as released, or deleted, or held back again in a later version; not by a copy from before."""
    for ended, workloads in (
        (True, shown(suspend=False)),
        (True, []),
        (True, shown(version=7)),
        (False, shown(version=6)),
    ):
        expectations = Expectations()
        expectations.begin("j-train")
        expectations.written("j-train", "7")
        expectations.observe(workloads, heard=1e9)
        assert (expectations.uids == frozenset()) is ended


def test_a_refusal_ends_it_and_a_lost_answer_ends_by_time_alone() -> None:
    """As long as the request may still be on its way, the quota stays taken."""
    expectations = Expectations()
    expectations.begin("j-train")
    expectations.observe(shown(version=99), heard=1e9)  # under way: nothing to compare yet
    assert expectations.uids == {"j-train"}
    expectations.unanswered("j-train", 100)
    expectations.observe(shown(version=99), heard=100 + ANSWER_WITHIN - 1)
    assert expectations.uids == {"j-train"}
    expectations.observe(shown(version=99), heard=100 + ANSWER_WITHIN)
    assert expectations.uids == frozenset()
    expectations.begin("j-train")
    expectations.failed("j-train")
    assert expectations.uids == frozenset()
