"""The cluster as the evictor sees it: live copies, and since when each gate is seen closed.

The settling time of a gate is what this process has seen without interruption: time in which nobody looked does not
count, nor does a jump of the wall clock. It must not know what is decided from it.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from overspill_capacity.nodes import is_virtual
from overspill_evictor.memory import Memory
from overspill_evictor.policy import gate_is_closed
from overspill_evictor.snapshot import Snapshot
from overspill_kube.client import Client
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.resources import NODES, PODS, REPLICA_SETS, RESOURCE_QUOTAS
from overspill_objects.core import Node
from overspill_runtime.clock import Clock


class Cluster:
    """Nodes, pods, ReplicaSets and quotas; `run` keeps them."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._clock = clock
        self._closed: dict[str, tuple[str, float]] = {}  # virtual node → its UID, seen closed since (monotonic)
        self.nodes = Informer(client, NODES, on_change=self._node_changed)
        self.pods = Informer(client, PODS)
        self.replica_sets = Informer(client, REPLICA_SETS)
        self.quotas = Informer(client, RESOURCE_QUOTAS)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers().values():
                group.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Return once everything was listed."""
        for informer in self._informers().values():
            await informer.wait_synced()

    def why_not_synced(self) -> str | None:
        """Which copy cannot be trusted and why; None when all can."""
        for name, informer in self._informers().items():
            if not informer.is_synced:
                return f"{name}: {informer.last_error or 'not listed yet'}"
        return None

    def snapshot(self, memory: Memory, *, paused: str | None) -> Snapshot:
        """Everything a decision rests on, as of now."""
        return Snapshot(
            nodes=tuple(self.nodes.items.values()),
            pods=tuple(self.pods.items.values()),
            replica_sets={one.metadata.uid: one for one in self.replica_sets.items.values()},
            quotas=tuple(self.quotas.items.values()),
            gate_closed_for=self._closed_for(memory.gate_closed_at),
            open_returns=tuple(memory.open.values()),
            heirs=dict(memory.heirs),
            failures=dict(memory.failures),
            refusals=dict(memory.refusals),
            paused=paused,
        )

    def _informers(self) -> dict[str, Informer[Any]]:
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "replicasets": self.replica_sets,
            "resourcequotas": self.quotas,
        }

    def _closed_for(self, told: Mapping[str, datetime]) -> dict[str, float]:
        """Seconds: the fewest of what was seen here and what has passed since the decider said so."""
        looked, monotonic, now = self.nodes.synced_for(), self._clock.monotonic(), self._clock.now()
        closed = {name: min(looked, monotonic - since) for name, (_, since) in self._closed.items()}
        return {
            name: min(seen, (now - told[name]).total_seconds()) if name in told else seen
            for name, seen in closed.items()
        }

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.object
        name, uid = node.metadata.name, node.metadata.uid
        if change.kind is ChangeKind.DELETED or not is_virtual(node) or not gate_is_closed(node):
            self._closed.pop(name, None)
        elif name not in self._closed or self._closed[name][0] != uid:
            self._closed[name] = (uid, self._clock.monotonic())
