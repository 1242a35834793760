"""What an event is about."""

from datetime import UTC, datetime

from overspill_events import reasons
from overspill_events.catalog import (
    CATALOG,
    GateOpened,
    OwnerRef,
    PodRef,
    ReturnIntended,
    ReturnSettled,
    WorkloadQueued,
    WorkloadRef,
)
from overspill_recorder.keys import NAMED, Key, keys_of

POD = PodRef(namespace="team", name="web-1", uid="u1")


def test_a_return_is_found_under_pod_owner_and_both_nodes() -> None:
    """The pod is the subject; owner, virtual node and home node are mentioned."""
    event = ReturnIntended(
        pod=POD,
        owner=OwnerRef(kind="ReplicaSet", name="web", uid="rs"),
        node="virtual-1",
        home_node="home-1",
        gpus=1,
        expires_at=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert keys_of(event) == (
        Key(kind="pod", namespace="team", name="web-1", uid="u1", is_subject=True),
        Key(kind="replicaset", namespace="team", name="web", uid="rs"),
        Key(kind="node", name="virtual-1"),
        Key(kind="node", name="home-1"),
    )


def test_a_successor_is_mentioned() -> None:
    """`explain` of the successor finds the return of its predecessor."""
    successor = PodRef(namespace="team", name="web-2", uid="u2")
    event = ReturnSettled(pod=POD, place=reasons.Place.HOME, successor=successor, node="home-1")
    assert Key(kind="pod", namespace="team", name="web-2", uid="u2") in keys_of(event)


def test_gate_and_workload_are_subjects() -> None:
    """A gate's node and a workload are what their events are about."""
    gate = GateOpened(node="virtual-1", reason=reasons.GateReason.HOME_FULL)
    assert keys_of(gate) == (Key(kind="node", name="virtual-1", is_subject=True),)
    job = WorkloadRef(kind="Job", namespace="team", name="train", uid="j1")
    queued = WorkloadQueued(workload=job, local_queue="research", cluster_queue="training")
    assert keys_of(queued) == (
        Key(kind="job", namespace="team", name="train", uid="j1", is_subject=True),
        Key(kind="localqueue", namespace="team", name="research"),
        Key(kind="clusterqueue", name="training"),
    )


def test_every_event_of_the_catalogue_has_a_subject_key_field_the_ledger_knows() -> None:
    """A new event whose key is neither a reference nor a known name would be invisible to `explain`."""
    references = {"pod", "workload"}
    for event_type in CATALOG.values():
        assert set(event_type.spec.key) <= references | set(NAMED), event_type.spec.name
