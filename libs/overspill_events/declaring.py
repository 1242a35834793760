"""How an event is declared: the base of payloads, how one travels, and the register of all.

Everything else about events is derived from what is registered here. This module must not know any particular event.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeVar

from msgspec import Struct

TYPE_PREFIX: Final = "dev.overspill."  # of every CloudEvents type


class Event(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all payloads; a class attribute tells how it travels."""

    spec: ClassVar["EventSpec"]


class EventSpec(Struct, frozen=True, kw_only=True):
    """How one kind of event travels. `key` names the payload's fields that end the subject (a pod: namespace, name)."""

    name: str
    service: str  # "*": any service publishes it
    version: int
    key: tuple[str, ...]

    @property
    def type(self) -> str:
        """The CloudEvents type, for instance dev.overspill.decider.gate-opened.v1."""
        return f"{TYPE_PREFIX}{'service' if self.service == '*' else self.service}.{kebab(self.name)}.v{self.version}"


def kebab(name: str) -> str:
    """GateOpened → gate-opened."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


EventType = TypeVar("EventType", bound=type[Event])
CATALOG: dict[str, type[Event]] = {}  # CloudEvents type → payload


def event(service: str, *key: str, version: int = 1) -> Callable[[EventType], EventType]:
    """Register a payload in the catalogue. Raises ValueError for a type declared twice or a key that is no field."""

    def register(cls: EventType) -> EventType:
        if unknown := set(key) - set(cls.__struct_fields__):
            raise ValueError(f"{cls.__name__}: key fields {sorted(unknown)} are not fields of the event")
        cls.spec = EventSpec(name=cls.__name__, service=service, version=version, key=key)
        if cls.spec.type in CATALOG:
            raise ValueError(f"{cls.spec.type} is declared twice")
        CATALOG[cls.spec.type] = cls
        return cls

    return register
