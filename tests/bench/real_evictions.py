"""Evictions per second of 400 pods in Deployments with budgets: one at a time, and by pools as the evictor has them.

Each pod is read, then evicted through the Eviction API, as `effects.evict` does; its successor is scheduled and runs at
once on simulated kubelets, and the budget counts it. As in the evictor an owner's pods go one after the other. A budget
that refuses is asked again, and told how often.
"""

import asyncio
import sys
import time
from collections import deque
from typing import Any, Final

from overspill_events.catalog import PodRef
from overspill_kube.client import Client
from overspill_kube.effects import Evicted, PdbBlocked, evict
from overspill_kube.outcomes import Done
from overspill_kube.resources import DEPLOYMENTS, PDBS, PODS
from overspill_objects.core import Pod
from tests.bench.figures import milliseconds
from tests.bench.machine import with_machine
from tests.bench.pacing import at_once
from tests.support.lab_parts import NAMESPACE, deployment_body

OWNERS: Final = 40
REPLICAS: Final = 10
UNAVAILABLE: Final = 5
POOLS: Final = (1, 4, 8)
DEADLINE_S: Final = 600.0
ASK_AGAIN_S: Final = 0.1


async def measure(client: Client, *, share: float) -> dict[str, Any]:
    """The same owners for every pool, each time with pods that have not been evicted yet."""
    owners = [f"owner-{number}" for number in range(round(OWNERS * share))]
    await at_once(owners, lambda name: _make(client, name))
    figures: dict[str, Any] = {"pods": len(owners) * REPLICAS, "owners": len(owners)}
    for pool in POOLS:
        by_owner = await _settled(client, owners)
        print(f"  a pool of {pool} …", file=sys.stderr, flush=True)
        figures[f"pool_{pool}"] = await with_machine(_evict_all(client, by_owner, pool=pool))
    return figures


async def _make(client: Client, name: str) -> None:
    deployment = await client.create(DEPLOYMENTS, deployment_body(name, REPLICAS), NAMESPACE)
    spec = {"maxUnavailable": UNAVAILABLE, "selector": {"matchLabels": {"app": name}}}
    budget = {"metadata": {"name": name}, "spec": spec}
    for made in (deployment, await client.create(PDBS, budget, NAMESPACE)):
        assert isinstance(made, Done), made


async def _settled(client: Client, owners: list[str]) -> dict[str, list[Pod]]:
    """Pods by owner, once all run and every budget allows as much as it can."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            budgets = (await client.list(PDBS, namespace=NAMESPACE)).items
            by_owner: dict[str, list[Pod]] = {name: [] for name in owners}
            for pod in (await client.list(PODS, namespace=NAMESPACE)).items:
                if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                    by_owner[pod.metadata.labels["app"]].append(pod)
            whole = all(len(pods) == REPLICAS for pods in by_owner.values())
            if whole and all(budget.status.disruptions_allowed == UNAVAILABLE for budget in budgets):
                return by_owner
            await asyncio.sleep(0.2)


async def _evict_all(client: Client, by_owner: dict[str, list[Pod]], *, pool: int) -> dict[str, Any]:
    waiting = deque(by_owner.values())  # owners take turns
    times: list[float] = []
    blocked = 0

    async def work() -> None:
        nonlocal blocked
        while waiting:
            pods = waiting.popleft()
            meta = pods[-1].metadata
            start = time.perf_counter()
            outcome = await evict(client, PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid))
            if isinstance(outcome, PdbBlocked):
                blocked += 1
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                assert isinstance(outcome, Evicted), outcome
                times.append(time.perf_counter() - start)
                pods.pop()
            if pods:
                waiting.append(pods)

    begun = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        for _ in range(pool):
            tasks.create_task(work())
    seconds = time.perf_counter() - begun
    return {"evictions_per_s": round(len(times) / seconds, 1), "eviction": milliseconds(times), "blocked": blocked}
