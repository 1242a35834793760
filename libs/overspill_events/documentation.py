"""docs/events.md, generated from the catalogue: `python -m overspill_events.documentation > docs/events.md`.

This module must not hold facts of its own about single events.
"""

import sys
from enum import EnumType
from itertools import groupby
from typing import Final

import msgspec

from overspill_events import reasons, values
from overspill_events.catalog import CATALOG, Event
from overspill_events.comments import field_comments
from overspill_events.subjects import DLQ, DLQ_SUBJECTS, STREAM, STREAM_SUBJECTS, subject_template

_HEAD: Final = f"""# Events

Generated from `libs/overspill_events` by `python -m overspill_events.documentation`; do not edit.

Every event is a message of the JetStream stream `{STREAM}` (`{STREAM_SUBJECTS}`): a JSON payload with CloudEvents 1.0
attributes as headers. What could not be read or handled is in the stream `{DLQ}` (`{DLQ_SUBJECTS}`) with its original.

| header | meaning |
|---|---|
| `ce-id` | the event's identity; also `Nats-Msg-Id`, so that a repeated publication is stored once |
| `ce-type` | `dev.overspill.<service>.<event>.v<version>`; readers pass over types they do not know |
| `ce-source` | `/overspill/<cluster>/<service>[/<shard>]` |
| `ce-epoch`, `ce-sequence` | a start of that source, and the event's number in it from 1: a gap is a lost event |
| `ce-time` | when it was said, UTC |
| `ce-subject` | the key as people write it |
| `ce-causationid` | the `ce-id` of the event that led to this one |
| `ce-correlationid` | shared by everything that one first event led to |
| `ce-traceparent` | W3C trace context, when there is one |

In subjects a `.` inside a name is written `_`; other characters that a subject cannot hold are percent-encoded.
"""


def render() -> str:
    """The whole document."""
    parts = [_HEAD]
    for owner, events in groupby(CATALOG.values(), key=lambda cls: cls.spec.service):
        parts.append(f"\n## {'every service' if owner == '*' else owner}\n")
        parts += [_section(cls) for cls in events]
    parts.append("\n## Values inside events\n")
    own = [cls for cls in vars(values).values() if _is_value(cls)]
    parts += [_table(cls, heading=f"### {cls.__name__}\n\n{_first_line(cls)}") for cls in own]
    parts.append("\n## Enumerations\n\nA reader takes a value that it does not know as `unknown`.\n")
    enums = [cls for cls in vars(reasons).values() if isinstance(cls, EnumType) and issubclass(cls, reasons.WireEnum)]
    parts += [_enumeration(cls) for cls in enums if cls is not reasons.WireEnum]
    return "\n".join(parts)


def _section(cls: type[Event]) -> str:
    heading = f"### {cls.__name__}\n\n`{cls.spec.type}` on `{subject_template(cls)}`"
    return _table(cls, heading=f"{heading}\n\n{text}" if (text := _first_line(cls)) else heading)


def _table(cls: type[msgspec.Struct], *, heading: str) -> str:
    comments = field_comments()
    rows = [
        f"| `{field.encode_name}` | {_type_name(field.type)} | {'yes' if field.required else ''} "
        f"| {comments.get((cls.__name__, field.name), '').replace('|', 'or')} |"
        for field in msgspec.structs.fields(cls)
    ]
    return "\n".join([heading, "", "| field | type | always given | meaning |", "|---|---|---|---|", *rows, ""])


def _enumeration(cls: type[reasons.WireEnum]) -> str:
    return f"### {cls.__name__}\n\n{_first_line(cls)}\n\n" + ", ".join(f"`{member}`" for member in cls) + "\n"


def _type_name(annotation: object) -> str:
    """The type as a reader of JSON thinks of it."""
    match msgspec.inspect.type_info(annotation):
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(sorted(_info_name(info) for info in types))
        case info:
            return _info_name(info)


def _info_name(info: msgspec.inspect.Type) -> str:  # noqa: C901 (one line per kind of type)
    match info:
        case msgspec.inspect.StructType(cls=cls) | msgspec.inspect.EnumType(cls=cls):
            return cls.__name__
        case msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {_info_name(item)}"
        case msgspec.inspect.DictType(value_type=value):
            return f"map to {_info_name(value)}"
        case msgspec.inspect.IntType(ge=0):
            return "integer ≥ 0"
        case msgspec.inspect.IntType():
            return "integer"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.DateTimeType():
            return "time"
        case msgspec.inspect.NoneType():
            return "null"
        case _:
            raise TypeError(f"no name for {info!r}: add it beside the others")


def _is_value(cls: object) -> bool:
    return (
        isinstance(cls, type)
        and issubclass(cls, msgspec.Struct)
        and not issubclass(cls, Event)
        and cls.__module__ == values.__name__
    )


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n", 1)[0]


if __name__ == "__main__":
    sys.stdout.write(render())
