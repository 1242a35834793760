"""A service's life around its body.

With the bus away the body still starts: the bridge must work without it, and the others hold still by their own rules.
In observe mode the body's client sends no write, whatever the body forgets; only the lease is still written.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from overspill_bus.bus import Bus
from overspill_bus.bus import connect as connect_bus
from overspill_bus.errors import BusClosed
from overspill_bus.settings import BusSettings
from overspill_events.catalog import LeadershipLost, LeadershipTaken, ServiceStarted, ServiceStopped
from overspill_events.names import FIELD_MANAGER_PREFIX
from overspill_kube.client import Client
from overspill_kube.client import connect as connect_kube
from overspill_kube.errors import ConfigError
from overspill_kube.fence import fenced
from overspill_kube.lease import run_as_leader
from overspill_kube.settings import KubeSettings
from overspill_runtime.process import Process, start
from overspill_runtime.process import process as start_process
from overspill_runtime.settings import CommonSettings, Mode, SettingsError, describe
from overspill_service.context import BusContext, Context
from overspill_service.metrics import ServiceMetrics

S = TypeVar("S", bound=CommonSettings)
Body = Callable[[Context[S]], Awaitable[None]]
BodyOnBus = Callable[[BusContext[S]], Awaitable[None]]

GOODBYE_SECONDS: Final = 1.0  # for a bus that has not connected yet; with the bus away stopping takes this much longer


def main(service: str, settings_type: type[S], body: Body[S], *, lease: str | None = None) -> NoReturn:
    """The whole of a service's program: settings from the environment, `serve`, exit code (0, 1 failed, 2 settings)."""

    async def run(running: Process[S]) -> None:
        await serve(service, running.settings, body, lease=lease, process=running)

    sys.exit(start(run, settings_type, service=service))


def main_on_bus(service: str, settings_type: type[S], body: BodyOnBus[S]) -> NoReturn:
    """As `main`, for a service that needs no API server and is given no way to one."""

    async def run(running: Process[S]) -> None:
        await serve_on_bus(service, running.settings, body, process=running)

    sys.exit(start(run, settings_type, service=service))


async def serve(
    service: str, settings: S, body: Body[S], *, lease: str | None = None, process: Process[S] | None = None
) -> None:
    """Run `body` until it ends or this task is cancelled; with `lease` only while it is held, anew at each election.

    Publishes ServiceStarted and ServiceStopped, LeadershipTaken and LeadershipLost. Without a `process` (tests) it
    makes one of its own. Raises what the body raises, and SettingsError for an unusable kubeconfig.
    """
    async with _running(process, settings, service) as running:
        metrics = ServiceMetrics(running.registry)
        async with _cluster(running, service, metrics) as kube, _bus(running, service, metrics) as bus:
            context = Context(process=running, bus=bus, kube=kube)
            if lease is None:
                await body(_given(context, kube))
            else:
                await _lead(context, body, service=service, lease=lease, metrics=metrics)


async def serve_on_bus(service: str, settings: S, body: BodyOnBus[S], *, process: Process[S] | None = None) -> None:
    """As `serve`, without an API server and so without a lease."""
    async with (
        _running(process, settings, service) as running,
        _bus(running, service, ServiceMetrics(running.registry)) as bus,
    ):
        await body(BusContext(process=running, bus=bus))


def _running(
    process: Process[S] | None, settings: S, service: str
) -> contextlib.AbstractAsyncContextManager[Process[S]]:
    return start_process(settings, service=service) if process is None else contextlib.nullcontext(process)


@contextlib.asynccontextmanager
async def _cluster(running: Process[S], service: str, metrics: ServiceMetrics) -> AsyncIterator[Client]:
    settings = KubeSettings(
        kubeconfig=running.settings.kubeconfig,
        context=running.settings.context,
        user_agent=f"{FIELD_MANAGER_PREFIX}{service}",
    )
    async with contextlib.AsyncExitStack() as stack:
        connecting = connect_kube(settings, clock=running.clock, on_request=metrics.observe_request)
        try:
            kube = await stack.enter_async_context(connecting)
        except ConfigError as error:
            raise SettingsError(f"OVERSPILL_KUBECONFIG: {error}") from error
        yield kube


@contextlib.asynccontextmanager
async def _bus(running: Process[S], service: str, metrics: ServiceMetrics) -> AsyncIterator[Bus]:
    """Connecting in the background; the service's start and end are told on it."""
    settings = running.settings
    told = BusSettings(
        cluster=settings.cluster,
        service=service,
        nats_url=settings.nats_url,
        name=f"{service} {settings.identity}",
        credentials_file=settings.nats_credentials,
        makes_streams=settings.nats_makes_streams,
    )
    async with connect_bus(told, clock=running.clock, wait=False) as bus:
        metrics.watch_bus(bus)
        running.health.check("bus", bus.problem)
        bus.emit(
            ServiceStarted(
                service=service, version=running.version, mode=str(settings.mode), settings=describe(settings)
            )
        )
        async with _told_when_stopped(bus, service, running):
            yield bus


async def _lead(context: Context[S], body: Body[S], *, service: str, lease: str, metrics: ServiceMetrics) -> None:
    """Run the body whenever the lease is held, and tell so; not ready while nobody can be asked for the lease."""
    holder = context.identity
    out_of_reach: str | None = None

    def taken() -> None:
        metrics.lead(lease, leads=True)
        context.log.info("leadership-taken", lease=lease, holder=holder)
        context.bus.emit(LeadershipTaken(service=service, lease=lease, holder=holder))

    def lost(reason: str) -> None:
        metrics.lead(lease, leads=False)
        context.log.info("leadership-lost", lease=lease, holder=holder, reason=reason)
        context.bus.emit(LeadershipLost(service=service, lease=lease, holder=holder, reason=reason))

    def trouble(reason: str | None) -> None:
        nonlocal out_of_reach
        if reason is not None and out_of_reach is None:
            context.log.warning("lease-out-of-reach", lease=lease, reason=reason)
        out_of_reach = reason

    context.health.check("lease", lambda: out_of_reach)
    metrics.lead(lease, leads=False)
    await run_as_leader(
        context.kube,
        name=lease,
        namespace=context.settings.namespace,
        identity=holder,
        body=lambda kube: body(_given(context, kube)),
        on_taken=taken,
        on_lost=lost,
        on_trouble=trouble,
        clock=context.clock,
        duration=context.settings.lease_seconds,
    )


def _given(context: Context[S], kube: Client) -> Context[S]:
    """What the body gets, with the client it may use."""
    if context.mode is Mode.OBSERVE:
        kube = fenced(kube, lambda: "OVERSPILL_MODE=observe")
    return msgspec.structs.replace(context, kube=kube)


@contextlib.asynccontextmanager
async def _told_when_stopped(bus: Bus, service: str, running: Process[Any]) -> AsyncIterator[None]:
    """ServiceStopped with its reason; the bus sends it while it closes.

    A body that fails before the bus has connected in the background would otherwise leave no word.
    """
    reason = "ended"
    try:
        yield
    except asyncio.CancelledError:
        reason = "signal" if running.stopping.is_set() else "cancelled"
        raise
    except BaseException as error:
        reason = f"failed: {error!r}"
        raise
    finally:
        bus.emit(ServiceStopped(service=service, reason=reason))
        with contextlib.suppress(TimeoutError, BusClosed):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await bus.wait_connected()
