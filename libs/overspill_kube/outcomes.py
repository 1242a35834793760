"""Expected answers of an API server as values, so that a caller has to look at them.

`classify` reads a refusal from a reply. The two meanings of 429 are told apart here and nowhere else: a disruption
budget says "not this pod", throttling says "not so fast". This module must not know who asked.
"""

import re
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

BUDGET_CAUSE: Final = "DisruptionBudget"
DEFAULT_RETRY_AFTER: Final = 1.0  # seconds, when a throttling server names none
_BUDGET_NAME: Final = re.compile(r"disruption budget (\S+)")
_BEING_DELETED: Final = "object is being deleted: "
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"
_UID_PRECONDITION: Final = re.compile(r"UID in (?:the )?precondition", re.IGNORECASE)


class Done(Struct, Generic[T], frozen=True):
    """It took effect (or would have, in a dry run). `object` is what the server now has; None after a deletion."""

    object: T


class NotFound(Struct, frozen=True):
    """There is no such object."""

    message: str = ""


class Conflict(Struct, frozen=True):
    """Somebody else was faster (resourceVersion, or a field that another manager owns): read again and decide again."""

    message: str = ""


class Replaced(Struct, frozen=True):
    """There is an object of that name, but with another UID: not the one that was meant."""

    message: str = ""


class AlreadyExists(Struct, frozen=True):
    """An object of that name is there already."""

    message: str = ""

    @property
    def is_leaving(self) -> bool:
        """Whether that object is being deleted, so that the name will be free."""
        return self.message.startswith(_BEING_DELETED)


class Invalid(Struct, frozen=True):
    """The server found the object or patch unacceptable; `fields` are the paths that it named."""

    message: str
    fields: tuple[str, ...] = ()


class Forbidden(Struct, frozen=True):
    """Not allowed: by RBAC, a quota or an admission policy."""

    message: str


class Throttled(Struct, frozen=True):
    """Too many requests; slow the whole loop down for `retry_after` seconds."""

    retry_after: float
    message: str = ""


class Blocked(Struct, frozen=True):
    """A PodDisruptionBudget does not allow it now. `pdb` is its name, empty when the server did not tell."""

    message: str
    pdb: str = ""
    retry_after: float | None = None


class SeveralPdbs(Struct, frozen=True):
    """More than one PodDisruptionBudget selects the pod: the server refuses for good, until somebody changes them."""

    message: str


Refusal: TypeAlias = (
    NotFound | Conflict | Replaced | AlreadyExists | Invalid | Forbidden | Throttled | Blocked | SeveralPdbs
)
Outcome: TypeAlias = Done[T] | Refusal


class StatusCause(Struct, frozen=True):
    """One cause inside a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct, frozen=True, rename="camel"):
    """What a Status is about."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float | None = None


class Status(Struct, frozen=True, rename="camel"):
    """The API server's error body."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The causes, when there are any."""
        return (self.details.causes if self.details else None) or ()


_STATUS: Final = msgspec.json.Decoder(Status)


def read_status(body: bytes) -> Status:
    """The Status in an error body; any other body (a proxy's page) becomes a Status with its text as message."""
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        return Status(message=body[:300].decode(errors="replace").strip())
    return status


def classify(http_status: int, body: bytes, *, retry_after: float | None = None) -> Refusal | None:
    """The refusal that a reply means, or None when it is no refusal that callers are expected to handle.

    `retry_after` is the Retry-After header in seconds. A 404 counts only when the server names the object: the 404 of a
    kind that is not served must not be taken for "the object is gone".
    """
    status = read_status(body)
    match http_status:
        case 404 if status.reason == "NotFound" and status.details is not None and status.details.name:
            return NotFound(status.message)
        case 409:
            return _conflict(status)
        case 422:
            return Invalid(status.message, tuple(cause.field for cause in status.causes if cause.field))
        case 403:
            return Forbidden(status.message)
        case 429:
            return _too_many(status, retry_after)
        case 500 if _SEVERAL_BUDGETS in status.message:
            return SeveralPdbs(status.message)
    return None


def _conflict(status: Status) -> Refusal:
    if status.reason == "AlreadyExists":
        return AlreadyExists(status.message)
    if _UID_PRECONDITION.search(status.message):
        return Replaced(status.message)
    return Conflict(status.message)


def _too_many(status: Status, retry_after: float | None) -> Refusal:
    budget = next((cause for cause in status.causes if cause.reason == BUDGET_CAUSE), None)
    wish = retry_after
    if wish is None and status.details is not None:
        wish = status.details.retry_after_seconds
    if budget is None:
        return Throttled(DEFAULT_RETRY_AFTER if wish is None else wish, status.message)
    name = _BUDGET_NAME.search(budget.message)
    return Blocked(f"{status.message} {budget.message}".strip(), name[1] if name else "", wish)
