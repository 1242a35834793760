"""Keeping the virtual node: registered, tainted, alive, and back again when somebody deletes it.

The switch taint is written when the node is created and never again: it is the decider's. A deleted node comes back
with its gate closed, and no instance is touched by that.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Never

from overspill_bridge import nodeobject
from overspill_bridge.record import Record
from overspill_bridge.world import World, shape_of
from overspill_events.catalog import NodeRegistered
from overspill_kube.client import Client, PatchKind
from overspill_kube.effects import Contended, TaintsSet, set_taints
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Informer
from overspill_kube.outcomes import AlreadyExists, Conflict, Done, NotFound, Outcome, Replaced, Throttled
from overspill_kube.resources import LEASES, NODES
from overspill_objects.core import Node

LEASE_NAMESPACE = "kube-node-lease"
RENEWALS = 4  # per lease duration, as the kubelet does
# Somebody else was faster, or the server is busy: the next round reads again.
PASSING = (AlreadyExists, Conflict, NotFound, Replaced, Throttled, Contended)


class NodeTaken(Exception):  # noqa: N818 -- the name says what is wrong
    """A node of our name exists and no bridge made it; taking it over would strand its pods."""


class NodeKeeper:
    """Holds one node. `stir` makes it look at once. While `is_leaving` says so, a node that is gone stays away."""

    def __init__(self, world: World, kube: Client, *, record: Record, log: Any, is_leaving: Callable[[], bool]) -> None:
        self._world = world
        self._kube = kube
        self._record = record
        self._log = log
        self._is_leaving = is_leaving
        self._shape = shape_of(world.settings)
        self._stirred = asyncio.Event()
        self._registered: str | None = None  # UID
        self._beat_at: float | None = None
        self._renewed_at: float | None = None
        self.problem: str | None = "not registered yet"
        self._informer = Informer(
            kube, NODES, fields=f"metadata.name={self._shape.name}", on_change=lambda _: self.stir()
        )

    def stir(self) -> None:
        """Something has changed that the node may have to show."""
        self._stirred.set()

    @property
    def is_alive(self) -> bool:
        """Whether the node's lease holds: the API server has lately answered a request, not only kept a watch open."""
        if self._renewed_at is None:
            return False
        return self._world.clock.monotonic() - self._renewed_at < self._world.settings.lease_duration

    async def run(self) -> Never:
        """Keep the node until cancelled. Raises NodeTaken."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.wait_synced()
            while True:
                self._stirred.clear()
                await self._look()
                try:
                    async with asyncio.timeout(self._world.settings.lease_duration / RENEWALS):
                        await self._stirred.wait()
                except TimeoutError:
                    continue

    async def _look(self) -> None:
        try:
            await self._keep()
        except (KubeUnavailable, KubeError) as error:
            self.problem = str(error)
            self._log.warning("node-not-kept", node=self._shape.name, error=str(error))
        else:
            self.problem = None

    async def _keep(self) -> None:
        node = self._informer.get("", self._shape.name)
        if node is None:
            node = await self._kube.get(NODES, self._shape.name)
        if node is None and self._is_leaving():
            return
        if node is None:
            node = await self._create()
        elif not nodeobject.is_virtual_kubelet(node):
            raise NodeTaken(f"node {node.metadata.name} exists and is not a virtual node of Overspill")
        if node is None:
            return
        if self._registered != node.metadata.uid:
            self._register(node, created=False)
        await self._repair(node)
        await self._report(node)
        await self._renew(node)

    async def _create(self) -> Node | None:
        body = nodeobject.node_body(self._shape, health=self._health(), now=self._world.clock.now())
        outcome = await self._kube.create(NODES, body)
        if isinstance(outcome, Done):
            self._register(outcome.object, created=True)
            self._beat_at = self._renewed_at = None
            return outcome.object
        self._check(outcome)
        return None

    def _register(self, node: Node, *, created: bool) -> None:
        self._registered = node.metadata.uid
        self._log.info("node-registered", node=node.metadata.name, uid=node.metadata.uid, created=created)
        self._record.say(
            NodeRegistered(
                node=node.metadata.name,
                uid=node.metadata.uid,
                created=created,
                max_external_gpus=self._shape.gpus,
                providers=tuple(self._world.providers),
            )
        )

    async def _repair(self, node: Node) -> None:
        """Put back what must always be there. Others' taints and labels stay, and so does the state of the gate."""
        # Labels first: without ours the admission policies let us write nothing else.
        if labels := nodeobject.label_patch(node):
            self._log.warning("labels-restored", node=node.metadata.name, labels=sorted(labels["metadata"]["labels"]))
            self._check(await self._kube.patch(NODES, node.metadata.name, labels, kind=PatchKind.MERGE))
        if missing := nodeobject.missing_taints(node):
            self._log.warning("taints-restored", node=node.metadata.name, taints=[taint.key for taint in missing])
            outcome = await set_taints(self._kube, node.metadata.name, add=missing, expect_uid=node.metadata.uid)
            self._check(outcome)

    async def _report(self, node: Node) -> None:
        moment = self._world.clock.monotonic()
        beat = self._beat_at is None or moment - self._beat_at >= self._world.settings.node_status_interval
        patch = nodeobject.status_patch(
            node, self._shape, health=self._health(), now=self._world.clock.now(), heartbeat=beat
        )
        if patch is None:
            return
        outcome = await self._kube.patch(
            NODES, node.metadata.name, patch, kind=PatchKind.STRATEGIC, subresource="status"
        )
        self._check(outcome)
        if beat:
            self._beat_at = moment

    async def _renew(self, node: Node) -> None:
        """Renew the node's lease four times per duration, however often the node itself changes."""
        moment, duration = self._world.clock.monotonic(), self._world.settings.lease_duration
        if self._renewed_at is not None and moment - self._renewed_at < 0.9 * duration / RENEWALS:
            return
        name = node.metadata.name
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
        body = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": duration,
                "renewTime": self._world.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        outcome = await self._kube.patch(LEASES, name, body, kind=PatchKind.MERGE, namespace=LEASE_NAMESPACE)
        if isinstance(outcome, NotFound):
            outcome = await self._kube.create(LEASES, body, LEASE_NAMESPACE)
        if isinstance(outcome, Done):
            self._renewed_at = moment
        elif not isinstance(outcome, AlreadyExists | Conflict | Throttled):
            raise KubeError(f"lease {LEASE_NAMESPACE}/{name}: {outcome}", status=0)

    def _health(self) -> dict[str, str | None]:
        return {name: desk.problem for name, desk in self._world.desks.items()}

    def _check(self, outcome: Outcome[Node] | TaintsSet | Contended) -> None:
        """Raise for a refusal that will not pass by itself; after one that may, the next round reads again."""
        if not isinstance(outcome, (Done, TaintsSet, *PASSING)):
            raise KubeError(f"node {self._shape.name}: {outcome}", status=0)
