"""The fault seam: named switches that get between a request and its handler.

A fault is a line in FAULTS: which requests it meets and what it does to them. Everything a cloud can do wrong is added
here and nowhere else, so that the cloud itself stays the honest reference.
"""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from overspill_lab.cloud.ledger import Refused


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fault is switched on: for the next `times` requests it meets (absent: until switched off)."""

    times: int | None = None
    offerings: tuple[str, ...] = ()  # only creates of these; empty: all


Effect = Callable[[web.Request, Handler, Setting], Awaitable[web.StreamResponse]]


class Fault(msgspec.Struct, frozen=True):
    """Which requests a fault meets, and its effect on them."""

    method: str
    path: str
    effect: Effect


async def _no_capacity(request: web.Request, handler: Handler, setting: Setting) -> web.StreamResponse:
    """Refuse the create although stock was advertised."""
    offering = msgspec.json.decode(await request.read()).get("offering")
    if setting.offerings and offering not in setting.offerings:
        return await handler(request)
    raise Refused(409, "no-capacity", f"no machine left for {offering}")


async def _create_answer_lost(request: web.Request, handler: Handler, _: Setting) -> web.StreamResponse:
    """Create the instance, then break the connection instead of answering."""
    response = await handler(request)
    if request.transport is not None:
        request.transport.abort()
    return response


async def _list_incomplete(request: web.Request, handler: Handler, _: Setting) -> web.StreamResponse:
    """Show every other instance and admit that the list is not complete."""
    response = await handler(request)
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return response
    page = msgspec.json.decode(response.body)
    return web.json_response({"instances": page["instances"][::2], "complete": False, "next": None})


async def _list_error(_: web.Request, __: Handler, ___: Setting) -> web.StreamResponse:
    """Fail the list as an overloaded server does."""
    raise Refused(503, "unavailable", "try again later")


FAULTS: dict[str, Fault] = {
    "no-capacity": Fault("POST", "/v1/instances", _no_capacity),
    "create-answer-lost": Fault("POST", "/v1/instances", _create_answer_lost),
    "list-incomplete": Fault("GET", "/v1/instances", _list_incomplete),
    "list-error": Fault("GET", "/v1/instances", _list_error),
}


class Switches:
    """Which faults are on."""

    def __init__(self) -> None:
        self._on: dict[str, Setting] = {}
        self._met: dict[str, int] = {}

    def set(self, body: bytes) -> dict[str, Setting]:
        """Replace all switches by `body`: {fault name: setting}. Refused 400 names an unknown fault or field."""
        try:
            settings = msgspec.json.decode(body, type=dict[str, Setting])
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise Refused(400, "invalid", f"faults: {error}") from error
        if unknown := sorted(set(settings) - set(FAULTS)):
            raise Refused(400, "invalid", f"faults: unknown {unknown}; known: {sorted(FAULTS)}")
        self._on, self._met = settings, {}
        return settings

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let the first fault that is on and meets this request have it."""
        for name, setting in self._on.items():
            fault = FAULTS[name]
            if (request.method, request.path) != (fault.method, fault.path):
                continue
            if setting.times is not None and self._met.get(name, 0) >= setting.times:
                continue
            self._met[name] = self._met.get(name, 0) + 1
            return await fault.effect(request, handler, setting)
        return await handler(request)
