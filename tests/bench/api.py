"""List and watch of pods through overspill_kube: 2,000 on the lab's API server; another server and number by its caller."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.informer import Informer
from overspill_kube.outcomes import Done
from overspill_kube.resources import PODS
from overspill_kube.settings import KubeSettings
from tests.bench.figures import milliseconds
from tests.bench.pacing import at_once
from tests.support.lab_apiserver import lab_apiserver

PODS_COUNT: Final = 2000
LISTS: Final = 5
WRITERS: Final = 8


async def measure(folder: Path) -> dict[str, Any]:
    """The figures of the lab's API server."""
    async with (
        lab_apiserver(folder) as kubeconfig,
        connect(KubeSettings(kubeconfig=str(kubeconfig), user_agent="bench")) as kube,
    ):
        return await list_and_watch(kube, pods=PODS_COUNT)


async def list_and_watch(kube: Client, *, pods: int) -> dict[str, Any]:
    """Creations, whole lists, an informer's first sync, and one change to each pod until the informer has them all.

    The rates of creations and changes hold the writing too, by WRITERS at a time.
    """
    created = await _timed(at_once(range(pods), lambda number: _create(kube, number), width=WRITERS))
    lists = [await _timed(kube.list(PODS)) for _ in range(LISTS)]
    informer = Informer(kube, PODS)
    running = asyncio.create_task(informer.run())
    try:
        synced = await _timed(informer.wait_synced())
        watched = await _timed(_change_all(kube, informer, pods))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return {
        "pods": pods,
        "creations_per_s": round(pods / created),
        "list": milliseconds(lists),
        "informer_synced_ms": round(1000 * synced, 1),
        "changes_seen_per_s": round(pods / watched),
    }


async def _timed(work: Any) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


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
    outcome = await kube.create(PODS, body, "default")
    assert isinstance(outcome, Done), outcome


async def _change_all(kube: Client, informer: Informer[Any], pods: int) -> None:
    async def change(number: int) -> None:
        body = {"status": {"phase": "Running"}}
        await kube.patch(PODS, f"pod-{number}", body, namespace="default", kind=PatchKind.MERGE, subresource="status")

    before = informer.revision
    await at_once(range(pods), change, width=WRITERS)
    while informer.revision < before + pods:
        await informer.next_change(after=informer.revision)
