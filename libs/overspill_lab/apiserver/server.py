"""The HTTP application: middleware, discovery and health, and the door to the verbs."""

import logging
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from overspill_lab.apiserver import auth, discovery, errors, openapi, targets
from overspill_lab.apiserver.documents import JsonObject, encode
from overspill_lab.apiserver.handlers import Api
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.streaming import WATCHERS

_LARGEST_BODY = 3 * 1024 * 1024  # the real server's limit
_SWAGGER = "/openapi/v2"
_HEALTH = ("/livez", "/readyz", "/healthz")
_log = logging.getLogger(__name__)


def application(registry: Registry, *, token: str, middlewares: Sequence[Middleware] = ()) -> web.Application:
    """Return the server for a registry. `middlewares` stand behind authentication and before every verb."""
    app = web.Application(
        middlewares=[_status_errors, auth.bearer_auth(token), *middlewares], client_max_size=_LARGEST_BODY
    )
    app[WATCHERS] = []
    api = Api(registry)

    async def serve(request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"].rstrip("/")
        if targets.is_api_path(path):
            return await api.handle(request, path)
        return _discover(request, path)

    app.router.add_route("*", auth.TOKEN_PATH + "/{path:.*}", serve)
    app.router.add_route("*", "/{path:.*}", serve)
    app.on_shutdown.append(_end_watches)
    return app


async def _end_watches(app: web.Application) -> None:
    open_watches = app[WATCHERS]
    for watcher in open_watches:
        watcher.close()


@web.middleware
async def _status_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure with a Status, unforeseen ones too."""
    try:
        return await handler(request)
    except errors.ApiError as problem:
        return _failure(problem)
    except errors.UndecodableError as problem:
        return _failure(problem.refusal())
    except web.HTTPRequestEntityTooLarge:
        return _failure(errors.too_large(_LARGEST_BODY))
    except (web.HTTPException, ConnectionError):
        raise
    except Exception as problem:  # noqa: BLE001  logged whole, answered as a real server answers a panic
        _log.exception("%s %s failed", request.method, request.path)
        return _failure(errors.internal(f"{type(problem).__name__}: {problem}"))


def _failure(problem: errors.ApiError) -> web.Response:
    headers = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
    return web.Response(
        body=encode(problem.status()), status=problem.code, content_type="application/json", headers=headers
    )


def _discover(request: web.Request, path: str) -> web.Response:
    if path in _HEALTH:
        return web.Response(text="ok")
    document = _discovery_document(path.split("/")[1:], request.host)
    if document is None:
        raise errors.no_such_path(path)
    if request.method != "GET":
        raise errors.method_not_allowed()
    if path == _SWAGGER and openapi.V2_PROTOBUF in request.headers.get("Accept", ""):
        return web.Response(body=openapi.swagger_protobuf(), content_type=openapi.V2_CONTENT)
    return web.Response(body=encode(document), content_type="application/json")


def _discovery_document(parts: list[str], address: str) -> JsonObject | None:
    match parts:
        case ["version"]:
            return discovery.version()
        case ["api"]:
            return discovery.core_versions(address)
        case ["apis"]:
            return discovery.groups()
        case ["apis", group]:
            return discovery.group(group)
        case ["api", version]:
            return discovery.resources("", version)
        case ["openapi", "v2"]:
            return openapi.swagger()
        case ["openapi", "v3"]:
            return openapi.index()
        case ["openapi", "v3", *root]:
            return openapi.document("/".join(root))
        case ["apis", group, version]:
            return discovery.resources(group, version)
        case _:
            return None
