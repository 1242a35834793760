"""Settings from the environment and one file, with errors that name the field and what it accepts.

A service declares one frozen Struct that extends CommonSettings. Common fields are read from `OVERSPILL_<FIELD>`, its
own from `OVERSPILL_<SERVICE>_<FIELD>`. This module must not know any service.
"""

import difflib
import math
import os
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from overspill_runtime.addresses import Listen, NatsUrl

PREFIX: Final = "OVERSPILL_"
SECRET: Final = Meta(extra={"secret": True})  # Annotated[str, SECRET]: never printed, never published
_USERINFO: Final = re.compile(r"://[^/?#\s]*@")  # to the last @ before the path: passwords may hold one
# Of a value that cannot be used all before the last @ but a scheme: where its password begins and ends is not known.
_BEFORE_AT: Final = re.compile(r"^(['\"]?)((?:[A-Za-z]+://)?).*@", re.DOTALL)
TYPO_LIKENESS: Final = 0.88  # difflib ratio from which an unknown common name counts as a misspelt one


class SettingsError(Exception):
    """Settings that cannot be used. The message has one line per fault: name, value, what is accepted."""


class FieldError(ValueError):
    """Raised by a Struct's __post_init__ for a value that only other fields make wrong."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(f"{field}: {value!r} is not accepted: {accepted}")
        self.field, self.value, self.accepted = field, value, accepted


class Mode(StrEnum):
    """Whether decisions are carried out."""

    ACT = "act"
    OBSERVE = "observe"  # every decision is made and published, no effect is carried out


class LogFormat(StrEnum):
    AUTO = "auto"  # console on a terminal, JSON otherwise
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def default_identity() -> str:
    """Who holds a lease: unique per process, readable by people."""
    return f"{socket.gethostname()}-{os.getpid()}"


Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$")]


class CommonSettings(Struct, frozen=True, kw_only=True):
    """What all services share; seconds throughout."""

    cluster: Name = "default"  # this cluster's name in subjects and sources
    nats_url: NatsUrl = "nats://127.0.0.1:4222"  # several servers separated by commas
    nats_credentials: str | None = None  # file: JWT and seed
    nats_makes_streams: bool = True  # False: the streams are made by `python -m overspill_bus topology`
    kubeconfig: str | None = None  # absent: $KUBECONFIG, ~/.kube/config, in-cluster
    context: str | None = None
    mode: Mode = Mode.ACT
    listen: Listen = "127.0.0.1:0"  # /livez /readyz /metrics; port 0: any free one
    log_format: LogFormat = LogFormat.AUTO
    log_level: LogLevel = LogLevel.INFO
    namespace: str = "overspill-system"  # of the leases
    identity: str = msgspec.field(default_factory=default_identity)
    lease_seconds: Annotated[float, Meta(ge=1)] = 15.0


S = TypeVar("S", bound=CommonSettings)


def load(cls: type[S], *, service: str, env: Mapping[str, str], prefix: str = PREFIX, file: Path | None = None) -> S:
    """The settings of `service`; the environment wins over the file, an empty value means not set.

    Raises SettingsError with one line for every fault found, not only the first.
    """
    named = _environment_names(cls, service=service, prefix=prefix)
    faults = _unknown_names(named, env=env, service=service, prefix=prefix)
    raw: dict[str, tuple[str, Any]] = {}  # field → (name as the user wrote it, value)
    if file is not None:
        table, more = _read_file(file, cls, service=service)
        raw.update(table)
        faults.extend(more)
    raw.update({field: (name, env[name]) for name, field in named.items() if env.get(name, "").strip()})
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(cls):
        if info.name not in raw:
            if info.required:
                faults.append(f"{_name_of(named, info.name)}: is required; accepted: {accepted_by(info.type)}")
            continue
        name, value = raw[info.name]
        try:
            values[info.name] = _sound(msgspec.convert(_split(value, info.type), info.type, strict=False), info.type)
        except msgspec.ValidationError as error:
            shown = "(a secret)" if _is_secret(info.type) else _BEFORE_AT.sub(r"\1\2***@", repr(value))
            faults.append(f"{name}: {shown} is not accepted: {_reason(error)}; accepted: {accepted_by(info.type)}")
    if faults:
        raise SettingsError("\n".join(faults))
    try:
        return cls(**values)
    except FieldError as error:
        name = _name_of(named, error.field)
        raise SettingsError(f"{name}: {error.value!r} is not accepted: {error.accepted}") from error


def describe(settings: CommonSettings) -> dict[str, str]:
    """The settings as understood, for people and for ServiceStarted: secrets and passwords in URLs left out."""
    shown: dict[str, str] = {}
    for info in msgspec.structs.fields(type(settings)):
        value = getattr(settings, info.name)
        if value is None or _is_secret(info.type):
            continue
        text = value.value if isinstance(value, Enum) else str(value)
        shown[info.name] = without_passwords(text)
    return shown


def accepted_by(annotation: Any) -> str:
    """What a field accepts, in words: from its type and constraints."""
    return _accepted(msgspec.inspect.type_info(annotation))


def _environment_names(cls: type[Struct], *, service: str, prefix: str) -> dict[str, str]:
    """Environment name → field."""
    common = set(CommonSettings.__struct_fields__)
    own = f"{prefix}{service.upper()}_"
    return {(prefix if f in common else own) + f.upper(): f for f in cls.__struct_fields__}


def _name_of(named: Mapping[str, str], field: str) -> str:
    return next((name for name, known in named.items() if known == field), field)


def _unknown_names(named: Mapping[str, str], *, env: Mapping[str, str], service: str, prefix: str) -> list[str]:
    """Misspelt names. A foreign OVERSPILL_* name is another service's business unless it is nearly one of ours."""
    own = f"{prefix}{service.upper()}_"
    faults = []
    for name in sorted(env):
        if not name.startswith(prefix) or name in named:
            continue
        likely = difflib.get_close_matches(name, list(named), n=1, cutoff=TYPO_LIKENESS)
        if name.startswith(own):
            hint = f"; did you mean {likely[0]}?" if likely else ""
            known = ", ".join(sorted(n for n in named if n.startswith(own)))
            faults.append(f"{name}: no such setting{hint} (known: {known})")
        elif likely and not likely[0].startswith(own):
            faults.append(f"{name}: no such setting; did you mean {likely[0]}?")
    return faults


def _read_file(file: Path, cls: type[Struct], *, service: str) -> tuple[dict[str, tuple[str, Any]], list[str]]:
    """Common keys on top, the service's own in its table; other services' tables are theirs."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: is not TOML: {error}") from error
    common = set(CommonSettings.__struct_fields__)
    own = set(cls.__struct_fields__) - common
    values: dict[str, tuple[str, Any]] = {}
    faults: list[str] = []
    entries = [(k, v, common, k) for k, v in document.items() if not isinstance(v, dict)]
    table = document.get(service, {})
    if isinstance(table, dict):
        entries += [(k, v, own, f"{service}.{k}") for k, v in table.items()]
    for key, value, allowed, path in entries:
        if key in allowed:
            values[key] = (f"{file}: {path}", value)
        else:
            faults.append(f"{file}: {path}: no such setting (known: {', '.join(sorted(allowed))})")
    return values, faults


def _split(value: Any, annotation: Any) -> Any:
    """Comma-separated text for fields that hold several values; everything else as it is."""
    several = (msgspec.inspect.VarTupleType, msgspec.inspect.ListType, msgspec.inspect.SetType)
    if isinstance(value, str) and any(isinstance(t, several) for t in _alternatives(annotation)):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _sound(value: Any, annotation: Any) -> Any:
    """The value, if it obeys what its type cannot say. Raises ValidationError."""
    if isinstance(value, float) and not math.isfinite(value):  # neither a time nor an event can hold that number
        raise msgspec.ValidationError("Expected a finite number")
    for extra in _extras(annotation):
        if "fault" in extra and isinstance(value, str) and (fault := extra["fault"](value)) is not None:
            raise msgspec.ValidationError(fault)
    return value


def _alternatives(annotation: Any) -> Iterator[msgspec.inspect.Type]:
    """The types a value may have: a union's members, without the metadata around them."""
    pending = [msgspec.inspect.type_info(annotation)]
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.Metadata):
            pending.append(info.type)
        elif isinstance(info, msgspec.inspect.UnionType):
            pending.extend(info.types)
        else:
            yield info


def _is_secret(annotation: Any) -> bool:
    return any(extra.get("secret") for extra in _extras(annotation))


def _extras(annotation: Any) -> Iterator[dict[str, Any]]:
    """What was said with Meta(extra=…) about a type or the members of a union."""
    pending = [msgspec.inspect.type_info(annotation)]
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.Metadata):
            yield info.extra or {}
            pending.append(info.type)
        elif isinstance(info, msgspec.inspect.UnionType):
            pending.extend(info.types)


def _reason(error: msgspec.ValidationError) -> str:
    """msgspec's own sentence, starting in lower case to stand inside ours."""
    text = str(error)
    return text[:1].lower() + text[1:]


def _accepted(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.Metadata(type=inner, extra=extra):
            return str((extra or {}).get("accepted") or _accepted(inner))
        case msgspec.inspect.EnumType(cls=cls):
            return " | ".join(str(member.value) for member in cls)
        case msgspec.inspect.LiteralType(values=values):
            return " | ".join(map(str, values))
        case msgspec.inspect.UnionType(types=types):
            return " or ".join("nothing" if isinstance(t, msgspec.inspect.NoneType) else _accepted(t) for t in types)
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            word = "a whole number" if isinstance(info, msgspec.inspect.IntType) else "a number"
            bounds = ((">=", info.ge), (">", info.gt), ("<=", info.le), ("<", info.lt))
            return " ".join([word, *(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)])
        case msgspec.inspect.BoolType():
            return "true | false"
        case msgspec.inspect.StrType(pattern=pattern):
            return f"text matching {pattern}" if pattern else "text"
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return f"comma-separated: {_accepted(item)}"
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def without_passwords(text: str) -> str:
    """nats://user:secret@host → nats://***@host, in each URL of the text, whether it can be used or not."""
    return _USERINFO.sub("://***@", text)
