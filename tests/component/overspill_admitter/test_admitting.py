"""The admitter with a real bus and the lab's API server."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from overspill_events.catalog import (
    AdmissionDeferred,
    OwnerRef,
    PodEvicted,
    PodRef,
    ReturnIntended,
    ReturnSettled,
    WorkloadAdmitted,
    WorkloadFinished,
    WorkloadQueued,
)
from overspill_events.names import QUEUE_LABEL
from overspill_events.reasons import DeferReason, Place
from overspill_kube.client import PatchKind
from overspill_kube.effects import set_suspend
from overspill_kube.resources import CLUSTER_QUEUES, EVENTS, JOBS, LEASES, NAMESPACES, PODS
from overspill_runtime.clock import SystemClock
from tests.component.overspill_admitter.hall import Hall
from tests.support.house import GPU, eventually, house


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with house(tmp_path) as built:
        yield Hall(built)


async def finish(hall: Hall, name: str) -> None:
    """What the Job controller writes at the end."""
    now = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    done = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {"conditions": done, "succeeded": 1, "startTime": now, "completionTime": now}
    outcome = await hall.kube.patch(
        JOBS, name, {"status": status}, kind=PatchKind.MERGE, namespace="default", subresource="status"
    )
    assert hasattr(outcome, "object"), outcome


async def test_jobs_wait_for_quota_and_follow_when_it_is_free(hall: Hall) -> None:
    """Queued, admitted with numbers, deferred with the reason, finished; each on record once, with its cause."""
    await hall.build(quota=4)
    await hall.job("first", gpus=3)
    async with hall.admitter():
        await hall.until_released("first")
        await hall.job("second", gpus=2)
        (deferred,) = await hall.until_told(AdmissionDeferred)
        assert (deferred.workload.name, deferred.reason) == ("second", DeferReason.NO_QUOTA)
        quota = next(use for use in deferred.quota if use.resource == GPU)
        assert (quota.nominal, quota.used, quota.asked) == (4, 3, 2)
        assert await hall.released() == {"first"}
        await finish(hall, "first")
        await hall.until_released("second")
        (finished,) = await hall.until_told(WorkloadFinished)
        assert (finished.workload.name, finished.outcome) == ("first", "succeeded")
    records = await hall.house.events(WorkloadQueued, WorkloadAdmitted)
    first = [one for one in records if one.event is not None and one.event.workload.name == "first"]
    assert [type(one.event) for one in first] == [WorkloadQueued, WorkloadAdmitted]
    assert first[1].envelope.causation_id == first[0].envelope.id
    assert len(await hall.told(AdmissionDeferred)) == 1


async def test_quota_without_room_at_home_waits(hall: Hall) -> None:
    """Eight in the quota, four on the node, two of them held by a stranger."""
    await hall.build(quota=8, home_gpus=(4,))
    await hall.house.pod("stranger", 2, on="home-1")
    await hall.job("big", gpus=3)
    async with hall.admitter():
        (deferred,) = await hall.until_told(AdmissionDeferred)
        assert (deferred.reason, deferred.home_room) == (DeferReason.NO_HOME_ROOM, 2)
        await hall.kube.delete(PODS, "stranger", "default", grace_seconds=0)
        await hall.until_released("big")
    (admitted,) = await hall.told(WorkloadAdmitted)
    assert (admitted.flavor, admitted.home_room) == ("home", 4)


async def test_room_booked_for_a_return_is_not_given_away(hall: Hall) -> None:
    """The evictor's line in the book counts until its return is settled."""
    await hall.build(quota=8, home_gpus=(4,))
    pod = PodRef(namespace="default", name="outside", uid="outside")
    intent = ReturnIntended(
        pod=pod, owner=OwnerRef(kind="ReplicaSet", name="web", uid="web"), node="v", home_node="home-1", gpus=2,
        expires_at=SystemClock().now() + timedelta(seconds=600),
    )  # fmt: skip
    published = await hall.house.others.publish(intent)
    await hall.job("big", gpus=3)
    async with hall.admitter():
        (deferred,) = await hall.until_told(AdmissionDeferred)
        assert (deferred.reason, deferred.home_room) == (DeferReason.NO_HOME_ROOM, 2)
        await hall.house.others.publish(
            ReturnSettled(pod=pod, place=Place.NOT_EVICTED, node="v"), caused_by=published.envelope
        )
        await hall.until_released("big")


async def test_a_gated_pod_of_a_virtual_queue_needs_no_room(hall: Hall) -> None:
    """Only our gate is removed."""
    await hall.build(home_gpus=(1,))
    await hall.pod("serve", gpus=8)
    async with hall.admitter():
        await hall.until_released("serve")
    pod = await hall.kube.get(PODS, "serve", "default")
    assert pod is not None
    assert [gate.name for gate in pod.spec.scheduling_gates] == ["somebody.else/gate"]
    (admitted,) = await hall.told(WorkloadAdmitted)
    assert (admitted.flavor, admitted.home_room) == ("virtual", None)


async def test_four_hundred_jobs_are_admitted_up_to_the_quota(hall: Hall) -> None:
    """A burst: exactly the quota runs, the rest waits, everybody is on record once."""
    await hall.build(quota=300, home_gpus=(100, 100, 100, 100))
    for start in range(0, 400, 20):
        await asyncio.gather(*(hall.job(f"j{number:03}") for number in range(start, start + 20)))
    async with hall.admitter():
        await hall.until_told(WorkloadAdmitted, 300)
        await hall.until_told(AdmissionDeferred, 100)
        await asyncio.sleep(1)
        assert len(await hall.released()) == 300
    counted = Counter(event.workload.name for event in await hall.told(WorkloadAdmitted))
    assert set(counted.values()) == {1}
    assert len(await hall.told(WorkloadQueued)) == 400


async def test_a_restart_says_nothing_twice_and_admits_nothing_twice(hall: Hall) -> None:
    """The second process reads back what the first one said."""
    await hall.build(quota=2)
    for name in ("a", "b", "c"):
        await hall.job(name)
    for _ in range(2):
        async with hall.admitter():
            await hall.until_told(AdmissionDeferred)
            await eventually(lambda: _are_released(hall, 2))
            await asyncio.sleep(0.5)
    assert len(await hall.told(WorkloadQueued)) == 3
    assert len(await hall.told(WorkloadAdmitted)) == 2
    assert len(await hall.told(AdmissionDeferred)) == 1


async def _are_released(hall: Hall, count: int) -> bool:
    return len(await hall.released()) == count


async def test_a_deleted_workload_is_finished_and_frees_its_quota(hall: Hall) -> None:
    """Told as deleted; the next one follows."""
    await hall.build(quota=1)
    await hall.job("a")
    async with hall.admitter():
        await hall.until_released("a")
        await hall.job("b")
        await hall.until_told(AdmissionDeferred)
        await hall.kube.delete(JOBS, "a", "default", propagation="Background")
        await hall.until_released("b")
        (finished,) = await hall.until_told(WorkloadFinished)
        assert (finished.workload.name, finished.outcome) == ("a", "deleted")


async def test_a_job_suspended_by_somebody_waits_again(hall: Hall) -> None:
    """What the cluster says is true: its quota is free, and it is admitted anew when there is some."""
    await hall.build(quota=1)
    job = await hall.job("a")
    async with hall.admitter():
        await hall.until_released("a")
        await hall.kube.patch(CLUSTER_QUEUES, "training", {"spec": {"stopPolicy": "Hold"}}, kind=PatchKind.MERGE)
        ref = PodRef(namespace="default", name="a", uid=job.metadata.uid)
        await set_suspend(hall.kube, ref, True)

        async def stopped() -> bool:
            return DeferReason.QUEUE_STOPPED in [one.reason for one in await hall.told(AdmissionDeferred)]

        await eventually(stopped)
        assert await hall.released() == set()
        await hall.kube.patch(CLUSTER_QUEUES, "training", {"spec": {"stopPolicy": "None"}}, kind=PatchKind.MERGE)
        await hall.until_released("a")


async def test_a_queue_named_by_an_annotation_is_accepted_with_a_warning(hall: Hall) -> None:
    """A Kubernetes Event beside the Job."""
    await hall.build()
    await hall.job("old", annotated=True)
    async with hall.admitter():
        await hall.until_released("old")

        async def warned() -> bool:
            notes = (await hall.kube.list(EVENTS, namespace="default")).items
            return any(note.reason == "QueueNamedByAnnotation" and QUEUE_LABEL in note.message for note in notes)

        await eventually(warned)


async def test_fields_that_are_ignored_are_told_beside_the_queue(hall: Hall) -> None:
    """A cohort is accepted and not honoured: the queue works, and its owner can read why nothing is lent."""
    await hall.build()
    await hall.kube.patch(CLUSTER_QUEUES, "training", {"spec": {"cohort": "gpu"}}, kind=PatchKind.MERGE)
    await hall.job("a")
    async with hall.admitter():
        await hall.until_released("a")

        async def told() -> bool:
            notes = (await hall.kube.list(EVENTS, namespace="default")).items
            return [n.message for n in notes if n.reason == "FieldsIgnored"] == ["accepted; not honoured: spec.cohort"]

        await eventually(told)


async def test_without_the_bus_nothing_is_admitted(hall: Hall) -> None:
    """NATS away: everything waits; back again, it goes on."""
    await hall.build()
    await hall.job("a")
    async with hall.admitter():
        await hall.until_released("a")
        await hall.house.nats.kill()
        await hall.job("b")
        await asyncio.sleep(2)
        assert await hall.released() == {"a"}
        await hall.house.nats.restart()
        await hall.until_released("b")


async def test_observing_tells_and_releases_nothing(hall: Hall) -> None:
    """The decision is on record as a deferral that names the mode."""
    await hall.build()
    await hall.job("a")
    async with hall.admitter(MODE="observe"):
        (deferred,) = await hall.until_told(AdmissionDeferred)
        await asyncio.sleep(0.5)
    assert deferred.detail == "would be admitted: observing"
    assert await hall.released() == set()
    assert await hall.told(WorkloadAdmitted) == []


async def test_beside_kueues_controller_it_only_observes(hall: Hall) -> None:
    """Its lease is held: nothing is admitted."""
    await hall.build()
    await hall.make(NAMESPACES, {"metadata": {"name": "kueue-system"}})
    now = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "kueue-1", "leaseDurationSeconds": 60, "renewTime": now, "acquireTime": now}
    await hall.make(
        LEASES, {"metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}, "spec": spec}
    )
    await hall.job("a")
    async with hall.admitter():
        (deferred,) = await hall.until_told(AdmissionDeferred)
        await asyncio.sleep(0.5)
        assert "Kueue's controller runs" in deferred.detail
        assert await hall.released() == set()


async def test_a_successor_inherits_in_a_full_queue(hall: Hall) -> None:
    """The evictor's events say whose place it takes; the one that waited before goes on waiting."""
    await hall.build(quota=2, home_gpus=(2,))
    old = await hall.pod("old", gpus=2, queue="research", owner="web")
    async with hall.admitter():
        await hall.until_released("old")
        await hall.job("waits", gpus=1)
        await hall.until_told(AdmissionDeferred)
        pod = PodRef(namespace="default", name="old", uid=old.metadata.uid)
        owner = OwnerRef(kind="ReplicaSet", name="web", uid="web")
        expires = SystemClock().now() + timedelta(seconds=60)
        intent = ReturnIntended(pod=pod, owner=owner, node="v", home_node="home-1", gpus=2, expires_at=expires)
        published = await hall.house.others.publish(intent)
        await hall.kube.delete(PODS, "old", "default", grace_seconds=0)
        gone = PodEvicted(pod=pod, node="v", home_node="home-1", gpus=2)
        await hall.house.others.publish(gone, caused_by=published.envelope)
        await asyncio.sleep(0.5)  # nobody else takes the place meanwhile
        assert await hall.released() == set()
        await hall.pod("new", gpus=2, queue="research", owner="web")
        await hall.until_released("new")
        assert "waits" not in await hall.released()
    admitted = (await hall.told(WorkloadAdmitted))[-1]
    assert (admitted.workload.name, admitted.inherited_from) == ("new", pod)


async def test_killed_in_a_burst_it_never_exceeds_the_quota(hall: Hall) -> None:
    """SIGKILL at any moment: what runs stays within the quota, and the quota is used up in the end."""
    await hall.build(quota=20, home_gpus=(50,))
    for start in range(0, 40, 10):
        await asyncio.gather(*(hall.job(f"j{number:02}") for number in range(start, start + 10)))
    env = {
        **os.environ,
        **hall.house.env(
            OVERSPILL_IDENTITY="admitter", OVERSPILL_ADMITTER_INTERVAL="0.1", OVERSPILL_ADMITTER_PARALLEL="1"
        ),
    }
    for kill_after in (1, 7, 13, None):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "overspill_admitter", env=env, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await hall.until_told(WorkloadAdmitted, kill_after or 20)
            if kill_after is None:
                await eventually(lambda: _are_released(hall, 20))
                await asyncio.sleep(1)
        finally:
            process.send_signal(signal.SIGKILL if kill_after else signal.SIGTERM)
            await process.wait()
        assert len(await hall.released()) <= 20
    assert len(await hall.released()) == 20
    told = Counter(event.workload.name for event in await hall.told(WorkloadAdmitted))
    assert set(told.values()) == {1}
    assert set(told) == await hall.released()
