"""What an event is about: the pods, nodes, workloads, instances, providers and queues that its payload names.

`explain` asks the ledger by these, so they are read off the payload once, by type of field and not event by event: a
new event is found under its pod without a change here. Pure; it must not know how the ledger stores them.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from overspill_events.catalog import Event, OwnerRef, PodRef, WorkloadRef

# Text fields that name a thing; other text is for people.
NAMED: Final = {
    "node": "node",
    "home_node": "node",
    "provider": "provider",
    "instance": "instance",
    "key": "instance-key",
    "cluster_queue": "clusterqueue",
    "local_queue": "localqueue",
    "pool": "pool",
    "service": "service",
}


class Key(Struct, frozen=True, kw_only=True):
    """One thing an event names. `kind` in lower case; `uid` is empty where the payload has none."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    is_subject: bool = False  # the event is about it; otherwise it only mentions it


def keys_of(event: Event) -> tuple[Key, ...]:
    """Every thing `event` names, subject first, without repetition."""
    found = dict.fromkeys(key for field in event.__struct_fields__ for key in _keys_of_field(event, field))
    subjects = {_identity(key) for key in found if key.is_subject}
    kept = [key for key in found if key.is_subject or _identity(key) not in subjects]
    return tuple(sorted(kept, key=lambda key: not key.is_subject))


def _identity(key: Key) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name


def _keys_of_field(event: Event, field: str) -> Iterator[Key]:
    value = getattr(event, field)
    is_subject = field in event.spec.key
    match value:
        case PodRef():
            yield Key(kind="pod", namespace=value.namespace, name=value.name, uid=value.uid, is_subject=is_subject)
        case WorkloadRef():
            yield Key(
                kind=value.kind.lower(),
                namespace=value.namespace,
                name=value.name,
                uid=value.uid,
                is_subject=is_subject,
            )
        case OwnerRef():
            yield Key(kind=value.kind.lower(), namespace=_namespace_of(event), name=value.name, uid=value.uid)
        case str() if field in NAMED and value:
            namespace = _namespace_of(event) if NAMED[field] == "localqueue" else ""
            yield Key(kind=NAMED[field], namespace=namespace, name=value, is_subject=is_subject)
        case _:
            return


def _namespace_of(event: Event) -> str:
    """The namespace of the pod or workload beside the field."""
    for neighbour in ("pod", "workload"):
        value = getattr(event, neighbour, None)
        if value is not None:
            return str(msgspec.structs.asdict(value)["namespace"])
    return ""
