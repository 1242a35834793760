"""Failures as Kubernetes tells them: one exception that carries a `Status`, and the field errors of a 422.

Wording and shape follow `k8s.io/apimachinery/pkg/api/errors` and `pkg/util/validation/field`, because clients read
`reason`, `details.causes` and, in places, the message.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.resources import Resource


class FieldError(Struct, frozen=True):
    """One cause of a 422: where, which machine-readable reason, and the words after the field."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> "FieldError":
        """Name a member that is missing."""
        return cls(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> "FieldError":
        """Name a member whose value cannot be taken."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> "FieldError":
        """Name a member that may not be set or changed here."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {detail}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Sequence[str]) -> "FieldError":
        """Name a member whose value is none of the accepted ones."""
        accepted = ", ".join(f'"{word}"' for word in supported)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {accepted}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> "FieldError":
        """Name an entry of a keyed list that occurs twice."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class ApiError(Exception):
    """A request that failed, with everything its `Status` says."""

    def __init__(
        self,
        *,
        code: HTTPStatus,
        reason: str,
        message: str,
        details: JsonObject | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.continue_token = continue_token

    def status(self) -> JsonObject:
        """Return the `Status` object that is served as the body."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        result: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"}
        result["message"] = self.message
        if self.reason:
            result["reason"] = self.reason
        if self.details:
            result["details"] = self.details
        result["code"] = int(self.code)
        return result

    @property
    def retry_after(self) -> int | None:
        """Return the seconds of the `Retry-After` header, if the failure has one."""
        return self.details.get("retryAfterSeconds")


def _subject(resource: Resource, name: str) -> JsonObject:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource, name: str) -> ApiError:
    """404 for an object that is not there."""
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(code=HTTPStatus.NOT_FOUND, reason="NotFound", message=message, details=_subject(resource, name))


def no_such_path(path: str) -> ApiError:
    """404 for a group, version, kind or subresource the lab does not serve."""
    message = f"the server could not find the requested resource: the lab does not serve {path}"
    # Clients such as `kubectl debug` read the details of a 404 without looking whether there are any.
    details: JsonObject = {"causes": [{"message": message}]}
    return ApiError(code=HTTPStatus.NOT_FOUND, reason="NotFound", message=message, details=details)


def already_exists(resource: Resource, name: str, *, is_leaving: bool) -> ApiError:
    """409 for a name that is taken; `is_leaving`: by an object that is being deleted."""
    message = f'{resource.qualified} "{name}" already exists'
    if is_leaving:
        message = f"object is being deleted: {message}"
    return ApiError(code=HTTPStatus.CONFLICT, reason="AlreadyExists", message=message, details=_subject(resource, name))


def version_required(resource: Resource, name: str) -> ApiError:
    """422 for an update without resourceVersion where there is no unconditional one; it names the plural."""
    problem = FieldError.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    refusal = invalid(resource, name, [problem])
    refusal.details["kind"] = resource.plural
    refusal.message = refusal.message.replace(resource.kind, resource.plural, 1)
    return refusal


def precondition_failed(resource: Resource, name: str, why: str) -> ApiError:
    """409 for another UID or version than the client means; it names the kind."""
    refusal = conflict(resource, name, why)
    refusal.details["kind"] = resource.kind
    refusal.message = refusal.message.replace(resource.plural, resource.kind, 1)
    return refusal


def conflict(resource: Resource, name: str, why: str, *, subresource: str = "") -> ApiError:
    """409 for a stale version, another UID, or a state in which the request makes no sense."""
    suffix = f"/{subresource}" if subresource else ""
    details = _subject(resource, name)
    details["kind"] += suffix
    message = f'Operation cannot be fulfilled on {resource.plural}{suffix}{resource.dotted_group} "{name}": {why}'
    return ApiError(code=HTTPStatus.CONFLICT, reason="Conflict", message=message, details=details)


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(resource: Resource, name: str, problems: Sequence[FieldError]) -> ApiError:
    """422 with one cause per field."""
    texts = [f"{problem.field}: {problem.message}" for problem in problems]
    what = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: JsonObject = {"name": name, "group": resource.group, "kind": resource.kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [{"reason": p.reason, "message": p.message, "field": p.field} for p in problems]
    message = f'{resource.kind}{resource.dotted_group} "{name}" is invalid: {what}'
    return ApiError(code=HTTPStatus.UNPROCESSABLE_ENTITY, reason="Invalid", message=message, details=details)


class UndecodableError(Exception):
    """A document that is not of its kind's shape: 400 where a client sent it, 422 where a patch made it."""

    def refusal(self) -> ApiError:
        """Return the answer to a whole document."""
        return bad_request(str(self))

    def patch_refusal(self) -> ApiError:
        """Return the answer to a patch: the cause is the patch, the kind is not named."""
        cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {self}", "field": "patch"}
        return ApiError(
            code=HTTPStatus.UNPROCESSABLE_ENTITY,
            reason="Invalid",
            message=f' "" is invalid: patch: Invalid value: {self}',
            details={"causes": [cause]},
        )


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be understood."""
    return ApiError(code=HTTPStatus.BAD_REQUEST, reason="BadRequest", message=message)


def forbidden(resource: Resource, name: str, why: str, *, causes: Sequence[JsonObject] = ()) -> ApiError:
    """403 from admission."""
    details = _subject(resource, name)
    if causes:
        details["causes"] = list(causes)
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(code=HTTPStatus.FORBIDDEN, reason="Forbidden", message=message, details=details)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    """410: the version asked for is no longer kept."""
    return ApiError(code=HTTPStatus.GONE, reason="Expired", message=message, continue_token=continue_token)


def method_not_allowed() -> ApiError:
    """405: the resource is served, this verb on it is not."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(code=HTTPStatus.METHOD_NOT_ALLOWED, reason="MethodNotAllowed", message=message)


def unsupported_media_type(message: str) -> ApiError:
    """415: the body is of a type that is not taken here."""
    return ApiError(code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason="UnsupportedMediaType", message=message)


def not_acceptable() -> ApiError:
    """406: the client takes nothing the lab can produce."""
    message = "only the following media types are accepted: application/json"
    return ApiError(code=HTTPStatus.NOT_ACCEPTABLE, reason="NotAcceptable", message=message)


def unauthorized() -> ApiError:
    """401: no bearer token, or another one."""
    return ApiError(code=HTTPStatus.UNAUTHORIZED, reason="Unauthorized", message="Unauthorized")


def unprocessable_patch() -> ApiError:
    """422 of a JSON Patch that does not apply, `test` included."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(code=HTTPStatus.UNPROCESSABLE_ENTITY, reason="Invalid", message=message)


def server_error(message: str) -> ApiError:
    """500 without a reason, as the real server gives for some mistakes of clients."""
    return ApiError(code=HTTPStatus.INTERNAL_SERVER_ERROR, reason="", message=message)


def internal(message: str) -> ApiError:
    """500 for what nobody foresaw."""
    return ApiError(
        code=HTTPStatus.INTERNAL_SERVER_ERROR,
        reason="InternalError",
        message=f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def version_too_large(asked: int, current: int) -> ApiError:
    """504: the client wants a version this server has not reached."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(
        code=HTTPStatus.GATEWAY_TIMEOUT,
        reason="Timeout",
        message=f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": causes, "retryAfterSeconds": 1},
    )


def too_many_requests(message: str, *, retry_after: int, causes: Sequence[JsonObject] = ()) -> ApiError:
    """429: a disruption budget (with its cause) or a server that asks for patience."""
    details: JsonObject = {"retryAfterSeconds": retry_after} if retry_after else {}
    if causes:
        details["causes"] = list(causes)
    return ApiError(code=HTTPStatus.TOO_MANY_REQUESTS, reason="TooManyRequests", message=message, details=details)


def invalid_options(kind: str, problem: FieldError) -> ApiError:
    """422 for the options of a request: ListOptions, CreateOptions, DeleteOptions and the like."""
    cause = {"reason": problem.reason, "message": problem.message, "field": problem.field}
    return ApiError(
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        message=f'{kind}.meta.k8s.io "" is invalid: {problem.field}: {problem.message}',
        details={"group": "meta.k8s.io", "kind": kind, "causes": [cause]},
    )


def too_large(limit: int) -> ApiError:
    """413: the body is longer than a server takes."""
    return ApiError(
        code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        reason="RequestEntityTooLarge",
        message=f"Request entity too large: limit is {limit}",
    )
