"""NATS subjects of events: overspill.v1.<cluster>.<service>.<event>.<key…>, derived from the catalogue.

Names may hold dots (`ip-10-0-0-1.ec2.internal`), which would split tokens, so that every name passes through
`subject_token`. This module must not know NATS: a subject is text.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from overspill_events.catalog import Event, PodRef, WorkloadRef, kebab
from overspill_events.errors import EventError

SUBJECT_ROOT: Final = "overspill.v1"
STREAM: Final = "EVENTS"
STREAM_SUBJECTS: Final = f"{SUBJECT_ROOT}.>"
DLQ: Final = "DLQ"
DLQ_ROOT: Final = "overspill.dlq"
DLQ_SUBJECTS: Final = f"{DLQ_ROOT}.>"

_HEAD_TOKENS: Final = len((*SUBJECT_ROOT.split("."), "cluster", "service", "event"))
_ESCAPED: Final = re.compile(r"[_~]")  # quote() leaves these alone, and "_" stands for "."


def subject_token(name: str) -> str:
    """`name` as one token: "." becomes "_"; what a token cannot hold, and "_" itself, is percent-encoded.

    Reversible by `name_of_token`. Raises EventError for an empty name, which no token can be.
    """
    if not name:
        raise EventError("a subject needs a name that is not empty")
    return ".".join(_quoted(part) for part in name.split(".")).replace(".", "_")


def name_of_token(token: str) -> str:
    """The name that `subject_token` made a token of."""
    return unquote(token.replace("_", "."))


def subject_for(event: Event, *, cluster: str, service: str) -> str:
    """Where `event` is published; `service` publishes it and is used for events that every service has.

    Raises EventError naming the key field that is empty.
    """
    spec = event.spec
    owner = service if spec.service == "*" else spec.service
    head = [SUBJECT_ROOT, _token("cluster", cluster), _token("service", owner), kebab(spec.name)]
    return ".".join([*head, *(_token(f"{spec.name}.{field}", name) for field, name in _key_names(event))])


def key_of(event: Event) -> str:
    """The event's key as people write it: `node-1`, `team/pod-a`, `job/team/train`."""
    return "/".join(name for _, name in _key_names(event))


def subject_filter(
    event_type: type[Event] | None = None,
    *,
    cluster: str | None = None,
    service: str | None = None,
    key: Sequence[str] = (),
) -> str:
    """A subject with wildcards: what is not given matches everything. `key`: the whole key, say (namespace, name)."""
    owner = service
    if event_type is not None and owner is None and event_type.spec.service != "*":
        owner = event_type.spec.service
    head = [
        SUBJECT_ROOT,
        subject_token(cluster) if cluster else "*",
        subject_token(owner) if owner else "*",
        kebab(event_type.spec.name) if event_type else "*",
    ]
    return ".".join([*head, *(map(subject_token, key) if key else [">"])])


def subject_template(event_type: type[Event]) -> str:
    """The subject with its variable parts in braces, for schemas and documentation."""
    spec = event_type.spec
    types = {field.name: field.type for field in msgspec.structs.fields(event_type)}
    parts = {PodRef: ("{namespace}", "{name}"), WorkloadRef: ("{kind}", "{namespace}", "{name}")}
    tail = [part for field in spec.key for part in parts.get(types[field], (f"{{{field}}}",))]
    owner = "{service}" if spec.service == "*" else spec.service
    return ".".join([SUBJECT_ROOT, "{cluster}", owner, kebab(spec.name), *tail])


def cluster_of(subject: str) -> str:
    """The name of the cluster that a subject of an event is about."""
    return name_of_token(subject.removeprefix(f"{SUBJECT_ROOT}.").split(".")[0])


def readable_key(subject: str) -> str:
    """The key of a subject as people write it; empty where there is none."""
    return "/".join(map(name_of_token, subject.split(".")[_HEAD_TOKENS:]))


def _key_names(event: Event) -> list[tuple[str, str]]:
    names: list[tuple[str, str]] = []
    for field in event.spec.key:
        match getattr(event, field):
            case PodRef(namespace=namespace, name=name):
                names += [(f"{field}.namespace", namespace), (f"{field}.name", name)]
            case WorkloadRef(kind=kind, namespace=namespace, name=name):
                names += [(f"{field}.kind", kind.lower()), (f"{field}.namespace", namespace), (f"{field}.name", name)]
            case value:
                names.append((field, str(value)))
    return names


def _token(what: str, name: str) -> str:
    if not name:
        raise EventError(f"{what}: is empty; a part of the subject needs a name")
    return subject_token(name)


def _quoted(part: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", quote(part, safe=""))
