"""Liveness, readiness and metrics over HTTP, on the service's own loop.

Liveness is this process alone: its loop turns and its essential tasks run. It never depends on NATS or the API server,
since a restart would mend neither. Readiness is what the service needs to do its work.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder

from overspill_runtime.clock import Clock

BEAT_SECONDS: Final = 0.5
DEAD_AFTER_SECONDS: Final = 10.0

Check = Callable[[], str | None]


class Health:
    """What is asked of this process: named checks that answer None (well) or why not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checks: dict[str, Check] = {}
        self._essential: dict[str, asyncio.Task[object]] = {}
        self._last_beat = clock.monotonic()
        self.stopping = False

    def check(self, name: str, answer: Check) -> None:
        """Add a readiness check, or replace the one of that name."""
        self._checks[name] = answer

    def essential(self, name: str, task: asyncio.Task[object]) -> None:
        """A task whose end means that this process is of no use any more."""
        self._essential[name] = task

    def beat(self) -> None:
        self._last_beat = self._clock.monotonic()

    def live(self) -> dict[str, str | None]:
        silent = self._clock.monotonic() - self._last_beat
        answers: dict[str, str | None] = {
            "loop": f"no heartbeat for {silent:.1f} s" if silent > DEAD_AFTER_SECONDS else None
        }
        for name, task in self._essential.items():
            answers[name] = "has ended" if task.done() else None
        return answers

    def ready(self) -> dict[str, str | None]:
        """Readiness: a check that raises is not ready, and says so."""
        answers: dict[str, str | None] = {"stopping": "is stopping" if self.stopping else None}
        for name, answer in self._checks.items():
            try:
                answers[name] = answer()
            except Exception as error:  # noqa: BLE001 - a broken check must not look like a healthy one
                answers[name] = f"the check itself failed: {error!r}"
        return answers


async def heartbeat(health: Health, lag: Gauge) -> None:
    """Beat for ever; the loop's lag is how much later than asked the loop woke us (seconds)."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + BEAT_SECONDS
        await asyncio.sleep(BEAT_SECONDS)
        lag.set(max(0.0, loop.time() - due))
        health.beat()


def application(health: Health, registry: CollectorRegistry) -> web.Application:
    """The three endpoints; 503 when a check fails, with every check in the body."""

    async def live(_: web.Request) -> web.Response:
        return _report(health.live())

    async def ready(_: web.Request) -> web.Response:
        return _report(health.ready())

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # Rendering many series takes long: not on the loop.
        body = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)])
    return app


def _report(answers: dict[str, str | None]) -> web.Response:
    well = all(answer is None for answer in answers.values())
    body = {"ok": well, "checks": {name: answer or "ok" for name, answer in answers.items()}}
    return web.Response(body=msgspec.json.encode(body), status=200 if well else 503, content_type="application/json")
