"""The bridge when things go wrong: killed, lied to, left alone. Judged by the cloud's audit and the API server."""

import asyncio
import contextlib
import json
import random
from datetime import datetime
from itertools import pairwise

import pytest

from overspill_bus.testing import nats_server
from overspill_events.catalog import (
    InstanceAdopted,
    InstanceFailed,
    InstanceRequested,
    InstanceRunning,
    InstanceTerminated,
    OrphanFound,
    ProviderSampled,
    SpillDeferred,
)
from overspill_events.names import CLUSTER_TAG, INSTANCE_ANNOTATION, NODE_TAG, PROVIDER_ANNOTATION
from overspill_events.reasons import InstanceEnd, SpillReason
from tests.support.bridge_place import NODE, bridge_place, said, tags_for
from tests.support.cloud import cloud

pytestmark = pytest.mark.timeout(240)

NO_STOCK = [{"id": "one", "gpuType": "a100", "gpus": 1, "region": "north", "pricePerHour": 1.0, "stock": 1}]


def uids(pods):
    return sorted(pod.metadata.uid for pod in pods)


async def all_running(place):
    pods = await place.pods()
    return pods if pods and all(pod.status.phase == "Running" for pod in pods) else None


async def none_living(place):
    return not await place.cloud.living()


async def test_killed_while_creating_thirty_pods_it_ends_with_one_instance_each(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge(create_concurrency="4")
        await place.pod("first")
        await place.phase("first", "Running")
        for number in range(29):
            await place.pod(f"pod-{number}")
        for _ in range(3):  # in the middle of it, more than once
            before = len((await place.cloud.audit())["instances"])

            async def some_more(before=before):
                return len((await place.cloud.audit())["instances"]) > before or await all_running(place)

            await place.eventually(some_more)
            await place.kill_bridge()
            await place.start_bridge(create_concurrency="4")
        pods = await place.eventually(lambda: all_running(place))
        audit = await place.cloud.audit()
        assert sorted(i["podUid"] for i in audit["instances"] if i["living"]) == uids(pods)
        assert audit["overlaps"] == []
        adopted = {event.pod.uid for event in await said(place, InstanceAdopted)}
        assert adopted <= set(uids(pods))
        assert adopted, "a restart must find what its predecessor made"
        await _tells_only_times_it_knows(place)


async def _tells_only_times_it_knows(place):
    """How long a pod waited for what a predecessor made is not known."""
    adopted = set()
    for event in await said(place, InstanceAdopted, InstanceRunning):
        if isinstance(event, InstanceAdopted):
            adopted.add(event.pod.uid)
        else:
            assert (event.seconds_to_running is None) == (event.pod.uid in adopted), event


async def test_killed_while_deleting_it_leaves_nothing(tmp_path):
    async with bridge_place(tmp_path, "--stop-seconds", "1") as place:
        await place.start_bridge()
        for number in range(10):
            await place.pod(f"pod-{number}")
        await place.eventually(lambda: all_running(place))
        for number in range(10):
            await place.delete(f"pod-{number}")
        await place.eventually(lambda: _stopping(place))
        await place.kill_bridge()
        await place.delete("pod-3", grace_seconds=0)  # force-deleted while nobody looks
        await place.start_bridge()

        async def all_gone():
            return not await place.pods() and await none_living(place)

        await place.eventually(all_gone)


async def _stopping(place):
    return [i for i in (await place.cloud.audit())["instances"] if i["stopRequestedAt"]]


async def test_lost_answers_to_creates_make_no_second_instance(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.cloud.faults(create_answer_lost={"times": 5})
        await place.start_bridge()
        for number in range(8):
            await place.pod(f"pod-{number}")
        pods = await place.eventually(lambda: all_running(place))
        audit = await place.cloud.audit()
        assert sorted(i["podUid"] for i in audit["instances"]) == uids(pods)
        assert audit["overlaps"] == []
        reasons = {event.reason for event in await said(place, SpillDeferred)}
        assert SpillReason.AMBIGUOUS in reasons


async def test_partial_and_failing_lists_change_nothing(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        for number in range(6):
            await place.pod(f"pod-{number}")
        pods = await place.eventually(lambda: all_running(place))
        for fault in ("list_incomplete", "list_error"):
            await place.cloud.faults(**{fault: {}})
            await asyncio.sleep(2.0)  # ten polls, three passes of the collector, a resync
            now = await place.pods()
            assert [p.status for p in now] == [p.status for p in pods], f"{fault} changed a status"
            assert len(await place.cloud.living()) == 6, f"{fault} ended an instance"
        # A deletion during the outage is carried out, but the pod stays until a complete list proves it done.
        await place.delete("pod-0")
        await place.eventually(lambda: _stopping(place))
        await asyncio.sleep(1.0)
        assert await place.get("pod-0") is not None
        await place.cloud.faults()

        async def gone():
            return await place.get("pod-0") is None

        await place.eventually(gone)
        assert len(await place.cloud.living()) == 5


async def test_a_refused_create_goes_to_the_next_offering_within_the_same_pod(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.cloud.faults(no_capacity={"offerings": ["a100-1x-north"]})
        await place.start_bridge()
        pod = await place.pod("picky")
        await place.phase("picky", "Running")
        (instance,) = await place.cloud.living()
        assert (instance["podUid"], instance["offering"]) == (pod.metadata.uid, "h100-1x-south")
        attempts = [(e.offering, e.attempt) for e in await said(place, InstanceRequested)]
        assert attempts == [("a100-1x-north", 1), ("h100-1x-south", 2)]


async def test_without_stock_pods_wait_and_run_when_there_is_some(tmp_path):
    offerings = tmp_path / "offerings.json"
    offerings.write_text(json.dumps(NO_STOCK))
    async with bridge_place(tmp_path, "--offerings", str(offerings)) as place:
        await place.start_bridge()
        await place.pod("lucky")
        await place.phase("lucky", "Running")
        waiting = await place.pod("waiting")

        async def told():
            return [e for e in await said(place, SpillDeferred) if e.pod.uid == waiting.metadata.uid]

        (event,) = await place.eventually(told)
        assert event.reason is SpillReason.NO_STOCK
        await asyncio.sleep(1.5)
        assert len(await told()) == 1, "said on change of reason only"
        assert (await place.get("waiting")).status.phase == "Pending"
        await place.delete("lucky")
        await place.phase("waiting", "Running")
        assert (await place.cloud.audit())["overlaps"] == []


async def test_the_ceiling_holds_whatever_is_bound(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge(max_external_gpus="4")
        for number in range(5):
            await place.pod(f"pod-{number}", gpus=2)

        async def two_run_and_three_wait():
            pods = await place.pods()
            running = sum(p.status.phase == "Running" for p in pods)
            deferred = {e.pod.uid for e in await said(place, SpillDeferred) if e.reason is SpillReason.LIMIT}
            return running == 2 and len(deferred) == 3

        await place.eventually(two_run_and_three_wait)
        await asyncio.sleep(1.0)
        audit = await place.cloud.audit()
        assert sum(i["gpus"] for i in audit["instances"]) == 4, "not even for a moment more than four GPUs"


async def test_foreign_instances_are_never_touched_and_orphans_go(tmp_path):
    async with bridge_place(tmp_path) as place:
        ours = await tags_for(place, "11111111-1111-1111-1111-111111111111", name="default/long-gone")
        other_node = await tags_for(place, "22222222-2222-2222-2222-222222222222", node="other-node")
        other_cluster = ours | {CLUSTER_TAG: "another"}
        orphan = await place.cloud.rent("overspill-11111111-1111-1111-1111-111111111111", tags=ours)
        foreign = [
            await place.cloud.rent("overspill-11111111-1111-1111-1111-111111111111"),
            await place.cloud.rent("somebody", tags=other_node),
            await place.cloud.rent("somebody", tags=other_cluster),
            await place.cloud.rent("somebody", tags={NODE_TAG: NODE}),
        ]
        await place.start_bridge()

        async def only_foreign():
            return sorted(i["id"] for i in await place.cloud.living()) == sorted(foreign)

        await place.eventually(only_foreign)
        (found,) = await said(place, OrphanFound)
        assert found.instance == orphan

        async def told():
            return await said(place, InstanceTerminated)

        (terminated,) = await place.eventually(told)
        assert (terminated.instance, terminated.end) == (orphan, InstanceEnd.ORPHAN)
        await asyncio.sleep(1.0)
        assert await only_foreign()


async def test_collection_is_capped_and_spares_pods_that_exist(tmp_path):
    async with bridge_place(tmp_path) as place:
        for number in range(3):
            await place.cloud.rent("x", tags=await tags_for(place, f"uid-{number}", name=f"default/gone-{number}"))
        await place.start_bridge(gc_max_per_pass="1", gc_interval="1")
        pod = await place.pod("alive")
        await place.phase("alive", "Running")

        async def one_left():
            return [i["podUid"] for i in await place.cloud.living()] == [pod.metadata.uid]

        await place.eventually(one_left)
        stops = sorted(datetime.fromisoformat(i["stopRequestedAt"]) for i in await _stopping(place))
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(stops)]
        assert len(gaps) == 2
        assert min(gaps) > 0.3, "one in each pass, and passes are a second apart"


async def test_a_pod_that_a_live_read_finds_keeps_its_instance(tmp_path):
    """No pod on our node has that UID, so the instance is condemned; the last look before its end spares it."""
    async with bridge_place(tmp_path) as place:
        pod = await place.pod("elsewhere", nodeName="another-node")
        spared = await place.cloud.rent("x", tags=await tags_for(place, pod.metadata.uid, name="default/elsewhere"))
        await place.start_bridge()

        async def condemned():
            return await said(place, OrphanFound)

        await place.eventually(condemned)
        await asyncio.sleep(1.5)
        assert [i["id"] for i in await place.cloud.living()] == [spared]
        await place.delete("elsewhere", grace_seconds=0)

        async def ended():
            return await place.cloud.living() == []

        await place.eventually(ended)


async def test_of_two_instances_for_one_pod_the_one_that_runs_stays(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        pod = await place.pod("twice")
        await place.phase("twice", "Running")
        (kept,) = await place.cloud.living()
        await place.cloud.rent("again", tags=await tags_for(place, pod.metadata.uid, name="default/twice"))

        async def one():
            return [i["id"] for i in await place.cloud.living()] == [kept["id"]]

        await place.eventually(one)

        async def told():
            return [e for e in await said(place, InstanceTerminated) if e.end is InstanceEnd.DUPLICATE]

        await place.eventually(told)
        assert (await place.get("twice")).status.phase == "Running"


async def test_an_instance_that_does_not_start_is_given_up_for_another_offering(tmp_path):
    async with bridge_place(tmp_path, "--start-seconds", "60") as place:
        await place.start_bridge(start_deadline="1.5", offering_cooldown="30")
        pod = await place.pod("stuck")

        async def second():
            return [i for i in await place.cloud.living() if i["offering"] == "h100-1x-south"]

        await place.eventually(second)
        audit = await place.cloud.audit()
        assert audit["overlaps"] == [], "the first one had to be gone before the second was asked for"
        assert {i["podUid"] for i in audit["instances"]} == {pod.metadata.uid}
        assert (await place.get("stuck")).status.phase == "Pending"
        failures = await said(place, InstanceFailed)
        assert failures[0].end is InstanceEnd.START_DEADLINE


async def test_work_goes_on_without_the_bus_and_its_events_come_later(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(bridge_place(tmp_path))
        dead = await stack.enter_async_context(nats_server())
        port_url = dead.url
        await dead.kill()
        living_url, place.nats_url = place.nats_url, port_url
        await place.start_bridge()
        await place.pod("unheard")
        await place.phase("unheard", "Running")
        await place.delete("unheard")

        async def gone():
            return await place.get("unheard") is None and await none_living(place)

        await place.eventually(gone)
        await dead.restart()

        async def told():
            return await said(place, InstanceTerminated)

        await place.eventually(told)
        assert len(await said(place, InstanceRequested)) == 1
        assert len(await said(place, InstanceRunning)) == 1
        place.nats_url = living_url


async def test_whatever_is_killed_whenever_the_end_is_the_same(tmp_path):
    """Pods come and go while the bridge is killed at arbitrary moments; in the end each pod has one instance."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with bridge_place(tmp_path, "--stop-seconds", "0.3") as place:
        await place.start_bridge()
        alive: set[str] = set()
        for step in range(40):
            if alive and chance.random() < 0.35:
                name = chance.choice(sorted(alive))
                alive.discard(name)
                await place.delete(name, **({"grace_seconds": 0} if chance.random() < 0.3 else {}))
            else:
                alive.add(f"pod-{step}")
                await place.pod(f"pod-{step}")
            if step % 8 == 7:
                await asyncio.sleep(chance.uniform(0.3, 2.0))
                await place.kill_bridge()
                await place.start_bridge()
            await asyncio.sleep(chance.uniform(0, 0.1))

        async def settled():
            pods = await place.pods()
            running = {pod.metadata.name for pod in pods if pod.status.phase == "Running"}
            living = sorted(i["podUid"] for i in await place.cloud.living())
            return running == alive == {p.metadata.name for p in pods} and living == uids(pods)

        await place.eventually(settled)
        assert (await place.cloud.audit())["overlaps"] == [], f"seed {seed}"


async def test_pods_of_a_provider_that_is_not_configured_any_more_are_left_as_they_are(tmp_path):
    async with bridge_place(tmp_path) as place, cloud() as other:
        await place.start_bridge()
        for name in ("runs", "goes"):
            await place.pod(name)
        before = [await place.phase(name, "Running") for name in ("runs", "goes")]
        await place.stop_bridge()
        await place.delete("goes", grace_seconds=1)
        await place.start_bridge(providers=other.setting.replace("fake=", "other="))

        async def told():
            return {e.pod.uid: e for e in await said(place, SpillDeferred)}.keys() >= set(uids(before))

        await place.eventually(told)
        await asyncio.sleep(2.0)  # ten polls, a resync
        assert (await place.get("runs")).status == before[0].status
        assert await place.get("goes") is not None
        assert len(await place.cloud.living()) == 2
        assert await said(place, InstanceFailed, InstanceTerminated) == []
        assert (await other.audit())["instances"] == [], "nothing is created for a pod that may have one"
        await place.stop_bridge()
        await place.start_bridge()

        async def one_left():
            return await place.get("goes") is None and len(await place.cloud.living()) == 1

        await place.eventually(one_left)
        assert (await place.get("runs")).status.phase == "Running"


async def test_a_new_leader_believes_no_absence_while_lists_may_lag_behind_its_predecessor(tmp_path):
    async with bridge_place(tmp_path) as place:
        marks = {PROVIDER_ANNOTATION: "fake", INSTANCE_ANNOTATION: "made-by-a-predecessor"}
        pod = await place.pod("young", annotations=marks)
        await place.start_bridge(list_lag="40")

        async def answered():
            return any(event.healthy for event in await said(place, ProviderSampled))

        await place.eventually(answered)
        await asyncio.sleep(2.0)  # ten polls, a resync
        assert (await place.get("young")).status.phase == "Pending"
        shown = await place.cloud.rent("x", tags=await tags_for(place, pod.metadata.uid, name="default/young"))
        await place.phase("young", "Running")
        assert [i["id"] for i in (await place.cloud.audit())["instances"]] == [shown]


async def test_a_renamed_provider_still_ends_the_instance_of_a_pod_that_was_deleted_meanwhile(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        for name in ("runs", "goes"):
            await place.pod(name)
            await place.phase(name, "Running")
        await place.stop_bridge()
        await place.delete("goes", grace_seconds=1)
        await place.start_bridge(providers=place.cloud.setting.replace("fake=", "renamed="))

        async def settled():
            runs = await place.get("runs")
            return await place.get("goes") is None and runs.metadata.annotations[PROVIDER_ANNOTATION] == "renamed"

        await place.eventually(settled)
        assert (await place.get("runs")).status.phase == "Running"
        assert [i["podUid"] for i in await place.cloud.living()] == uids(await place.pods())
        assert [event.provider for event in await said(place, InstanceTerminated)] == ["renamed"]


async def test_one_provider_down_stops_neither_its_pods_nor_the_other(tmp_path):
    offerings = tmp_path / "cheap.json"
    offerings.write_text(json.dumps([NO_STOCK[0] | {"stock": 50, "pricePerHour": 0.1}]))
    async with bridge_place(tmp_path) as place, contextlib.AsyncExitStack() as second:
        cheap = await second.enter_async_context(cloud("--offerings", str(offerings)))
        both = f"cheap=http://{cheap.url.removeprefix('http://')}?token={cheap.token},{place.cloud.setting}"
        await place.start_bridge(providers=both, provider_timeout="1")
        old = await place.pod("at-cheap")
        await place.phase("at-cheap", "Running")
        assert [i["podUid"] for i in await cheap.living()] == [old.metadata.uid]
        await second.aclose()

        async def noticed():
            events = [e for e in await said(place, ProviderSampled) if e.provider == "cheap"]
            return not events[-1].healthy

        await place.eventually(noticed)
        new = await place.pod("at-fake")
        await place.phase("at-fake", "Running")
        assert [i["podUid"] for i in await place.cloud.living()] == [new.metadata.uid]
        await asyncio.sleep(1.0)
        assert (await place.get("at-cheap")).status.phase == "Running", "an outage never changes a phase"
