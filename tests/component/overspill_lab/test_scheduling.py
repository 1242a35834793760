"""The scheduler as a process: what the contract suite does not ask, because it needs many pods or a kill."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from overspill_kube.client import PatchKind
from overspill_kube.resources import NODES, PODS
from overspill_objects.core import Pod
from overspill_objects.meta import condition_of
from tests.support.lab_parts import GPU, NAMESPACE, Parts, lab_parts, nodes_file, pod_body

SIZES = (1, 2, 4, 8, 1, 1, 2, 4, 1, 2)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    folder = tmp_path_factory.mktemp("lab")
    nodes = nodes_file(folder, 8, 8, 8)
    async with lab_parts(folder, controllers=(), kubelets=("--nodes", nodes), scheduler=()) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def parts(started: Parts) -> AsyncIterator[Parts]:
    """The same processes for all tests of this module; each leaves no pod."""
    yield started
    await started.clear()


def held(pods: dict[str, Pod]) -> Counter[str]:
    """GPUs by node."""
    taken: Counter[str] = Counter()
    for pod in pods.values():
        if pod.spec.node_name:
            taken[pod.spec.node_name] += int(pod.spec.containers[0].resources.limits[GPU])
    return taken


def why(pod: Pod) -> str:
    condition = condition_of(pod.status.conditions, "PodScheduled")
    return "" if condition is None or condition.status == "True" else condition.message


async def test_a_full_home_is_filled_and_not_overfilled(parts: Parts) -> None:
    for at in range(30):
        await parts.create(PODS, pod_body(f"p{at}", gpus=SIZES[at % len(SIZES)]))
    pods = await parts.pods_until(
        lambda seen: all(pod.spec.node_name or why(pod) for pod in seen.values()), "every pod is bound or told why not"
    )
    taken = held(pods)
    assert set(taken.values()) == {8}  # there are enough small pods to fill every node to the brim
    for pod in pods.values():
        if not pod.spec.node_name:
            assert why(pod) == (
                "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. "
                "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
            )


async def test_a_kill_in_the_middle_binds_nobody_twice(parts: Parts) -> None:
    for at in range(60):
        await parts.create(PODS, pod_body(f"p{at}", gpus=1))
        if at == 20:
            await parts.supervisor.kill("scheduler")
    pods = await parts.pods_until(lambda seen: sum(bool(pod.spec.node_name) for pod in seen.values()) == 24, "24 bound")
    assert held(pods) == {"n0": 8, "n1": 8, "n2": 8}
    await parts.pods_until(lambda seen: sum(bool(why(pod)) for pod in seen.values()) == 36, "36 are told why not")


async def test_a_waiting_pod_takes_the_room_that_comes(parts: Parts) -> None:
    for at in range(3):
        await parts.create(PODS, pod_body(f"big{at}", gpus=8))
    await parts.pods_until(lambda seen: len(held(seen)) == 3, "home is full")
    await parts.create(PODS, pod_body("waiting", gpus=4))
    await parts.until(lambda: parts.pod("waiting"), why, "it waits")
    await parts.client.delete(PODS, "big1", NAMESPACE)
    pod = await parts.until(lambda: parts.pod("waiting"), lambda pod: pod.spec.node_name, "it is bound")
    old = await parts.pod("big1")
    assert old is None  # it held its node until it was really gone
    assert condition_of(pod.status.conditions, "PodScheduled").status == "True"


async def test_an_uncordoned_node_is_used_again(parts: Parts) -> None:
    for name in ("n0", "n1", "n2"):
        await parts.client.patch(NODES, name, {"spec": {"unschedulable": True}}, kind=PatchKind.MERGE)
    await parts.until(
        lambda: parts.client.list(NODES), lambda seen: all(one.spec.taints for one in seen.items), "all are tainted"
    )
    await parts.create(PODS, pod_body("waiting", gpus=1))
    await parts.until(lambda: parts.pod("waiting"), lambda pod: "3 node(s) were unschedulable" in why(pod), "it waits")
    await parts.client.patch(NODES, "n2", {"spec": {"unschedulable": None}}, kind=PatchKind.MERGE)
    pod = await parts.until(lambda: parts.pod("waiting"), lambda pod: pod.spec.node_name, "it is bound")
    assert pod.spec.node_name == "n2"


async def test_what_the_lab_does_not_schedule_waits_and_says_so(parts: Parts) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor"}
    await parts.create(PODS, pod_body("spread", topologySpreadConstraints=[spread]))
    pod = await parts.until(lambda: parts.pod("spread"), why, "it is told")
    feature = "topology spread constraints with nodeTaintsPolicy Honor"
    assert why(pod) == f"0/3 nodes are available: the lab does not schedule {feature}."
    assert not pod.spec.node_name
