"""The metrics server's shell: watches nodes, pods and priority classes, and answers HTTP."""

from typing import Any

from aiohttp import web

from overspill_kube.client import Client
from overspill_kube.informer import Informer
from overspill_kube.resources import NODES, PODS, PRIORITY_CLASSES
from overspill_lab.metrics.exposition import exposition
from overspill_lab.metrics.measure import Measured, measure
from overspill_lab.metrics.query import answer

TEXT_FORMAT = "text/plain; version=0.0.4"


class Metrics:
    """Series of the cluster that the client sees."""

    def __init__(self, client: Client) -> None:
        self._clock = client.clock
        self._nodes = Informer(client, NODES)
        self._pods = Informer(client, PODS)
        self._classes = Informer(client, PRIORITY_CLASSES)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """What must run."""
        return (self._nodes, self._pods, self._classes)

    def application(self) -> web.Application:
        """The HTTP endpoints."""
        app = web.Application()
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/api/v1/query", self._query)
        app.router.add_post("/api/v1/query", self._query)
        app.router.add_get("/-/ready", self._ready)
        return app

    def _measured(self) -> Measured | None:
        if not all(informer.is_synced for informer in self.informers):
            return None
        return measure(self._nodes.items.values(), self._pods.items.values(), self._classes.items.values())

    async def _exposition(self, _: web.Request) -> web.Response:
        measured = self._measured()
        if measured is None:
            return web.Response(status=503, text="the cluster is not known yet, or any more\n")
        return web.Response(body=exposition(measured).encode(), headers={"Content-Type": TEXT_FORMAT})

    async def _query(self, request: web.Request) -> web.Response:
        form = await request.post() if request.method == "POST" else {}
        query, time = (form.get(name, request.query.get(name)) for name in ("query", "time"))
        said = answer(
            query if isinstance(query, str) else None,
            time if isinstance(time, str) else None,
            self._measured(),
            now=self._clock.now().timestamp(),
        )
        return web.json_response(said.body, status=said.status)

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._measured() is not None else 503)
