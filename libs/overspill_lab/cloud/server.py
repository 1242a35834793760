"""The cloud's HTTP surface: routes, the bearer token, errors as {"error": {"code", "message"}}.

It translates and nothing else; what an instance is and costs is the ledger's. The Idempotency-Key header is ignored, as
most clouds do.
"""

from hmac import compare_digest
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from overspill_lab.cloud.faults import Switches
from overspill_lab.cloud.ledger import Ask, Ledger, Refused
from overspill_providers.protocol import InstanceState

MAX_PAGE = 1_000
ENDS = (InstanceState.EXITED, InstanceState.FAILED, InstanceState.PREEMPTED, InstanceState.GONE)


class End(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Body of an end brought about from the provider's side; the state "gone" makes an instance vanish."""

    state: InstanceState
    exit_code: int | None = None
    message: str = ""


def _answer(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token, and turn Refused into its answer."""
        if not compare_digest(request.headers.get("Authorization", "").encode(), expected):
            return _refuse(Refused(401, "unauthorized", "Authorization: a bearer token of this cloud is needed"))
        try:
            return await handler(request)
        except Refused as refusal:
            return _refuse(refusal)

    return guard


def _refuse(refusal: Refused) -> web.Response:
    return _answer({"error": {"code": refusal.code, "message": refusal.message}}, status=refusal.status)


def _decode(body: bytes, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Refused(400, "invalid", str(error)) from error


def _whole_number(request: web.Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query.get(name) or str(default)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise Refused(400, "invalid", f"{name}: {text!r} is not a whole number from {least} to {most}")
    return int(text)


class _Routes:
    def __init__(self, ledger: Ledger, switches: Switches) -> None:
        self._ledger = ledger
        self._switches = switches

    async def create(self, request: web.Request) -> web.Response:
        record = self._ledger.create(_decode(await request.read(), Ask))
        return _answer({"id": record.id, "committed": True}, status=201)

    async def list(self, request: web.Request) -> web.Response:
        limit = _whole_number(request, "limit", 100, least=1, most=MAX_PAGE)
        after = _whole_number(request, "page", 0, least=0, most=10**12)
        records, following = self._ledger.page(after=after, limit=limit)
        page = {
            "instances": [self._ledger.show(record) for record in records],
            "next": None if following is None else str(following),
            "complete": True,
        }
        return _answer(page)

    async def get(self, request: web.Request) -> web.Response:
        return _answer(self._ledger.show(self._ledger.find(request.match_info["id"])))

    async def terminate(self, request: web.Request) -> web.Response:
        self._ledger.terminate(request.match_info["id"])
        return _answer({}, status=202)

    async def end(self, request: web.Request) -> web.Response:
        end: End = _decode(await request.read(), End)
        if end.state not in ENDS:
            raise Refused(400, "invalid", f"state: {end.state.value!r} is not one of {[e.value for e in ENDS]}")
        instance_id = request.match_info["id"]
        self._ledger.end_by_provider(instance_id, state=end.state, exit_code=end.exit_code, message=end.message)
        return await self.get(request)

    async def offerings(self, _: web.Request) -> web.Response:
        return _answer({"offerings": self._ledger.offerings()})

    async def bill(self, _: web.Request) -> web.Response:
        return _answer(self._ledger.bill())

    async def audit(self, _: web.Request) -> web.Response:
        return _answer(self._ledger.audit())

    async def faults(self, request: web.Request) -> web.Response:
        return _answer(self._switches.set(await request.read()))


def build_app(ledger: Ledger, *, token: str) -> web.Application:
    """The application that serves `ledger` to bearers of `token`."""
    switches = Switches()
    routes = _Routes(ledger, switches)
    app = web.Application(middlewares=[_guard(token), switches.middleware])
    app.add_routes(
        [
            web.post("/v1/instances", routes.create),
            web.get("/v1/instances", routes.list),
            web.get("/v1/instances/{id}", routes.get),
            web.delete("/v1/instances/{id}", routes.terminate),
            web.post("/v1/instances/{id}/end", routes.end),
            web.get("/v1/offerings", routes.offerings),
            web.get("/v1/bill", routes.bill),
            web.get("/v1/audit", routes.audit),
            web.put("/v1/faults", routes.faults),
        ]
    )
    return app
