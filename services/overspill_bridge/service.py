"""The bridge put together: what runs while this process leads, and how news reach the work queue.

One leadership, one memory: everything here is made anew when leadership is taken and thrown away when it is lost, which
makes a restart and a change of leader the same thing.
"""

import asyncio
import contextlib
from functools import partial
from typing import Any

from overspill_bridge.book import Book, Identity
from overspill_bridge.collecting import Collector
from overspill_bridge.creating import Creator
from overspill_bridge.desk import Desk
from overspill_bridge.ending import Ender
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.nodekeeping import NodeKeeper
from overspill_bridge.podeffects import NotCarriedOut, PodEffects
from overspill_bridge.polling import Poller
from overspill_bridge.reconcile import Reconciler
from overspill_bridge.record import Record
from overspill_bridge.settings import Settings
from overspill_bridge.sources import SourceReader
from overspill_bridge.work import WorkQueue
from overspill_bridge.world import Pods, RightInDoubt, World, rules_of
from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.fence import doubt_of
from overspill_kube.informer import Change, Informer
from overspill_kube.resources import NAMESPACES, PODS
from overspill_objects.core import Pod
from overspill_providers.errors import ProviderError
from overspill_providers.protocol import Provider
from overspill_providers.registry import build_providers
from overspill_runtime.settings import Mode
from overspill_service.context import Context
from overspill_service.pausing import Control

SERVICE = "bridge"
IDENTITY_NAMESPACE = "kube-system"  # its UID is the cluster's identity
RETRY_SECONDS = 1.0
CONTROL_SECONDS = 0.5  # between two looks at the live copy of the operator's pauses; costs no request
EXPECTED = (KubeUnavailable, KubeError, ProviderError, NotCarriedOut, RightInDoubt)  # the world's troubles, not ours


async def lead(context: Context[Settings], metrics: BridgeMetrics) -> None:
    """Be the bridge until cancelled, which is what losing the lease means. Raises NodeTaken."""
    settings = context.settings
    async with contextlib.AsyncExitStack() as stack:
        providers = build_providers(settings.providers, timeout=settings.provider_timeout)
        for provider in providers:
            stack.push_async_callback(provider.close)
        cluster_uid = await _cluster_uid(context)
        control = Control(context.kube, context.clock, namespace=settings.namespace, service=SERVICE)
        world = make_world(context, providers, cluster_uid=cluster_uid, control=control)
        await Bridge(context, world, metrics, control=control).run()


def make_world(
    context: Context[Settings], providers: tuple[Provider, ...], *, cluster_uid: str, control: Control
) -> World:
    """An empty memory."""
    settings = context.settings
    identity = Identity(cluster_uid=cluster_uid, node=settings.node_name)
    names = [provider.name for provider in providers]
    return World(
        settings=settings,
        rules=rules_of(settings),
        clock=context.clock,
        identity=identity,
        pods=Pods(),
        book=Book(identity=identity, providers=names, all_shown_at=context.clock.monotonic() + settings.list_lag),
        providers={provider.name: provider for provider in providers},
        desks={
            name: Desk(name, cooldown=settings.offering_cooldown, silence=settings.sample_silence) for name in names
        },
        lost=set(),
        released={},
        ended={},
        condemned=set(),
        attempts={},
        why_paused=control.why_paused,
        doubt=partial(doubt_of, context.kube),
    )


async def _cluster_uid(context: Context[Settings]) -> str:
    """The UID that our instances are tagged with; without it nothing can be told apart, so it is waited for."""
    while True:
        try:
            namespace = await context.kube.get(NAMESPACES, IDENTITY_NAMESPACE)
            if namespace is not None:
                return namespace.metadata.uid
            problem = f"namespace {IDENTITY_NAMESPACE} does not exist"
        except (KubeUnavailable, KubeError) as error:
            problem = str(error)
        context.log.warning("cluster-not-identified", error=problem)
        await context.clock.sleep(RETRY_SECONDS)


class Bridge:
    """Everything that runs while this process leads."""

    def __init__(self, context: Context[Settings], world: World, metrics: BridgeMetrics, *, control: Control) -> None:
        self._context = context
        self._control = control
        self._world = world
        self._metrics = metrics
        self._log: Any = context.log
        kube: Client = context.kube
        settings = context.settings
        self._informer = Informer(kube, PODS, fields=f"spec.nodeName={settings.node_name}", on_change=self._on_pod)
        self._queue = WorkQueue(
            self._handle,
            clock=context.clock,
            retry_min=settings.retry_min,
            retry_max=settings.retry_max,
            on_error=self._on_error,
        )
        self._record = Record(context.bus, kube, node=settings.node_name, metrics=metrics)
        self._reconciler = Reconciler(
            world,
            creator=Creator(world, record=self._record, sources=SourceReader(kube), metrics=metrics, log=self._log),
            ender=Ender(
                world, kube, record=self._record, metrics=metrics, log=self._log, on_freed=self._retry_deferred
            ),
            effects=PodEffects(kube, settings, world.pods),
            record=self._record,
            metrics=metrics,
            log=self._log,
            api_is_fresh=self._may_create,
        )
        self._collector = Collector(
            world,
            kube,
            record=self._record,
            metrics=metrics,
            log=self._log,
            api_is_fresh=self._api_is_fresh,
            on_condemned=self._queue.add,
        )
        self._keeper = NodeKeeper(world, kube, record=self._record, log=self._log, is_leaving=self._is_leaving)

    async def run(self) -> None:
        """Pods first, then everything else: nothing is decided before the cache is whole."""
        self._watch_health()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name="pods")
            tasks.create_task(self._control.run(), name="control")
            await self._informer.wait_synced()
            self._world.pods.are_synced = True
            for provider in self._world.providers.values():
                tasks.create_task(self._poller(provider).run(), name=f"provider {provider.name}")
            if self._context.mode is not Mode.OBSERVE:
                tasks.create_task(self._keeper.run(), name="node")
            tasks.create_task(self._collector.run(), name="collector")
            tasks.create_task(self._resync(), name="resync")
            tasks.create_task(self._heed_operator(), name="operator")
            tasks.create_task(self._queue.run(), name="pods' work")

    def _poller(self, provider: Provider) -> Poller:
        return Poller(
            self._world,
            provider,
            record=self._record,
            metrics=self._metrics,
            log=self._log,
            on_changed=self._look_at,
            on_stock=self._retry_deferred,
            on_health=self._keeper.stir,
        )

    async def _resync(self) -> None:
        """Everything once in a while, so that no lost notice matters for long."""
        while True:
            self._look_at({*self._world.pods.uids(), *self._world.book.pods(), *self._world.book.flights()})
            await self._context.clock.sleep(self._context.settings.resync_interval)

    async def _heed_operator(self) -> None:
        """A pause that begins or ends concerns pods that wait, and the node that may have to come back."""
        before = self._control.problem(), self._control.pause()
        while True:
            await self._context.clock.sleep(CONTROL_SECONDS)
            now = self._control.problem(), self._control.pause()
            if now != before:
                before = now
                self._retry_deferred()
                self._keeper.stir()

    async def _handle(self, uid: str) -> float | None:
        return await self._reconciler.handle(uid, self._queue)

    def _on_pod(self, change: Change[Pod]) -> None:
        self._queue.add(self._world.pods.take(change))

    def _look_at(self, uids: set[str]) -> None:
        for uid in uids:
            self._queue.add(uid)

    def _retry_deferred(self) -> None:
        """There is more to have: stock, or room under the ceiling."""
        self._look_at(self._record.deferred())

    def _on_error(self, uid: str, error: Exception) -> None:
        self._metrics.errors.labels(type(error).__name__).inc()
        if isinstance(error, EXPECTED):
            self._log.info("pod-tried-again", pod_uid=uid, error=str(error))
        else:
            self._log.error("pod-failed", pod_uid=uid, exc_info=error)

    def _api_is_fresh(self) -> bool:
        """Whether the cache can be trusted enough to create or to collect: a dead watch is noticed late."""
        is_alive = self._context.mode is Mode.OBSERVE or self._keeper.is_alive
        return self._informer.is_synced and is_alive

    def _may_create(self) -> bool:
        """Whether an instance may be created: not while nobody can say whether that is paused."""
        return self._api_is_fresh() and self._control.problem() is None

    def _is_leaving(self) -> bool:
        """Whether Overspill is being uninstalled, or nobody can say: a node that is gone then stays away."""
        pause = self._control.pause()
        return self._control.problem() is not None or (pause is not None and pause.leaving)

    def _watch_health(self) -> None:
        health = self._context.health
        health.check("control", self._control.problem)
        health.check("pods", lambda: None if self._informer.is_synced else self._informer.last_error or "not listed")
        health.check("node", lambda: None if self._context.mode is Mode.OBSERVE else self._keeper.problem)
        for name, desk in self._world.desks.items():
            health.check(f"provider-{name}", lambda desk=desk: desk.problem)  # type: ignore[misc]
