"""Effects hit what was decided about and nothing else, against an API server."""

import asyncio
from typing import Any

import pytest

from overspill_events.catalog import PodRef, WorkloadRef
from overspill_kube.client import Client
from overspill_kube.effects import (
    Evicted,
    Gone,
    PdbBlocked,
    TaintsSet,
    annotate,
    evict,
    patch_pod_status,
    record_event,
    remove_gate,
    set_suspend,
    set_taints,
)
from overspill_kube.note_limits import NoteLimits
from overspill_kube.outcomes import Conflict, NotFound, Replaced, SeveralPdbs
from overspill_kube.resources import EVENTS, JOBS, NODES, PDBS, PODS
from overspill_objects.core import Taint
from overspill_objects.meta import ObjectReference
from tests.support.kube_place import Place, done, eventually, ref, unique

OTHER_UID = "00000000-0000-4000-8000-000000000000"


def taint(key: str, value: str = "") -> Taint:
    return Taint(key=f"test.overspill.dev/{key}", value=value, effect="NoSchedule")


async def our_taints(client: Client, name: str) -> dict[str, str]:
    """Without those that a node lifecycle controller adds to a node that no kubelet reports on."""
    node = await client.get(NODES, name)
    assert node is not None
    own = [entry for entry in node.spec.taints if entry.key.startswith("test.overspill.dev/")]
    return {entry.key.partition("/")[2]: entry.value for entry in own}


async def test_two_writers_of_taints_keep_each_others_taints(client: Client, place: Place) -> None:
    """The list is one value to the server; each writer adds its own taints one by one at the same time."""
    node = await place.node()

    async def add_all(prefix: str) -> None:
        for number in range(5):
            outcome = await set_taints(
                client, node.metadata.name, add=[taint(f"{prefix}{number}")], expect_uid=node.metadata.uid
            )
            assert isinstance(outcome, TaintsSet), outcome

    await asyncio.gather(add_all("a"), add_all("b"))
    expected = {f"{prefix}{number}" for prefix in "ab" for number in range(5)}
    assert set(await our_taints(client, node.metadata.name)) == expected


async def test_a_taint_comes_changes_and_goes(client: Client, place: Place) -> None:
    node = await place.node()
    name, uid = node.metadata.name, node.metadata.uid
    assert (await set_taints(client, name, add=[taint("x"), taint("y", "1")], expect_uid=uid)).changed
    assert await our_taints(client, name) == {"x": "", "y": "1"}
    again = await set_taints(client, name, add=[taint("x"), taint("y", "1")], expect_uid=uid)
    assert isinstance(again, TaintsSet)
    assert not again.changed
    assert (await set_taints(client, name, add=[taint("y", "2")], remove=[taint("x")], expect_uid=uid)).changed
    assert await our_taints(client, name) == {"y": "2"}
    assert not (await set_taints(client, name, remove=[taint("x")], expect_uid=uid)).changed


async def test_taints_of_another_node_of_that_name_are_not_touched(client: Client, place: Place) -> None:
    node = await place.node()
    outcome = await set_taints(client, node.metadata.name, add=[taint("x")], expect_uid=OTHER_UID)
    assert isinstance(outcome, Replaced)
    assert await our_taints(client, node.metadata.name) == {}
    assert isinstance(await set_taints(client, unique("absent"), add=[taint("x")], expect_uid=OTHER_UID), NotFound)


async def test_a_node_replaced_in_the_moment_between_keeps_its_taints(client: Client, place: Place) -> None:
    """It was made anew after it was read, with the same taints: the UID inside the patch still spares it."""
    node = await place.node()
    name = node.metadata.name
    before = await client.get_document(NODES, name)
    done(await client.delete(NODES, name))
    done(await client.create(NODES, {"metadata": {"name": name}}))

    class Stale:
        """A client whose first read of the node is from before the replacement."""

        clock = client.clock
        patch = client.patch
        reads = 0

        async def get_document(self, *arguments: Any) -> Any:
            self.reads += 1
            return before if self.reads == 1 else await client.get_document(*arguments)

    outcome = await set_taints(Stale(), name, add=[taint("x")], expect_uid=node.metadata.uid)  # type: ignore[arg-type]
    assert isinstance(outcome, Replaced)
    assert await our_taints(client, name) == {}


async def test_a_recreated_pod_is_not_evicted_for_its_predecessor(client: Client, place: Place) -> None:
    first = await place.running("worker")
    done(await client.delete(PODS, "worker", place.namespace, grace_seconds=0))
    second = await place.running("worker")
    assert isinstance(await evict(client, ref(first)), Replaced)
    found = await client.get(PODS, "worker", place.namespace)
    assert found is not None
    assert found.metadata.uid == second.metadata.uid
    assert found.metadata.deletion_timestamp is None


async def test_the_servers_own_uid_check_holds_in_the_moment_between(client: Client, place: Place) -> None:
    """The pod is replaced after it was read: the precondition inside the eviction still spares the new one."""
    pod = await place.running("worker")

    class Stale:
        """A client whose read of the pod is from before the replacement."""

        transport = client.transport

        async def get(self, *_: Any, **__: Any) -> Any:
            return pod_before

    pod_before = await client.get(PODS, "worker", place.namespace)
    done(await client.delete(PODS, "worker", place.namespace, grace_seconds=0))
    await place.running("worker")
    assert isinstance(await evict(Stale(), ref(pod)), Replaced)  # type: ignore[arg-type]
    assert (await client.get(PODS, "worker", place.namespace)).metadata.deletion_timestamp is None


async def test_an_eviction_is_accepted_once_and_then_gone(client: Client, place: Place) -> None:
    pod = await place.running("worker", terminationGracePeriodSeconds=0)
    assert isinstance(await evict(client, ref(pod), dry_run=True), Evicted)
    assert (await client.get(PODS, "worker", place.namespace)).metadata.deletion_timestamp is None
    assert isinstance(await evict(client, ref(pod)), Evicted)
    assert isinstance(await evict(client, ref(pod)), Gone)


async def test_a_pod_that_is_leaving_is_not_evicted_again(client: Client, place: Place) -> None:
    node = await place.node()
    every = [{"operator": "Exists"}]
    pod = await place.running("worker", nodeName=node.metadata.name, tolerations=every)
    assert isinstance(await evict(client, ref(pod), grace=300), Evicted)
    assert await evict(client, ref(pod)) == Gone(terminating=True)


async def budget(place: Place, name: str, app: str) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    await place.create(PDBS, {"metadata": {"name": name}, "spec": spec})

    async def counted() -> bool:
        found = await place.client.get(PDBS, name, place.namespace)
        return found is not None and found.status.current_healthy == 1

    await eventually(counted)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_disruption_budget_blocks_and_is_named(client: Client, place: Place, dry_run: bool) -> None:
    pod = await place.running("worker", labels={"app": "served"})
    await budget(place, "keep-one", "served")
    outcome = await evict(client, ref(pod), dry_run=dry_run)
    assert isinstance(outcome, PdbBlocked)
    assert outcome.pdb == "keep-one"
    assert (await client.get(PODS, "worker", place.namespace)).metadata.deletion_timestamp is None


async def test_two_disruption_budgets_on_one_pod_are_a_fault_of_the_configuration(client: Client, place: Place) -> None:
    pod = await place.running("worker", labels={"app": "served"})
    await budget(place, "one", "served")
    await budget(place, "two", "served")
    assert isinstance(await evict(client, ref(pod)), SeveralPdbs)


async def test_a_status_is_merged_into_the_pod_it_was_meant_for(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    first = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    changed = done(await patch_pod_status(client, ref(pod), first, pod.metadata.resource_version))
    second = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    changed = done(await patch_pod_status(client, ref(pod), second))
    conditions = {entry.type: entry.status for entry in changed.status.conditions}
    assert changed.status.phase == "Running"
    assert {"Ready": "True", "DisruptionTarget": "True"}.items() <= conditions.items()
    stale = await patch_pod_status(client, ref(pod), first, pod.metadata.resource_version)
    assert isinstance(stale, Conflict)


async def test_a_status_is_not_written_into_a_pods_successor(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    other = PodRef(namespace=place.namespace, name="worker", uid=OTHER_UID)
    assert isinstance(await patch_pod_status(client, other, {"phase": "Failed"}), Replaced)
    assert (await client.get(PODS, "worker", place.namespace)).status.phase == pod.status.phase
    absent = PodRef(namespace=place.namespace, name="absent", uid=OTHER_UID)
    assert isinstance(await patch_pod_status(client, absent, {"phase": "Failed"}), NotFound)


async def test_annotations_are_set_and_removed_one_by_one(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    done(await annotate(client, ref(pod), {"a.example.com/x": "1", "b": "2"}))
    changed = done(await annotate(client, ref(pod), {"b": None, "c": "3"}))
    assert changed.metadata.annotations == {"a.example.com/x": "1", "c": "3"}
    again = done(await annotate(client, ref(pod), {"b": None, "c": "3"}))
    assert again.metadata.resource_version == changed.metadata.resource_version


async def test_two_annotators_keep_each_others_annotations(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    outcomes = await asyncio.gather(*(annotate(client, ref(pod), {f"key-{n}": "x"}) for n in range(4)))
    for outcome in outcomes:
        done(outcome)
    found = await client.get(PODS, "worker", place.namespace)
    assert found is not None
    assert set(found.metadata.annotations) == {f"key-{n}" for n in range(4)}


async def test_one_gate_is_removed_and_others_stay(client: Client, place: Place) -> None:
    gates = [{"name": "one.example.com/a"}, {"name": "two.example.com/b"}]
    pod = await place.pod("worker", schedulingGates=gates)
    changed = done(await remove_gate(client, ref(pod), "one.example.com/a"))
    assert [gate.name for gate in changed.spec.scheduling_gates] == ["two.example.com/b"]
    again = done(await remove_gate(client, ref(pod), "one.example.com/a"))
    assert again.metadata.resource_version == changed.metadata.resource_version
    assert done(await remove_gate(client, ref(pod), "two.example.com/b")).spec.scheduling_gates == ()


async def test_a_job_is_let_go_and_held_back(client: Client, place: Place) -> None:
    container = {"name": "main", "image": "none"}
    template = {"spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [container]}}
    job = await place.create(JOBS, {"metadata": {"name": "train"}, "spec": {"suspend": True, "template": template}})
    target = WorkloadRef(kind="Job", namespace=place.namespace, name="train", uid=job.metadata.uid)
    assert done(await set_suspend(client, target, False)).spec.suspend is False
    assert done(await set_suspend(client, target, True)).spec.suspend is True
    other = WorkloadRef(kind="Job", namespace=place.namespace, name="train", uid=OTHER_UID)
    assert isinstance(await set_suspend(client, other, False), Replaced)
    assert (await client.get(JOBS, "train", place.namespace)).spec.suspend is True


async def test_a_note_is_left_beside_its_object_and_not_repeated(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    involved = ObjectReference(
        api_version="v1", kind="Pod", namespace=place.namespace, name="worker", uid=pod.metadata.uid
    )

    async def note() -> bool:
        return await record_event(
            client, involved, reason="NotSpillable", message="it uses a host port", component="overspill-bridge"
        )

    assert await note()
    assert not await note()
    listing = await client.list(EVENTS, namespace=place.namespace, fields=f"involvedObject.uid={pod.metadata.uid}")
    ours = [event for event in listing.items if event.reason == "NotSpillable"]
    assert [event.message for event in ours] == ["it uses a host port"]


async def test_notes_with_a_budget_of_their_own_take_nothing_of_the_others(client: Client, place: Place) -> None:
    pod = await place.pod("worker")
    about = ObjectReference(
        api_version="v1", kind="Pod", namespace=place.namespace, name="worker", uid=pod.metadata.uid
    )
    own, before = NoteLimits(burst=1, per_second=0.001), len(client.note_limits)

    async def note(message: str) -> bool:
        return await record_event(
            client, about, reason="Turn", message=message, component="overspill-bridge", limits=own
        )

    assert await note("the first")
    assert not await note("the second")
    assert (len(own), len(client.note_limits)) == (1, before)
