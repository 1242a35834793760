"""The scheduler's shell: watches nodes, pods and budgets; runs a cycle on every change; binds, and sends away."""

import asyncio
from random import SystemRandom
from typing import Final

import structlog

from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.resources import NODES, PDBS, PODS
from overspill_lab.scheduler.ask import Ask
from overspill_lab.scheduler.book import Book, Decision
from overspill_lab.scheduler.placing import Placed
from overspill_lab.scheduler.verdicts import Verdicts
from overspill_lab.scheduler.victims import send_away
from overspill_objects.core import Node, Pod
from overspill_objects.disruption import PodDisruptionBudget

BINDINGS_AT_ONCE: Final = 16
TRIES_PER_CYCLE: Final = 50  # then others may run: bindings, watches
GATHER_S: Final = 0.01  # changes come in bursts; a cycle for each would be waste
RETRY_AFTER_S: Final = 1.0
CREATED: Final = (200, 201)


class Scheduler:
    """Places the pods of one `schedulerName`. `run` it."""

    def __init__(self, client: Client, *, scheduler_name: str) -> None:
        self._client = client
        self._book = Book(scheduler_name=scheduler_name, dice=SystemRandom())
        self._verdicts = Verdicts(client)
        self._pods = Informer(client, PODS, on_change=self._on_pod)
        self._nodes = Informer(client, NODES, on_change=self._on_node)
        self._budgets = Informer(client, PDBS, on_change=self._on_budget)
        self._slots = asyncio.Semaphore(BINDINGS_AT_ONCE)
        self._wake = asyncio.Event()
        self._log = structlog.get_logger()

    async def run(self, synced: asyncio.Event) -> None:
        """Schedule until cancelled; sets the event when the cluster is known."""
        async with asyncio.TaskGroup() as group:
            for task in (self._nodes.run(), self._pods.run(), self._budgets.run()):
                group.create_task(task)
            group.create_task(self._verdicts.run())
            await self._nodes.wait_synced()
            await self._pods.wait_synced()
            await self._budgets.wait_synced()
            synced.set()
            await self._cycles(group)

    async def _cycles(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            decisions, more = self._book.cycle(now(), tries=TRIES_PER_CYCLE)
            for decision in decisions:
                if isinstance(decision.placement, Placed):
                    self._verdicts.settled(decision.ask.uid)
                    group.create_task(self._bind(decision.ask, decision.placement.node_name))
                else:
                    self._verdicts.want(decision.ask, decision.placement.message, nominated=decision.nominated)
                if decision.victims:
                    group.create_task(self._preempt(decision))
            if not more:
                await self._changed(self._book.next_try())
            await asyncio.sleep(GATHER_S)

    async def _changed(self, at_latest: float | None) -> None:
        try:
            async with asyncio.timeout_at(at_latest):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _bind(self, ask: Ask, node_name: str) -> None:
        path = PODS.path(namespace=ask.namespace, name=ask.name, subresource="binding")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": ask.name, "namespace": ask.namespace, "uid": ask.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        why = ""
        async with self._slots:
            try:
                status, body = await self._client.raw("POST", path, body=binding)
            except KubeUnavailable as error:
                status, why = 0, str(error)
            else:
                why = body[:300].decode(errors="replace")
        if status in CREATED:
            return
        self._log.warning("not-bound", pod=f"{ask.namespace}/{ask.name}", node=node_name, status=status, why=why)
        await self._settle(ask)
        self._wake.set()

    async def _preempt(self, decision: Decision) -> None:
        """Send the victims away, each for itself."""
        for victim in decision.victims:
            try:
                await send_away(self._client, victim)
            except (KubeUnavailable, KubeError) as error:
                self._log.warning("not-preempted", pod=f"{victim.namespace}/{victim.name}", error=str(error))
                self._book.not_preempted(decision.ask, victim)
                self._wake.set()

    async def _settle(self, ask: Ask) -> None:
        """A binding failed or went unanswered: ask the API server what is true before the room is given away."""
        while True:
            await asyncio.sleep(RETRY_AFTER_S)
            try:
                pod = await self._client.get(PODS, ask.name, ask.namespace)
            except (KubeUnavailable, KubeError) as error:
                self._log.warning("pod-not-read", pod=f"{ask.namespace}/{ask.name}", error=str(error))
                continue
            if pod is None or pod.metadata.uid != ask.uid:
                self._book.drop_pod(ask.uid)
            elif pod.spec.node_name:
                self._book.put_pod(pod)
            else:
                self._book.unassume(ask, not_before=asyncio.get_running_loop().time())
            return

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        if change.kind is ChangeKind.DELETED:
            self._book.drop_pod(pod.metadata.uid)
            self._verdicts.forget(pod.metadata.uid)
        else:
            self._verdicts.saw(pod)
            self._book.put_pod(pod)
        self._wake.set()

    def _on_budget(self, change: Change[PodDisruptionBudget]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._book.drop_budget(change.object)
        else:
            self._book.put_budget(change.object)

    def _on_node(self, change: Change[Node]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._book.drop_node(change.object.metadata.name)
        else:
            self._book.put_node(change.object)
        self._wake.set()
