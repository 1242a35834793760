"""Pods bound at a pace, or as fast as the server takes them, and how long each took to be seen Running.

The same for every node whose figures are to be compared. A pod is bound by its creation, as a scheduler would leave it;
the clock starts before the request is sent and stops when a watch shows the pod Running, so that everything between
counts. It must not know who makes the pods run.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from overspill_kube.client import Client
from overspill_kube.informer import Change, Informer
from overspill_kube.resources import PODS
from overspill_objects.core import Pod
from tests.bench.figures import milliseconds

AT_ONCE: Final = 16  # creations in flight where there is no pace, and deletions
DEADLINE_S: Final = 600.0
NAMESPACE: Final = "default"
_NUMBERS: Final = itertools.count()


async def bind_to_running(
    client: Client, bind: Callable[[str], Awaitable[object]], *, pods: int, per_second: float | None
) -> dict[str, Any]:
    """Bind that many pods; without a pace AT_ONCE at a time. Raises TimeoutError when some never run.

    No name comes twice: a kubelet may take its time to forget a pod, and that would be measured too.
    """
    names = dict.fromkeys(f"pod-{next(_NUMBERS)}" for _ in range(pods))
    bound: dict[str, float] = {}
    running: dict[str, float] = {}
    everything = asyncio.Event()

    def changed(change: Change[Pod]) -> None:
        if change.object.metadata.name in names and change.object.status.phase == "Running":
            running.setdefault(change.object.metadata.name, time.perf_counter())
        if len(running) == pods:
            everything.set()

    async def timed(name: str) -> None:
        bound[name] = time.perf_counter()
        await bind(name)

    informer = Informer(client, PODS, namespace=NAMESPACE, on_change=changed)
    watching = asyncio.create_task(informer.run())
    await informer.wait_synced()
    start = time.perf_counter()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await (at_once(names, timed) if per_second is None else _paced(names, timed, per_second))
            await everything.wait()
    except TimeoutError:
        late = ", ".join([name for name in names if name not in running][:5])
        raise TimeoutError(f"{len(running)} of {pods} pods ran within {DEADLINE_S:g} s; not {late}, …") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return {
        "pods": pods,
        "pace": f"{AT_ONCE} creations in flight" if per_second is None else f"{per_second:g}/s",
        "bind_to_running": milliseconds([running[name] - bound[name] for name in names]),
        "running_per_s": round(pods / (max(running.values()) - start), 1),
    }


async def at_once(items: Iterable[Any], action: Callable[[Any], Awaitable[object]], *, width: int = AT_ONCE) -> None:
    """The action for each item, `width` of them at a time."""
    limit = asyncio.Semaphore(width)

    async def limited(item: Any) -> None:
        async with limit:
            await action(item)

    async with asyncio.TaskGroup() as tasks:
        for item in items:
            tasks.create_task(limited(item))


async def _paced(names: Iterable[str], action: Callable[[str], Any], per_second: float) -> None:
    """Each at its own moment, however long the others take: a slow server is not given more time."""
    start = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, name in enumerate(names, start=1):
            tasks.create_task(action(name))
            await asyncio.sleep(max(0.0, start + number / per_second - time.perf_counter()))


async def clear(client: Client) -> None:
    """Remove every pod of the namespace, and wait until none is left."""

    async def remove(pod: Pod) -> None:
        await client.delete(PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace_seconds=0)

    async with asyncio.timeout(DEADLINE_S):
        while pods := (await client.list(PODS, namespace=NAMESPACE)).items:
            await at_once(pods, remove)
