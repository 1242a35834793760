"""A cluster, a bus, a cloud and the bridge between them, each a process; the bridge can be killed and started again."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from overspill_bus.bus import connect as connect_bus
from overspill_bus.settings import BusSettings
from overspill_bus.testing import nats_server
from overspill_events.catalog import Event, kebab
from overspill_events.names import CLUSTER_TAG, GPU_RESOURCE, NODE_TAG, POD_TAG, POD_UID_TAG, SPILLABLE_LABEL
from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.outcomes import Done
from overspill_kube.resources import NAMESPACES, PODS
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Pod
from overspill_runtime.clock import SystemClock
from tests.support.cloud import Cloud, cloud
from tests.support.lab_apiserver import lab_apiserver

NODE = "overspill"
NAMESPACE = "default"
DEADLINE_S = 60.0


class Place:
    """The processes around one bridge."""

    def __init__(self, *, kubeconfig: Path, nats_url: str, clouds: Cloud, client: Client, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.nats_url = nats_url
        self.cloud = clouds
        self.client = client
        self._folder = folder
        self._bridge: asyncio.subprocess.Process | None = None

    async def start_bridge(self, **settings: str) -> None:
        """Start the bridge with quick settings; `settings` are its own, in lower case."""
        quick = {
            "poll_interval": "0.2",
            "sample_silence": "1",
            "resync_interval": "2",
            "list_lag": "0.5",
            "retry_min": "0.1",
            "retry_max": "1",
            "offering_cooldown": "1",
            "gc_interval": "0.3",
            "gc_grace": "0.5",
            "terminate_again": "2",
            "max_external_gpus": "1000",
            "providers": self.cloud.setting,
        } | settings
        env = {name: value for name, value in os.environ.items() if not name.startswith("OVERSPILL_")}
        env |= {f"OVERSPILL_BRIDGE_{name.upper()}": value for name, value in quick.items() if name != "mode"}
        env |= {
            "OVERSPILL_CLUSTER": "test",
            "OVERSPILL_IDENTITY": "bridge-under-test",
            "OVERSPILL_NATS_URL": self.nats_url,
            "OVERSPILL_KUBECONFIG": str(self.kubeconfig),
            "OVERSPILL_LOG_FORMAT": "json",
            "OVERSPILL_MODE": quick.get("mode", "act"),
        }
        with (self._folder / "bridge.log").open("ab") as log:
            self._bridge = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "overspill_bridge", env=env, stdout=log, stderr=log
            )

    @property
    def bridge_pid(self) -> int:
        """The process id of the bridge that runs now."""
        assert self._bridge is not None
        return self._bridge.pid

    async def kill_bridge(self) -> None:
        """SIGKILL: nothing gets to say goodbye."""
        assert self._bridge is not None
        self._bridge.kill()
        await self._bridge.wait()
        self._bridge = None

    async def stop_bridge(self) -> None:
        if self._bridge is not None:
            with contextlib.suppress(ProcessLookupError):
                self._bridge.terminate()
            await self._bridge.wait()
            self._bridge = None

    def log(self) -> str:
        """What the bridge has written, for the message of a test that fails."""
        return (self._folder / "bridge.log").read_text()[-6000:]

    def has_logged(self, words: str) -> bool:
        """Whether the bridge has written this, however long ago."""
        return words in (self._folder / "bridge.log").read_text()

    async def pod(self, name: str, *, gpus: int = 1, spillable: bool = True, **more: Any) -> Pod:
        """A pod bound to the virtual node; `annotations`, `labels`, `env` and fields of its spec."""
        labels = {SPILLABLE_LABEL: "true"} if spillable else {}
        container = {
            "name": "main",
            "image": "registry.example/model:1",
            "resources": {"limits": {GPU_RESOURCE: str(gpus)}},
            "env": more.pop("env", []),
        } | more.pop("container", {})
        body = {
            "metadata": {
                "name": name,
                "labels": labels | more.pop("labels", {}),
                "annotations": more.pop("annotations", {}),
            },
            "spec": {
                "nodeName": NODE,
                "containers": [container],
                "automountServiceAccountToken": False,
                "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                **more,
            },
        }
        outcome = await self.client.create(PODS, body, NAMESPACE)
        assert isinstance(outcome, Done), outcome
        return outcome.object

    async def get(self, name: str) -> Pod | None:
        return await self.client.get(PODS, name, NAMESPACE)

    async def pods(self) -> tuple[Pod, ...]:
        return (await self.client.list(PODS, namespace=NAMESPACE)).items

    async def delete(self, name: str, **options: Any) -> None:
        outcome = await self.client.delete(PODS, name, NAMESPACE, **options)
        assert isinstance(outcome, Done), outcome

    async def phase(self, name: str, *phases: str) -> Pod:
        """Wait until the pod is in one of these phases."""

        async def reached() -> Pod | None:
            pod = await self.get(name)
            return pod if pod is not None and pod.status.phase in phases else None

        return await self.eventually(reached)

    async def patch_status(self, name: str, status: dict[str, Any]) -> None:
        """Play another writer of the status."""
        outcome = await self.client.patch(
            PODS, name, {"status": status}, kind=PatchKind.STRATEGIC, namespace=NAMESPACE, subresource="status"
        )
        assert isinstance(outcome, Done), outcome

    async def eventually(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition answers something true; a failure shows the bridge's log."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not (answer := await condition()):  # noqa: ASYNC110 -- a server has no event to wait for
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"never became true; the bridge said:\n{self.log()}") from None
        return answer


@contextlib.asynccontextmanager
async def bridge_place(folder: Path, *cloud_arguments: str, controllers: bool = False) -> AsyncIterator[Place]:
    """Everything but the bridge is running; it is started by the test and ended with the block."""
    async with contextlib.AsyncExitStack() as stack:
        kubeconfig = await stack.enter_async_context(lab_apiserver(folder, controllers=controllers))
        nats = await stack.enter_async_context(nats_server())
        clouds = await stack.enter_async_context(cloud(*cloud_arguments))
        settings = KubeSettings(kubeconfig=str(kubeconfig), user_agent="overspill-test")
        client = await stack.enter_async_context(connect(settings))
        place = Place(kubeconfig=kubeconfig, nats_url=nats.url, clouds=clouds, client=client, folder=folder)
        try:
            yield place
        finally:
            await place.stop_bridge()


async def said(place: Place, *kinds: type[Event]) -> list[Any]:
    """The payloads of these kinds in the stream, in its order."""
    settings = BusSettings(cluster="test", service="test", nats_url=place.nats_url, name="test")
    async with connect_bus(settings, clock=SystemClock(), wait=True) as bus:
        filters = [f"overspill.v1.test.bridge.{kebab(kind.__name__)}.>" for kind in kinds]
        return [r.event async for r in bus.read(filters) if isinstance(r.event, kinds)]


async def cluster_uid(place: Place) -> str:
    """The cluster's identity at providers."""
    cluster = await place.client.get(NAMESPACES, "kube-system")
    assert cluster is not None
    return cluster.metadata.uid


async def tags_for(place: Place, uid: str, *, name: str = "default/none", node: str = NODE) -> dict[str, str]:
    """The tags of an instance of ours for that pod."""
    return {CLUSTER_TAG: await cluster_uid(place), NODE_TAG: node, POD_UID_TAG: uid, POD_TAG: name}
