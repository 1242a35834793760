"""One process from start to stop: signals, heartbeat, HTTP endpoints, exit code.

It runs a body and ends it; what the body publishes about its start and stop is the body's matter.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from overspill_runtime import logs
from overspill_runtime.clock import Clock, SystemClock
from overspill_runtime.health import Health, application, heartbeat
from overspill_runtime.settings import PREFIX, CommonSettings, SettingsError, load

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_SETTINGS: Final = 2
STOP_AGAIN_SECONDS = 10.0  # longer than any goodbye, shorter than the half minute after which Kubernetes kills

S = TypeVar("S", bound=CommonSettings)


class Process(Struct, Generic[S], frozen=True, kw_only=True):
    """What the runtime hands to a body."""

    service: str
    version: str
    settings: S
    clock: Clock
    log: Any
    health: Health
    registry: CollectorRegistry
    stopping: asyncio.Event
    url: str  # of /livez /readyz /metrics


def version() -> str:
    """The installed version, or "unknown" when run from a bare checkout."""
    try:
        return metadata.version("overspill")
    except metadata.PackageNotFoundError:
        return "unknown"


@contextlib.asynccontextmanager
async def process(
    settings: S, *, service: str, clock: Clock | None = None, log: Any = None
) -> AsyncIterator[Process[S]]:
    """Everything around a body except signals and the exit code; tests use it as it is.

    Raises OSError when the address to listen on cannot be had.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    clock = clock or SystemClock()
    log = log or logs.configure(service=service, form=settings.log_format, level=settings.log_level)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    info = Gauge("overspill_build_info", "Always 1.", ["service", "version"], registry=registry)
    info.labels(service, version()).set(1)
    lag = Gauge("overspill_loop_lag_seconds", "How late the event loop woke a sleeper.", registry=registry)
    health = Health(clock)
    async with contextlib.AsyncExitStack() as stack:
        url = await _serve(application(health, registry), settings.listen, stack)
        beating = asyncio.create_task(heartbeat(health, lag), name="heartbeat")
        stack.push_async_callback(_end, beating)
        health.essential("heartbeat", beating)
        yield Process(
            service=service, version=version(), settings=settings, clock=clock, log=log, health=health,
            registry=registry, stopping=asyncio.Event(), url=url,
        )  # fmt: skip


async def run(
    main: Callable[[Process[S]], Awaitable[None]], settings: S, *, service: str, clock: Clock | None = None
) -> int:
    """Run `main` until it ends, fails or a SIGTERM or SIGINT arrives; return the exit code.

    The first signal turns readiness off, sets `stopping` and cancels `main`, which cleans up in its own `finally`; a
    second one kills at once.
    """
    log = logs.configure(service=service, form=settings.log_format, level=settings.log_level)
    try:
        async with process(settings, service=service, clock=clock, log=log) as running:
            log.info("listening", url=running.url)
            return await _until_stopped(main, running)
    except OSError as error:
        # No traceback: the address is the user's to change.
        log.error("cannot-listen", setting=f"{PREFIX}LISTEN", value=settings.listen, error=str(error))  # noqa: TRY400
        return EXIT_FAILED


def start(
    main: Callable[[Process[S]], Awaitable[None]],
    settings_type: type[S],
    *,
    service: str,
    env: Mapping[str, str] | None = None,
) -> int:
    """The whole of a program: settings from the environment and the file OVERSPILL_SETTINGS, then `run`.

    Bad settings, also those that only their use shows, are reported on standard error, one line per fault, with exit
    code 2 and no traceback.
    """
    env = os.environ if env is None else env
    file = env.get(f"{PREFIX}SETTINGS", "").strip()
    try:
        loaded = load(settings_type, service=service, env=env, file=Path(file) if file else None)
        return asyncio.run(run(main, loaded, service=service))
    except SettingsError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"overspill {service}: {line}\n")
        return EXIT_SETTINGS


async def _until_stopped(main: Callable[[Process[S]], Awaitable[None]], running: Process[S]) -> int:
    body: asyncio.Task[None] = asyncio.ensure_future(_as_coroutine(main, running))
    running.health.essential("main", body)
    with _signals(lambda: _stop(running, body)):
        try:
            await body
        except asyncio.CancelledError:
            if not running.stopping.is_set():
                raise
        except SettingsError:
            raise
        except Exception:
            running.log.exception("failed")
            return EXIT_FAILED
    return EXIT_OK


async def _as_coroutine(main: Callable[[Process[S]], Awaitable[None]], running: Process[S]) -> None:
    await main(running)


def _stop(running: Process[Any], body: asyncio.Task[None]) -> None:
    running.log.info("stopping")
    running.health.stopping = True
    running.stopping.set()
    _cancel(body, running.log)


def _cancel(body: asyncio.Task[None], log: Any) -> None:
    """Cancel, and again when the body has not ended: a cancellation can get lost.

    Until Python 3.12 `asyncio.wait_for` swallows one that arrives together with the result it waits for, and other
    people's code does as it likes. Without this such a process would stay until it is killed.
    """
    if body.done():
        return
    if body.cancelling():
        log.warning("stopping-again")
    body.cancel()
    asyncio.get_running_loop().call_later(STOP_AGAIN_SECONDS, _cancel, body, log)


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Any:
    """Both signals call `stop` once; after that they have their ordinary, deadly meaning again."""
    loop = asyncio.get_running_loop()

    def first(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _serve(app: web.Application, listen: str, stack: contextlib.AsyncExitStack) -> str:
    host, _, port = listen.rpartition(":")
    # A probe that keeps its connection must not hold up the stop.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, host, int(port))
    await site.start()
    bound = runner.addresses[0]
    return f"http://{bound[0]}:{bound[1]}"


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
