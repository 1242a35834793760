"""The servers that the same tests run against: the lab's and, with `-m cluster`, the real control plane."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from overspill_kube.client import Client, connect
from overspill_kube.outcomes import Done
from overspill_kube.resources import CLUSTER_QUEUES, KUEUE_VERSIONS, NAMESPACES, PODS
from overspill_kube.settings import KubeSettings, WatchTiming
from overspill_service.crds import definitions
from tests.support.cluster_choice import real_cluster
from tests.support.kube_place import Place, done, eventually, pod_body, unique
from tests.support.lab_apiserver import lab_apiserver

QUICK = WatchTiming(server_seconds=(20, 30), silence_seconds=10, stale_seconds=60, backoff_seconds=(0.02, 0.2))


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=["lab", pytest.param("real", marks=pytest.mark.cluster)]
)
async def kubeconfig(request: pytest.FixtureRequest) -> AsyncIterator[Path]:
    """One server for the whole run; tests keep apart by namespaces and names of their own."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overspill-kube-")))
        if request.param == "lab":
            yield await stack.enter_async_context(lab_apiserver(folder, controllers=True))
        else:
            path = await stack.enter_async_context(real_cluster(scheduler=False))
            await _install_crds(path)
            yield path


async def _install_crds(kubeconfig: Path) -> None:
    async with connect(KubeSettings(kubeconfig=str(kubeconfig))) as client:
        for crd in definitions():
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            status, body = await client.raw("POST", path, body=crd)
            assert status in {201, 409}, body  # an existing cluster may have Kueue's own
            names, group = crd["spec"]["names"]["plural"], crd["spec"]["group"]
            for version in KUEUE_VERSIONS:
                await eventually(lambda v=version, n=names, g=group: _is_served(client, f"/apis/{g}/{v}/{n}"))
                await eventually(lambda v=version: client.served(CLUSTER_QUEUES, v))  # told of only then


async def _is_served(client: Client, path: str) -> bool:
    return (await client.raw("GET", path))[0] == 200


@pytest_asyncio.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client of the server, with impatient watches."""
    async with connect(KubeSettings(kubeconfig=str(kubeconfig), watch=QUICK)) as made:
        yield made


@pytest_asyncio.fixture
async def place(client: Client) -> AsyncIterator[Place]:
    """A place to test in."""
    name = unique("kube")
    done(await client.create(NAMESPACES, {"metadata": {"name": name}}))

    async def admits_pods() -> bool:
        # A real server refuses pods until the namespace has its default service account.
        return isinstance(await client.create(PODS, pod_body("probe"), name, dry_run=True), Done)

    await eventually(admits_pods)
    made = Place(client, name)
    yield made
    await made.clear()
