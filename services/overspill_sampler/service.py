"""The sampler's shell: two informers, one query, one event per interval."""

import asyncio
import contextlib
from typing import Final, Never

import aiohttp

from overspill_events.catalog import CapacitySampled, Reading
from overspill_events.reasons import UnknownCause
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Informer
from overspill_kube.resources import NODES, PODS
from overspill_objects.core import Node, Pod
from overspill_sampler.devices import Devices, find_devices
from overspill_sampler.metrics import Metrics
from overspill_sampler.policy import Cluster, count
from overspill_sampler.prometheus import Prometheus
from overspill_sampler.settings import Settings
from overspill_service import Context, metrics_of

SERVICE: Final = "sampler"
LEASE: Final = "overspill-sampler"
DEVICES_EVERY_SECONDS: Final = 60.0  # drivers come and go with nodes, not with pods


async def body(context: Context[Settings]) -> None:
    """Sample for as long as this process leads."""
    settings = context.settings
    async with contextlib.AsyncExitStack() as stack:
        query = None
        if settings.prometheus_url is not None and settings.query is not None:
            session = await stack.enter_async_context(aiohttp.ClientSession())
            query = Prometheus(
                session,
                url=settings.prometheus_url,
                query=settings.query,
                token=settings.prometheus_token,
                timeout=settings.query_timeout,
                clock=context.clock,
            )
        await Sampler(context, metrics_of(context.registry, Metrics), query).run()


class Sampler:
    """One leadership; ends by cancellation."""

    def __init__(self, context: Context[Settings], metrics: Metrics, query: Prometheus | None) -> None:
        self._context = context
        self._settings = context.settings
        self._metrics = metrics
        self._query = query
        self._nodes: Informer[Node] = Informer(context.kube, NODES)
        self._pods: Informer[Pod] = Informer(context.kube, PODS)
        self._devices: Devices | None = None
        self._devices_at = 0.0

    async def run(self) -> None:
        """Never returns."""
        self._context.health.check("cluster", lambda: self._not_synced() or None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._pods.run())
            tasks.create_task(self._samples())

    async def _samples(self) -> Never:
        # The first sample may wait a little for the lists; an outage must not hold it up for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.interval):
                await self._nodes.wait_synced()
                await self._pods.wait_synced()
        clock = self._context.clock
        due = clock.monotonic()
        while True:
            await self._sample()
            # Missed turns are left out, not made up for.
            due = max(due + self._settings.interval, clock.monotonic())
            await clock.sleep(due - clock.monotonic())

    async def _sample(self) -> None:
        asked: tuple[Reading, ...] = ()
        if self._query is not None:
            asked = (await self._query.read(stale_after=self._settings.stale_after),)
        cluster = await self._look()
        counted = count(cluster, resource=self._settings.resource, now=self._context.clock.now())
        for reading in (counted, *asked):
            self._metrics.observe(reading)
        self._context.bus.emit(
            CapacitySampled(pool=self._settings.pool, resource=self._settings.resource, readings=(counted, *asked))
        )

    async def _look(self) -> Cluster:
        """The cluster as it can be seen now; nothing is counted from a view that may be old."""
        try:
            devices = await self._look_for_devices()
        except KubeUnavailable as error:
            return Cluster(unknown=UnknownCause.UNREACHABLE, detail=str(error))
        except KubeError as error:
            return Cluster(unknown=UnknownCause.REFUSED, detail=str(error))
        if devices.shared:
            return Cluster(unknown=UnknownCause.UNKNOWN, detail="devices that belong to no single node (DRA)")
        if why := self._not_synced():
            return Cluster(unknown=UnknownCause.NOT_SYNCED, detail=why)
        return Cluster(
            nodes=tuple(self._nodes.items.values()),
            pods=tuple(self._pods.items.values()),
            device_nodes=devices.nodes,
        )

    async def _look_for_devices(self) -> Devices:
        now = self._context.clock.monotonic()
        age = now - self._devices_at
        if self._devices is not None and age < DEVICES_EVERY_SECONDS:
            return self._devices
        try:
            self._devices = await find_devices(self._context.kube, resource=self._settings.resource)
            self._devices_at = now
        except KubeUnavailable:
            if self._devices is None or age > self._settings.stale_after:
                raise
        return self._devices

    def _not_synced(self) -> str:
        """Which informer cannot be trusted, empty when both can."""
        for name, informer in (("nodes", self._nodes), ("pods", self._pods)):
            silence = informer.last_contact_age()
            if not informer.is_synced or silence > self._settings.stale_after:
                return f"{name}: {informer.last_error or f'silent for {silence:.0f} s'}"
        return ""
