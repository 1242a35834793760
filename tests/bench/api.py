"""List and watch of 2,000 pods on the lab's API server through overspill_kube."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.informer import Informer
from overspill_kube.resources import PODS
from overspill_kube.settings import KubeSettings
from tests.bench.figures import milliseconds
from tests.support.lab_apiserver import lab_apiserver

PODS_COUNT: Final = 2000
AT_ONCE: Final = 8


async def measure(folder: Path) -> dict[str, Any]:
    """Creations, whole lists, an informer's first sync, and one change to each pod until the informer has them all."""
    async with (
        lab_apiserver(folder) as kubeconfig,
        connect(KubeSettings(kubeconfig=str(kubeconfig), user_agent="bench")) as kube,
    ):
        created = await _timed(_for_all(lambda number: _create(kube, number)))
        lists = [await _timed(kube.list(PODS)) for _ in range(5)]
        informer = Informer(kube, PODS)
        running = asyncio.create_task(informer.run())
        synced = await _timed(informer.wait_synced())
        watched = await _timed(_change_all(kube, informer))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return {
        "pods": PODS_COUNT,
        "creations_per_s": round(PODS_COUNT / created),
        "list": milliseconds(lists),
        "informer_synced_ms": round(1000 * synced, 1),
        "changes_seen_per_s": round(PODS_COUNT / watched),
    }


async def _timed(work: Any) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def _for_all(action: Any) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(number: int) -> None:
        async with limit:
            await action(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(PODS_COUNT):
            tasks.create_task(limited(number))


async def _create(kube: Client, number: int) -> None:
    container = {
        "name": "main",
        "image": "example.invalid/main:1",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    body = {
        "metadata": {"name": f"pod-{number}"},
        "spec": {"containers": [container], "nodeName": f"node-{number % 64}"},
    }
    await kube.create(PODS, body, "default")


async def _change_all(kube: Client, informer: Informer[Any]) -> None:
    async def change(number: int) -> None:
        body = {"status": {"phase": "Running"}}
        await kube.patch(PODS, f"pod-{number}", body, namespace="default", kind=PatchKind.MERGE, subresource="status")

    before = informer.revision
    await _for_all(change)
    while informer.revision < before + PODS_COUNT:
        await informer.next_change(after=informer.revision)
