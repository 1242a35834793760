"""The contract with Kubernetes: what Overspill and its lab rely on, said once and asked of two servers.

Every test here runs twice: against the real control plane (`real`, marked `cluster`: etcd, API server, controllers and
scheduler, built and started by `tests/cluster/controlplane`) and against the lab's stand-in (`lab`). The tests are written
on the real one, so that they tell what Kubernetes does and not what we think it does; where the two differ, the lab is
wrong. None is skipped on either side and none asks which side it is on.

    pytest tests/contract/kubernetes -m "not cluster"     # the lab alone: no Go needed
    pytest tests/contract/kubernetes -m cluster           # the real one alone
    make test-cluster                                     # both

One server of each kind serves the whole run. A test has a namespace of its own, and gives what has no namespace (nodes,
cluster queues) names that nobody else uses; it plays the kubelet itself, and asks for a scheduler that does not exist
unless scheduling is its subject. Waiting is polling with a generous deadline, never a sleep of the right length.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from overspill_lab import leash
from overspill_service.crds import definitions
from tests.cluster.controlplane.build import binaries
from tests.contract.kubernetes.client import DEADLINE_S, Api, Endpoint, Object, endpoint_of, eventually
from tests.contract.kubernetes.objects import NODES, kill, make_ready, node, pod, scheduler_knows, unique
from tests.support.cluster_choice import existing_cluster, real_cluster

HTTP_CONFLICT = 409


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=[pytest.param("real", marks=pytest.mark.cluster), "lab"]
)
async def endpoint(request: pytest.FixtureRequest) -> AsyncIterator[Endpoint]:
    """One server for the whole run."""
    if request.param == "real":
        # The first build takes minutes: whoever waits for it should read how it goes.
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            if existing_cluster() is None:
                await asyncio.to_thread(binaries)
    async with _real() if request.param == "real" else lab() as target:
        yield target


@contextlib.asynccontextmanager
async def _real() -> AsyncIterator[Endpoint]:
    async with real_cluster() as kubeconfig:
        endpoint = endpoint_of(kubeconfig)
        async with Api(endpoint) as api:
            await _install_crds(api)
        yield endpoint


async def _install_crds(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in definitions():
        reply = await api.post(path, crd)
        if reply.status != HTTP_CONFLICT:  # an existing cluster may have Kueue's own
            reply.ok()
        for version in crd["spec"]["versions"]:
            served = f"/apis/{crd['spec']['group']}/{version['name']}/{crd['spec']['names']['plural']}"
            await api.eventually(served, lambda _: True, f"{served} is served")


@contextlib.asynccontextmanager
async def lab(*controller_arguments: str) -> AsyncIterator[Endpoint]:
    """The lab's API server, controllers and scheduler, each a process as in the demo."""
    with tempfile.TemporaryDirectory(prefix="overspill-lab-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        with contextlib.ExitStack() as stack:
            stack.enter_context(lab_part(folder, "apiserver", "--port", "0", "--kubeconfig-out", str(kubeconfig)))
            await eventually(
                lambda: asyncio.to_thread(_size, kubeconfig), bool, "the lab's API server writes its kubeconfig"
            )
            stack.enter_context(lab_part(folder, "controllers", "--kubeconfig", str(kubeconfig), *controller_arguments))
            stack.enter_context(lab_part(folder, "scheduler", "--kubeconfig", str(kubeconfig)))
            yield endpoint_of(kubeconfig)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class Part:
    """A process of the lab and its log, on a leash so that it does not outlive a run that was itself killed.

    No asyncio process: whether it still runs must be told while another event loop than the fixture's is running.
    """

    def __init__(self, folder: str, module: str, *arguments: str) -> None:
        self._module = f"overspill_lab.{module}"
        self._log = Path(folder) / f"{module}.log"
        command = [sys.executable, "-m", self._module, *arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, leash.__file__, str(os.getpid()), *command], stdout=log, stderr=log
            )

    def check(self) -> None:
        """Fail with the end of the log when it has ended by itself: no test means anything after that."""
        if self._process.poll() is not None:
            pytest.fail(f"{self._module} ended with {self._process.returncode}:\n{self._log.read_text()[-4000:]}")

    def stop(self) -> None:
        """End it, the hard way when it does not listen."""
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"{self._module} did not stop within {DEADLINE_S} s")


PARTS: list[Part] = []


@contextlib.contextmanager
def lab_part(folder: str, module: str, *arguments: str) -> Iterator[None]:
    """A part of the lab running; its log is in the folder."""
    part = Part(folder, module, *arguments)
    PARTS.append(part)
    try:
        yield
    finally:
        PARTS.remove(part)
        part.stop()


@pytest_asyncio.fixture
async def api(endpoint: Endpoint) -> AsyncIterator[Api]:
    """The server under judgement, all its parts alive before and after."""
    _check_parts()
    async with Api(endpoint) as client:
        yield client
    _check_parts()


def _check_parts() -> None:
    for part in PARTS:
        part.check()


@pytest_asyncio.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A namespace of the test's own in which pods may be made; its pods are taken away afterwards."""
    name = unique("contract")
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    pods = f"/api/v1/namespaces/{name}/pods"
    # A real API server refuses pods until the namespace has its default service account.
    await eventually(
        lambda: api.post(pods, pod("probe"), dryRun="All"), lambda reply: reply.status == 201, "pods may be made"
    )
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")
    for left in (await api.get(pods)).ok()["items"]:
        await kill(api, f"{pods}/{left['metadata']['name']}")


class Nodes:
    """Nodes of one test: named for it, labelled for it, taken away after it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.label = {"contract.test/pool": unique("pool")}
        self.names: list[str] = []
        self._known: set[str] = set()  # by the scheduler

    async def add(
        self,
        *,
        taints: list[Object] | None = None,
        labels: dict[str, str] | None = None,
        gpus: int = 0,
        cpu: str = "100",
    ) -> str:
        """A Ready node with this capacity."""
        name = unique("node")
        self.names.append(name)
        (await self._api.post(NODES, node(name, labels={**self.label, **(labels or {})}, taints=taints))).ok()
        await make_ready(self._api, name, gpus=gpus, cpu=cpu)
        return name

    async def known(self, namespace: str) -> None:
        """Wait until the scheduler has heard of all of them; a pod of this namespace is used to ask it."""
        for name in self.names:
            if name not in self._known:
                await scheduler_knows(self._api, namespace, name)
                self._known.add(name)


@pytest_asyncio.fixture
async def nodes(api: Api) -> AsyncIterator[Nodes]:
    """Makes nodes of the test's own."""
    made = Nodes(api)
    yield made
    for name in made.names:
        await kill(api, f"{NODES}/{name}")
