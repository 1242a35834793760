"""What `overspill doctor` finds: one thing looked at, how it is, and what to do next."""

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing looked at; `advice` says what to do next."""

    what: str
    health: Health
    detail: str
    advice: str = ""
