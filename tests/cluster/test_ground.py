"""What the demo makes in a real cluster before its story, and takes away after it; and what it refuses to touch."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from overspill_demo import objects
from overspill_demo.ground.clearing import clear, leftovers
from overspill_demo.ground.inventory import marked
from overspill_demo.ground.preparing import GroundError, examine, prepare
from overspill_demo.scenario import built_in, load
from overspill_demo.story import Story
from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.outcomes import Done
from overspill_kube.resources import JOBS, LEASES, NAMESPACES, NODES, PODS
from overspill_kube.settings import KubeSettings
from tests.cluster.controlplane.start import control_plane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig() -> AsyncIterator[Path]:
    """A control plane of these tests' own: they put into it what a demo must refuse."""
    async with control_plane() as plane:
        yield plane.kubeconfig


@pytest_asyncio.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Client]:
    """Its admin; nothing of a demo is there before and after."""
    async with connect(KubeSettings(kubeconfig=str(kubeconfig), user_agent="overspill-test")) as client:
        assert await leftovers(client) == []
        yield client
        await clear(client, note=print)
        assert await leftovers(client) == []


def story(kube: Client) -> Story:
    """The built-in story, of which these tests play only the preparation."""
    return Story(load(built_in()), kube, home_is_full=lambda: True, note=print)


async def created(kube: Client, resource, body, namespace: str | None = None):
    """Create an object that must be accepted."""
    outcome = await kube.create(resource, body, namespace)
    assert isinstance(outcome, Done), outcome
    return outcome.object


async def test_a_prepared_cluster_has_policies_at_work(kube: Client):
    """When the story has prepared, a queued Job is suspended and prioritised, and a second preparation changes nothing."""
    await examine(kube, note=print)
    await prepare(kube)
    await story(kube).prepare()
    job = await created(kube, JOBS, objects.job(load(built_in()).research[0]))
    assert job.spec.suspend
    assert job.spec.template.spec.priority_class_name.startswith("overspill-gpu-")
    before = await leftovers(kube)
    await prepare(kube)
    assert await leftovers(kube) == before


async def test_what_a_killed_demo_left_is_removed_by_the_next(kube: Client):
    """Also a node, the pod bound to it that no kubelet ends any more, and a virtual node."""
    await prepare(kube)
    await story(kube).prepare()
    node = marked({"metadata": {"name": "openb-node-left"}})
    node["metadata"]["labels"] = {objects.MADE_BY_LABEL: "overspill-lab"}
    await created(kube, NODES, node)
    virtual = {"metadata": {"name": "overspill-external", "labels": {"overspill.dev/virtual": "true"}}}
    await created(kube, NODES, virtual)
    pod = objects.spillable_probe()
    pod["spec"]["nodeName"] = "openb-node-left"
    await created(kube, PODS, pod)
    said: list[str] = []
    await examine(kube, note=said.append)
    assert await leftovers(kube) == []
    assert (await kube.list(NODES)).items == ()
    assert "an earlier demo left something here" in said[0]
    assert "the cluster is as it was" in said[-1]


@pytest.mark.parametrize("name", ["research", "inference", SYSTEM_NAMESPACE])
async def test_a_namespace_that_is_somebodys_is_refused(kube: Client, name: str):
    """The demo would fill it and remove it; nothing is made at all."""
    made = await created(kube, NAMESPACES, {"metadata": {"name": name}})
    with pytest.raises(GroundError, match=f"namespace {name} is there already"):
        await examine(kube, note=print)
    kept = await kube.get(NAMESPACES, name)
    assert kept is not None
    assert kept.metadata.uid == made.metadata.uid
    assert await leftovers(kube) == []
    await kube.delete(NAMESPACES, name)
    async with asyncio.timeout(60):
        while await kube.get(NAMESPACES, name) is not None:  # noqa: ASYNC110 the namespace controller ends it
            await asyncio.sleep(0.2)


async def test_a_demo_that_is_going_on_is_not_removed(kube: Client):
    """Its services renew their leases; a second demo must not clear the first one away."""
    await prepare(kube)
    spec = {"holderIdentity": "lab-bridge", "leaseDurationSeconds": 6, "renewTime": "2026-01-01T00:00:00.000000Z"}
    await created(kube, LEASES, {"metadata": {"name": "overspill-bridge"}, "spec": spec}, SYSTEM_NAMESPACE)

    async def renew() -> None:
        for second in range(1, 60):
            await asyncio.sleep(0.5)
            renewal = {"spec": {"renewTime": f"2026-01-01T00:00:{second:02}.000000Z"}}
            await kube.patch(LEASES, "overspill-bridge", renewal, namespace=SYSTEM_NAMESPACE, kind=PatchKind.MERGE)

    working = asyncio.create_task(renew())
    before = await leftovers(kube)
    with pytest.raises(GroundError, match="lab-bridge renews lease overspill-bridge"):
        await examine(kube, note=print)
    working.cancel()
    assert await leftovers(kube) == before
