"""Some parts of the lab as processes, for tests of the other parts: an API server and whatever a test asks for."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from overspill_kube.client import Client, connect
from overspill_kube.outcomes import Done
from overspill_kube.resources import PODS, Resource
from overspill_kube.settings import KubeSettings
from overspill_lab.programs import Program
from overspill_lab.supervisor import Supervisor
from overspill_objects.core import Pod

DEADLINE_S = 45.0
GPU = "nvidia.com/gpu"
NAMESPACE = "default"


class Parts(Struct, frozen=True):
    """What runs, and an admin's client."""

    supervisor: Supervisor
    client: Client

    async def create(self, resource: Resource[Any], body: Mapping[str, Any]) -> Any:
        """Create an object in the default namespace; it must be accepted."""
        outcome = await self.client.create(resource, body, NAMESPACE if resource.namespaced else None)
        assert isinstance(outcome, Done), outcome
        return outcome.object

    async def pods(self, labels: str | None = None) -> dict[str, Pod]:
        """All pods by name."""
        return {one.metadata.name: one for one in (await self.client.list(PODS, labels=labels)).items}

    async def pod(self, name: str) -> Pod | None:
        """One pod of the default namespace."""
        return await self.client.get(PODS, name, NAMESPACE)

    async def until(self, read: Callable[[], Any], holds: Callable[[Any], object], what: str) -> Any:
        """Read until it holds; fails with the last thing seen."""
        seen = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    seen = await read()
                    if holds(seen):
                        return seen
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"never came: {what}; last seen: {seen}") from None

    async def clear(self) -> None:
        """Take every pod of the default namespace away, now."""
        for name in await self.pods():
            await self.client.delete(PODS, name, NAMESPACE, grace_seconds=0)
        await self.pods_until(lambda seen: not seen, "no pod is left")

    async def pods_until(self, holds: Callable[[dict[str, Pod]], object], what: str) -> dict[str, Pod]:
        """All pods, once they are as wished."""
        seen: dict[str, Pod] = await self.until(self.pods, holds, what)
        return seen


@contextlib.asynccontextmanager
async def lab_parts(folder: Path, **parts: Sequence[str]) -> AsyncIterator[Parts]:
    """An API server, and the parts named with their arguments; ended with the block. A crash of any fails the test."""
    kubeconfig = folder / "kubeconfig"
    async with contextlib.AsyncExitStack() as stack:
        supervisor = await stack.enter_async_context(Supervisor(folder))
        await supervisor.start(_program("apiserver", "--kubeconfig-out", str(kubeconfig)))
        for name, arguments in parts.items():
            await supervisor.start(_program(name, "--kubeconfig", str(kubeconfig), *arguments))
        client = await stack.enter_async_context(connect(KubeSettings(kubeconfig=str(kubeconfig), user_agent="test")))
        yield Parts(supervisor, client)
        assert supervisor.deaths == [], "\n".join(map(str, supervisor.deaths))


def _program(name: str, *arguments: str) -> Program:
    command = (sys.executable, "-m", f"overspill_lab.{name}", *arguments)
    return Program(name=name, command=command, restart_after_s=0.05)


def nodes_file(folder: Path, *gpus: int) -> str:
    """A nodes file of machines n0, n1, … with that many GPUs each."""
    file = folder / "nodes.json"
    machines = [{"name": f"n{at}", "cpu": "64", "memory": "256Gi", "gpus": count} for at, count in enumerate(gpus)]
    file.write_text(json.dumps(machines))
    return str(file)


def pod_body(name: str, *, gpus: int = 0, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with one container that asks for GPUs."""
    return {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": pod_spec(gpus=gpus, **spec),
    }


def pod_spec(*, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """The spec of such a pod."""
    limits = {"cpu": "100m"} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
    return {"containers": [container], **spec}


def deployment_body(
    name: str, replicas: int, *, strategy: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A Deployment of such pods, labelled app=<name>."""
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(**spec)},
            **({"strategy": strategy} if strategy else {}),
        },
    }
