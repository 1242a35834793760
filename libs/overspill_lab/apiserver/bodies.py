"""What a request carries: documents, options, identity. Reads and checks them; knows no verb and no object's rules."""

import msgspec
from aiohttp import web

from overspill_lab.apiserver import errors, targets
from overspill_lab.apiserver.deletion import DeleteOptions, read_options
from overspill_lab.apiserver.documents import JsonObject, decode
from overspill_lab.apiserver.targets import Target

_JSON = "application/json"
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


async def document(request: web.Request) -> JsonObject:
    """Return the body as an object; raises 415 for another type than JSON and 400 for what is no object."""
    kind = request.headers.get("Content-Type", _JSON).partition(";")[0].strip().lower()
    if kind not in (_JSON, "application/octet-stream"):
        what = "in an unknown format"
        if "protobuf" in kind:
            what = "protobuf, which the lab does not speak (use `kubectl create -f`)"
        message = f"the body of the request was {what} - accepted media types include: {_JSON}"
        raise errors.unsupported_media_type(message)
    return _parse(await request.read())


def _parse(body: bytes) -> JsonObject:
    try:
        parsed = decode(body)
    except msgspec.DecodeError as problem:
        raise errors.bad_request(f"the body of the request is not JSON: {problem}") from problem
    if not isinstance(parsed, dict):
        raise errors.bad_request(f"the body of the request must be an object, not {type(parsed).__name__}")
    return parsed


def dry_run(request: web.Request) -> bool:
    """Tell whether the query asks for nothing to be stored; raises 422."""
    return targets.dry_run(request.query, _OPTIONS[request.method])


async def delete_options(request: web.Request) -> DeleteOptions:
    """Return the options of a DELETE: those of the body, or without one those of the query, never both."""
    if body := await request.read():
        return read_options(_parse(body))
    query = request.query
    options: JsonObject = {
        "gracePeriodSeconds": targets.number(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "dryRun": ["All"] if dry_run(request) else None,
    }
    return read_options(options)


def take_type(parsed: JsonObject, target: Target) -> None:
    """Take apiVersion and kind off a document; raises UndecodableError if they are not what the URL is about."""
    kind, api_version = parsed.pop("kind", ""), parsed.pop("apiVersion", "")
    if kind not in ("", target.resource.kind) or api_version not in ("", target.api_version):
        expected = f"{target.resource.kind} in version {target.api_version}"
        raise errors.UndecodableError(f"{kind} in version {api_version} cannot be handled as a {expected}")


def check_identity(parsed: JsonObject, target: Target) -> None:
    """Raise 400 if a document has another name or namespace than the URL."""
    metadata = parsed.get("metadata") or {}
    name, namespace = metadata.get("name") or target.name, metadata.get("namespace") or target.namespace
    if name != target.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if namespace != target.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
