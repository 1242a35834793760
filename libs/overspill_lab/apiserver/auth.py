"""Who may talk to the lab: holders of its one admin token. RBAC is not the lab's business.

Also writes the kubeconfig that carries the token.
"""

import hmac
import os
import secrets
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import JsonObject

_CONTEXT = "overspill-lab"
_OPEN_PATHS = ("livez", "readyz", "healthz", "version")

# client-go, and so kubectl, sends no token over plain HTTP. For its sake the kubeconfig's server address carries the
# token as a path; a client that does send an Authorization header is judged by that alone.
TOKEN_PATH = "/as/{token}"  # noqa: S105  the pattern, not a token


def new_token() -> str:
    """Return a token for one run of the server."""
    return secrets.token_urlsafe(24)


def bearer_auth(token: str) -> Middleware:
    """Return the middleware that answers 401 to whoever does not show the token; health and version are open."""
    expected = f"Bearer {token}"

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.headers.get("Authorization") or f"Bearer {request.match_info.get('token', '')}"
        is_open = request.match_info.get("path") in _OPEN_PATHS
        if not is_open and not hmac.compare_digest(shown.encode(), expected.encode()):
            raise errors.unauthorized()
        return await handler(request)

    return authenticate


def kubeconfig(url: str, token: str) -> JsonObject:
    """Return a kubeconfig for the server; its context name is one that Overspill's commands accept."""
    server = url + TOKEN_PATH.format(token=token)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CONTEXT, "cluster": {"server": server}}],
        "users": [{"name": _CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": "default"}}],
        "current-context": _CONTEXT,
    }


def write_kubeconfig(path: Path, url: str, token: str) -> None:
    """Write the kubeconfig for its owner alone, whole or not at all; JSON is YAML enough for every client."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.touch(mode=0o600)
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(kubeconfig(url, token))) + b"\n")
    partial.replace(path)
