"""A scripted server that speaks Prometheus' HTTP API: the answers are recorded shapes, the transport is real.

Values are in the shape that Prometheus 3 gives to an instant query, which `tests/cluster/test_prometheus.py` compares with
the real one's; `says` is what it answers next.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class ScriptedPrometheus:
    """Answers every query with `status` and `body`; remembers what it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = b""
    hang: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)

    def says(self, *values: str, warnings: tuple[str, ...] = (), infos: tuple[str, ...] = (), age: float = 0.0) -> None:
        """An instant vector of these values, evaluated `age` seconds ago."""
        at = round(time.time() - age, 3)
        result = [{"metric": {"n": str(n)}, "value": [at, value]} for n, value in enumerate(values)]
        answer: dict = {"status": "success", "data": {"resultType": "vector", "result": result}}
        remarks = {"warnings": list(warnings), "infos": list(infos)}
        self.status, self.body = (
            200,
            json.dumps(answer | {name: said for name, said in remarks.items() if said}).encode(),
        )

    def fails(self, status: int, error_type: str, error: str) -> None:
        self.status = status
        self.body = json.dumps({"status": "error", "errorType": error_type, "error": error}).encode()


@contextlib.asynccontextmanager
async def scripted_prometheus() -> AsyncIterator[ScriptedPrometheus]:
    """On a free loopback port, stopped at the end."""
    script = ScriptedPrometheus()

    async def query(request: web.Request) -> web.Response:
        script.asked.append(
            {**(await request.post()), "authorization": request.headers.get("Authorization", "")}  # type: ignore[dict-item]
        )
        if script.hang:
            await asyncio.Event().wait()
        return web.Response(status=script.status, body=script.body, content_type="application/json")

    app = web.Application()
    app.add_routes([web.post("/api/v1/query", query)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        script.url = "http://{}:{}".format(*runner.addresses[0])
        yield script
    finally:
        await runner.cleanup()
