"""The kubelets as a process: pods live, end, are stopped; nodes are kept ready; a restart changes nothing."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from overspill_kube.client import PatchKind
from overspill_kube.resources import LEASES, NODES, PODS
from overspill_lab.kubelets.life import EXIT_CODE, RUN_SECONDS
from overspill_objects.core import Pod
from overspill_objects.meta import condition_of
from tests.support.lab_parts import NAMESPACE, Parts, lab_parts, nodes_file, pod_body

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    folder = tmp_path_factory.mktemp("lab")
    kubelets = ("--nodes", nodes_file(folder, 8), "--start-seconds", "0.1", "--renew-seconds", "0.5")
    async with lab_parts(folder, controllers=(), kubelets=kubelets) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def parts(started: Parts) -> AsyncIterator[Parts]:
    """The same processes for all tests of this module; each leaves no pod."""
    yield started
    await started.clear()


async def _phase(parts: Parts, name: str, phase: str) -> Pod:
    pod: Pod = await parts.until(
        lambda: parts.pod(name), lambda seen: seen is not None and seen.status.phase == phase, f"{name} is {phase}"
    )
    return pod


async def test_a_bound_pod_runs_and_is_ready(parts: Parts) -> None:
    await parts.create(PODS, pod_body("one", nodeName="n0"))
    pod = await _phase(parts, "one", "Running")
    assert condition_of(pod.status.conditions, "Ready").status == "True"
    assert pod.status.container_statuses[0].ready
    assert pod.status.pod_ip
    assert pod.status.start_time is not None


async def test_a_pod_ends_as_its_annotations_say(parts: Parts) -> None:
    ended = {RUN_SECONDS: "1"}
    await parts.create(PODS, pod_body("good", nodeName="n0", restartPolicy="Never", annotations=ended))
    await parts.create(
        PODS, pod_body("bad", nodeName="n0", restartPolicy="Never", annotations={**ended, EXIT_CODE: "7"})
    )
    good, bad = await _phase(parts, "good", "Succeeded"), await _phase(parts, "bad", "Failed")
    assert good.status.container_statuses[0].state.terminated.exit_code == 0
    assert bad.status.container_statuses[0].state.terminated.exit_code == 7
    assert condition_of(good.status.conditions, "Ready").status == "False"


async def test_a_pod_that_is_always_restarted_counts_its_restarts(parts: Parts) -> None:
    await parts.create(PODS, pod_body("loop", nodeName="n0", restartPolicy="Always", annotations={RUN_SECONDS: "1"}))
    pod = await parts.until(
        lambda: parts.pod("loop"),
        lambda seen: seen.status.container_statuses and seen.status.container_statuses[0].restart_count > 0,
        "it is restarted",
    )
    assert pod.status.phase == "Running"


async def test_an_unreadable_annotation_fails_the_pod_and_is_named(parts: Parts) -> None:
    await parts.create(PODS, pod_body("odd", nodeName="n0", annotations={RUN_SECONDS: "a while"}))
    pod = await _phase(parts, "odd", "Failed")
    assert f"{RUN_SECONDS}='a while'" in pod.status.container_statuses[0].state.terminated.message


async def test_a_deleted_pod_stops_and_goes(parts: Parts) -> None:
    await parts.create(PODS, pod_body("one", nodeName="n0", terminationGracePeriodSeconds=30))
    await _phase(parts, "one", "Running")
    await parts.client.delete(PODS, "one", NAMESPACE)
    leaving = await parts.pod("one")
    assert leaving is None or leaving.metadata.deletion_timestamp is not None
    await parts.until(lambda: parts.pod("one"), lambda seen: seen is None, "it is gone")


async def test_a_pod_that_finalizers_hold_ends_and_goes_when_they_let_go(parts: Parts) -> None:
    body = pod_body("held", nodeName="n0")
    body["metadata"]["finalizers"] = ["example.com/held"]
    await parts.create(PODS, body)
    await _phase(parts, "held", "Running")
    await parts.client.delete(PODS, "held", NAMESPACE)
    await _phase(parts, "held", "Failed")
    await parts.client.patch(
        PODS, "held", {"metadata": {"finalizers": None}}, kind=PatchKind.MERGE, namespace=NAMESPACE
    )
    await parts.until(lambda: parts.pod("held"), lambda seen: seen is None, "it is gone")


async def test_pods_of_other_nodes_are_left_alone(parts: Parts) -> None:
    await parts.create(PODS, pod_body("foreign", nodeName="elsewhere"))
    await parts.create(PODS, pod_body("mine", nodeName="n0"))
    await _phase(parts, "mine", "Running")
    foreign = await parts.pod("foreign")
    assert foreign is not None
    assert foreign.status.phase == "Pending"


async def test_a_restart_goes_on_where_the_last_one_stopped(parts: Parts) -> None:
    """A pod that runs goes on and is not started again, one that ends meanwhile ends, one that is deleted goes."""
    ends = {RUN_SECONDS: "2"}
    await parts.create(PODS, pod_body("stays", nodeName="n0"))
    await parts.create(PODS, pod_body("ends", nodeName="n0", restartPolicy="Never", annotations=ends))
    await parts.create(PODS, pod_body("goes", nodeName="n0"))
    before = {name: await _phase(parts, name, "Running") for name in ("stays", "ends", "goes")}
    await parts.supervisor.kill("kubelets")
    await parts.client.delete(PODS, "goes", NAMESPACE)
    await parts.supervisor.ready("kubelets")
    await parts.until(lambda: parts.pod("goes"), lambda seen: seen is None, "it is gone")
    ended = await _phase(parts, "ends", "Succeeded")
    over = ended.status.container_statuses[0].state.terminated
    assert over.started_at == before["ends"].status.start_time
    assert (over.finished_at - over.started_at).total_seconds() >= 2
    assert (await parts.pod("stays")).status == before["stays"].status


async def test_leases_are_renewed_and_owned_by_their_node(parts: Parts) -> None:
    first = await parts.client.get(LEASES, "n0", "kube-node-lease")
    node = await parts.client.get(NODES, "n0")
    assert [owner.uid for owner in first.metadata.owner_references] == [node.metadata.uid]
    await parts.until(
        lambda: parts.client.get(LEASES, "n0", "kube-node-lease"),
        lambda seen: seen.spec.renew_time > first.spec.renew_time,
        "it is renewed",
    )


async def test_a_node_that_is_said_not_to_be_ready_says_that_it_is(parts: Parts) -> None:
    said = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    await parts.client.patch(NODES, "n0", said, kind=PatchKind.STRATEGIC, subresource="status")
    await parts.until(
        lambda: parts.client.get(NODES, "n0"),
        lambda seen: condition_of(seen.status.conditions, "Ready").status == "True",
        "it is ready again",
    )


async def test_a_deleted_node_does_not_come_back_by_itself(parts: Parts) -> None:
    """As with a real kubelet: only its restart registers it again."""
    await parts.client.delete(NODES, "n0")
    await parts.until(
        lambda: parts.client.get(LEASES, "n0", "kube-node-lease"), lambda seen: seen is None, "its lease goes with it"
    )
    assert await parts.client.get(NODES, "n0") is None
    await parts.supervisor.kill("kubelets")
    await parts.supervisor.ready("kubelets")
    assert await parts.client.get(NODES, "n0") is not None
