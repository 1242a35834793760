"""A namespace to test in, on any API server, and the small things that such tests need.

A test plays the kubelet itself, and asks for a scheduler that nobody runs.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any

from overspill_events.catalog import PodRef
from overspill_kube.client import Client, PatchKind
from overspill_kube.outcomes import Done
from overspill_kube.resources import NAMESPACES, NODES, PODS, Resource
from overspill_objects.core import Node, Pod

DEADLINE_S = 30.0
_numbers = itertools.count(1)


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until it answers something true, and return that."""
    async with asyncio.timeout(DEADLINE_S):
        while not (answer := await condition()):  # noqa: ASYNC110  a server has no event to wait for
            await asyncio.sleep(0.05)
    return answer


def done(outcome: object) -> Any:
    """The object of an outcome that must be Done."""
    assert isinstance(outcome, Done), outcome
    return outcome.object


def unique(prefix: str) -> str:
    """A name of the test's own."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def pod_body(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler looks at."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def ref(pod: Pod) -> PodRef:
    return PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)


class Place:
    """A namespace of the test's own, and what the test makes in it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._nodes: list[str] = []

    async def create(self, resource: Resource[Any], body: dict[str, Any]) -> Any:
        return done(await self.client.create(resource, body, self.namespace))

    async def pod(self, name: str, **more: Any) -> Pod:
        return await self.create(PODS, pod_body(name, **more))

    async def running(self, name: str, **more: Any) -> Pod:
        """A pod on which the test has played the kubelet: Running and Ready."""
        await self.pod(name, **more)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        kind = PatchKind.STRATEGIC
        return done(
            await self.client.patch(
                PODS, name, {"status": ready}, kind=kind, namespace=self.namespace, subresource="status"
            )
        )

    async def node(self) -> Node:
        name = unique("node")
        self._nodes.append(name)
        return done(await self.client.create(NODES, {"metadata": {"name": name}}))

    async def clear(self) -> None:
        for name in self._nodes:
            await self.client.delete(NODES, name)
        for pod in (await self.client.list(PODS, namespace=self.namespace)).items:
            await self.client.delete(PODS, pod.metadata.name, self.namespace, grace_seconds=0)
        await self.client.delete(NAMESPACES, self.namespace)
