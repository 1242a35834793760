"""Pods on the virtual node, each from its binding to its end, on one running bridge."""

import asyncio
import base64

import pytest
import pytest_asyncio

from overspill_events.catalog import (
    InstanceCreated,
    InstanceFailed,
    InstanceRequested,
    InstanceRunning,
    InstanceTerminated,
    InstanceTerminating,
    SpillDeferred,
)
from overspill_events.names import (
    DELETION_COST_ANNOTATION,
    GPU_TYPE_ANNOTATION,
    INSTANCE_ANNOTATION,
    MAX_PRICE_ANNOTATION,
    PRICE_ANNOTATION,
    PROVIDER_ANNOTATION,
    SECRETS_ANNOTATION,
)
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_kube.client import PatchKind
from overspill_kube.outcomes import Done
from overspill_kube.resources import CONFIG_MAPS, EVENTS, PODS, SECRETS
from overspill_objects.meta import condition_of
from tests.support.bridge_place import NAMESPACE, bridge_place, said

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

RUN = "OVERSPILL_LAB_RUN_SECONDS"
EXIT = "OVERSPILL_LAB_EXIT_CODE"


def runs(seconds, exit_code=0):
    return [{"name": RUN, "value": str(seconds)}, {"name": EXIT, "value": str(exit_code)}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory):
    async with bridge_place(tmp_path_factory.mktemp("place")) as one:
        await one.start_bridge()
        yield one


async def of_pod(place, uid):
    return [i for i in (await place.cloud.audit())["instances"] if i["podUid"] == uid]


async def gone(place, name):
    async def absent():
        return await place.get(name) is None

    await place.eventually(absent)


async def test_a_bound_pod_runs_is_marked_and_leaves_nothing_behind(place):
    pod = await place.pod("whole-life", gpus=2)
    await place.phase("whole-life", "Running")
    written = await place.get("whole-life")
    (instance,) = await of_pod(place, pod.metadata.uid)
    annotations = written.metadata.annotations
    assert annotations[PROVIDER_ANNOTATION] == "fake"
    assert annotations[INSTANCE_ANNOTATION] == instance["id"]
    assert annotations[PRICE_ANNOTATION] == "3.78", "the cheapest offering with two GPUs"
    assert int(annotations[DELETION_COST_ANNOTATION]) < 0
    seconds = {t.key: t.toleration_seconds for t in written.spec.tolerations if t.effect == "NoExecute"}
    assert seconds["node.kubernetes.io/not-ready"] == 3600
    assert seconds["node.kubernetes.io/unreachable"] == 3600
    assert condition_of(written.status.conditions, "Ready").status == "True"
    assert [c.name for c in written.status.container_statuses] == ["main"]
    assert written.status.pod_ip == "", "there is no address that the cluster could route to"
    assert written.status.start_time is not None

    await place.delete("whole-life")
    await gone(place, "whole-life")
    (instance,) = await of_pod(place, pod.metadata.uid)
    assert not instance["living"], "the pod left the API before its instance was gone"
    chain = await said(
        place, InstanceRequested, InstanceCreated, InstanceRunning, InstanceTerminating, InstanceTerminated
    )
    mine = [event for event in chain if event.pod.uid == pod.metadata.uid]
    assert [type(event) for event in mine] == [
        InstanceRequested,
        InstanceCreated,
        InstanceRunning,
        InstanceTerminating,
        InstanceTerminated,
    ]
    assert mine[-1].end is InstanceEnd.POD_DELETED
    assert mine[-1].cost > 0


@pytest.mark.parametrize(
    ("policy", "code", "phase", "reason"),
    [
        ("Never", 0, "Succeeded", "Completed"),
        ("OnFailure", 0, "Succeeded", "Completed"),
        ("Never", 3, "Failed", "Error"),
        ("OnFailure", 3, "Failed", "Error"),
        ("Always", 0, "Failed", "Completed"),
    ],
)
async def test_exit_code_and_restart_policy_make_the_phase(place, policy, code, phase, reason):
    name = f"exits-{policy.lower()}-{code}"
    pod = await place.pod(name, env=runs(0.3, code), restartPolicy=policy)
    ended = await place.phase(name, "Succeeded", "Failed")
    assert ended.status.phase == phase
    terminated = ended.status.container_statuses[0].state.terminated
    assert (terminated.exit_code, terminated.reason) == (code, reason)
    assert condition_of(ended.status.conditions, "Ready").status == "False"

    async def cleared():
        return [i for i in await of_pod(place, pod.metadata.uid) if i["state"] == "gone"]

    await place.eventually(cleared)
    again = await place.get(name)
    assert again.status == ended.status, "terminal is terminal"


async def test_an_exit_without_a_code_is_not_reported_as_zero(place):
    pod = await place.pod("codeless", restartPolicy="Never")
    await place.phase("codeless", "Running")
    (instance,) = await of_pod(place, pod.metadata.uid)
    await place.cloud.end(instance["id"], "exited")
    ended = await place.phase("codeless", "Succeeded", "Failed")
    terminated = ended.status.container_statuses[0].state.terminated
    assert (ended.status.phase, terminated.exit_code, terminated.reason) == ("Failed", 255, "ExitCodeUnknown")


async def test_preemption_is_a_disruption_and_not_the_pods_fault(place):
    pod = await place.pod("preempted", restartPolicy="Never")
    await place.phase("preempted", "Running")
    (instance,) = await of_pod(place, pod.metadata.uid)
    await place.cloud.end(instance["id"], "preempted")
    ended = await place.phase("preempted", "Failed")
    assert condition_of(ended.status.conditions, "DisruptionTarget").status == "True"

    async def told():
        events = [e for e in await said(place, InstanceFailed) if e.pod.uid == pod.metadata.uid]
        return events and events[0].end is InstanceEnd.PREEMPTED

    await place.eventually(told)


async def test_a_vanished_instance_fails_its_pod_and_is_never_replaced_under_it(place):
    pod = await place.pod("vanished")
    await place.phase("vanished", "Running")
    (instance,) = await of_pod(place, pod.metadata.uid)
    await place.cloud.end(instance["id"], "gone")
    ended = await place.phase("vanished", "Failed")
    assert ended.status.reason == "ProviderInstanceLost"
    await asyncio.sleep(1.0)  # several polls and passes, in which a second one would be made
    assert len(await of_pod(place, pod.metadata.uid)) == 1
    (failure,) = [e for e in await said(place, InstanceFailed) if e.pod.uid == pod.metadata.uid]
    assert failure.end is InstanceEnd.LOST


async def test_a_force_deleted_pod_takes_its_instance_with_it(place):
    pod = await place.pod("forced")
    await place.phase("forced", "Running")
    await place.delete("forced", grace_seconds=0)

    async def ended():
        return not any(i["living"] for i in await of_pod(place, pod.metadata.uid))

    await place.eventually(ended)


async def test_a_pod_that_did_not_opt_in_costs_nothing_and_is_told_once(place):
    pod = await place.pod("stranger", spillable=False)

    async def told():
        events = await said(place, SpillDeferred)
        return [e for e in events if e.pod.uid == pod.metadata.uid]

    (event,) = await place.eventually(told)
    assert event.reason is SpillReason.NOT_OPTED_IN
    await asyncio.sleep(2.5)  # a whole resync
    assert len(await told()) == 1
    assert await of_pod(place, pod.metadata.uid) == []
    assert (await place.get("stranger")).status.phase == "Pending"
    notes = [
        n
        for n in (await place.client.list(EVENTS, namespace=NAMESPACE)).items
        if n.involved_object.uid == pod.metadata.uid
    ]
    assert [note.reason for note in notes] == ["SpillDeferredNotOptedIn"]
    await place.delete("stranger")
    await gone(place, "stranger")


async def test_who_describes_a_pod_sees_what_it_got(place):
    """One Kubernetes Event, once, with provider, offering and price; it is no warning."""
    pod = await place.pod("described")
    await place.phase("described", "Running")

    async def noted():
        every = (await place.client.list(EVENTS, namespace=NAMESPACE)).items
        return [note for note in every if note.involved_object.uid == pod.metadata.uid]

    (created,) = await place.eventually(noted)
    ((instance),) = await of_pod(place, pod.metadata.uid)
    assert (created.reason, created.type) == ("InstanceCreated", "Normal")
    price = float((await place.get("described")).metadata.annotations[PRICE_ANNOTATION])
    assert created.message == f"{instance['id']} at fake: {instance['offering']} at ${price:g} an hour"
    await place.delete("described")
    await gone(place, "described")
    assert len(await noted()) == 1


@pytest.mark.parametrize(
    ("name", "change", "reason", "words"),
    [
        ("bad-price", {"annotations": {MAX_PRICE_ANNOTATION: "cheap"}}, SpillReason.BAD_ANNOTATION, "'cheap'"),
        ("bad-type", {"annotations": {GPU_TYPE_ANNOTATION: "a100,,"}}, SpillReason.BAD_ANNOTATION, "gpu-type"),
        ("too-dear", {"annotations": {MAX_PRICE_ANNOTATION: "0.01"}}, SpillReason.PRICE_CEILING, "$0.01/h"),
        ("no-such-type", {"annotations": {GPU_TYPE_ANNOTATION: "abacus"}}, SpillReason.UNSUPPORTED, "abacus"),
        (
            "host-path",
            {"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]},
            SpillReason.UNSUPPORTED,
            "spec.volumes[0] (disk): hostPath",
        ),
        ("host-network", {"hostNetwork": True}, SpillReason.UNSUPPORTED, "spec.hostNetwork"),
        (
            "takes-secret",
            {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            SpillReason.UNSUPPORTED,
            "Secret s",
        ),
        (
            "pod-ip",
            {"env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
            SpillReason.UNSUPPORTED,
            "status.podIP",
        ),
    ],
)
async def test_what_cannot_leave_is_said_before_money_is_spent(place, name, change, reason, words):
    pod = await place.pod(name, **change)

    async def told():
        return [e for e in await said(place, SpillDeferred) if e.pod.uid == pod.metadata.uid]

    (event,) = await place.eventually(told)
    assert event.reason is reason
    assert words in event.detail
    assert await of_pod(place, pod.metadata.uid) == []

    async def shown():
        written = await place.get(name)
        return written.status.container_statuses and written.status.phase == "Pending"

    await place.eventually(shown)
    await place.delete(name)
    await gone(place, name)


async def test_a_corrected_annotation_is_enough(place):
    await place.pod("corrected", annotations={MAX_PRICE_ANNOTATION: "cheap"})

    async def deferred():
        return (await place.get("corrected")).status.container_statuses

    await place.eventually(deferred)
    patch = {"metadata": {"annotations": {MAX_PRICE_ANNOTATION: "2.00"}}}
    await place.client.patch(PODS, "corrected", patch, kind=PatchKind.MERGE, namespace=NAMESPACE)
    written = await place.phase("corrected", "Running")
    assert written.status.container_statuses[0].state.waiting is None
    assert condition_of(written.status.conditions, "overspill.dev/Spilled").status == "True"


async def test_environment_comes_from_config_maps_secrets_and_fields(place):
    """The simulated container runs as long, and exits as, its environment says: so the values have arrived."""
    pod_env = [
        {"name": EXIT, "valueFrom": {"secretKeyRef": {"name": "code", "key": "value"}}},
        {"name": "TENTHS", "value": "2"},
        {"name": RUN, "value": "0.$(TENTHS)"},
    ]
    pod = await place.pod(
        "from-elsewhere", env=pod_env, restartPolicy="Never", annotations={SECRETS_ANNOTATION: "true"}
    )

    async def deferred():
        return [e for e in await said(place, SpillDeferred) if e.pod.uid == pod.metadata.uid]

    (event,) = await place.eventually(deferred)
    assert event.reason is SpillReason.MISSING_REFERENCE
    assert "Secret code does not exist" in event.detail
    secret = {"metadata": {"name": "code"}, "data": {"value": base64.b64encode(b"7").decode()}}
    assert isinstance(await place.client.create(SECRETS, secret, NAMESPACE), Done)
    ended = await place.phase("from-elsewhere", "Failed")
    assert ended.status.container_statuses[0].state.terminated.exit_code == 7


async def test_env_from_a_config_map_is_overridden_by_env(place):
    config = {"metadata": {"name": "both"}, "data": {RUN: "0.2", EXIT: "9"}}
    assert isinstance(await place.client.create(CONFIG_MAPS, config, NAMESPACE), Done)
    container = {"envFrom": [{"configMapRef": {"name": "both"}}], "env": [{"name": EXIT, "value": "4"}]}
    await place.pod("overridden", container=container, restartPolicy="Never")
    ended = await place.phase("overridden", "Failed")
    assert ended.status.container_statuses[0].state.terminated.exit_code == 4


async def test_ready_is_restored_when_somebody_takes_it_away(place):
    await place.pod("doubted")
    await place.phase("doubted", "Running")
    await place.patch_status(
        "doubted", {"conditions": [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]}
    )

    async def ready_again():
        ready = condition_of((await place.get("doubted")).status.conditions, "Ready")
        return ready.status == "True" and ready.reason != "NodeNotReady"

    await place.eventually(ready_again)


async def test_active_deadline_ends_the_instance(place):
    pod = await place.pod("limited", activeDeadlineSeconds=1)
    ended = await place.phase("limited", "Failed")
    assert ended.status.reason == "DeadlineExceeded"

    async def over():
        return not any(i["living"] for i in await of_pod(place, pod.metadata.uid))

    await place.eventually(over)


async def test_looking_again_writes_nothing(place):
    """Several polls and two whole resyncs leave every object's version as it was."""
    names = [f"still-{number}" for number in range(3)]
    for name in names:
        await place.pod(name)
    for name in names:
        await place.phase(name, "Running")
    await place.pod("still-deferred", annotations={MAX_PRICE_ANNOTATION: "0.01"})

    async def deferred():
        return (await place.get("still-deferred")).status.container_statuses

    await place.eventually(deferred)
    await asyncio.sleep(1.0)
    before = {p.metadata.name: p.metadata.resource_version for p in await place.pods()}
    await asyncio.sleep(4.5)
    after = {p.metadata.name: p.metadata.resource_version for p in await place.pods()}
    assert {name: after[name] for name in [*names, "still-deferred"]} == {
        name: before[name] for name in [*names, "still-deferred"]
    }
