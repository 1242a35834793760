"""JSON Schema (2020-12) of every event, generated from the catalogue.

The schemas describe what a reader may rely on, so an enumeration is a string with its known values: a value of tomorrow
is no error (evolution rule). This module must not know how events travel, beyond the names it documents.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from overspill_events.catalog import CATALOG, Event
from overspill_events.comments import field_comments
from overspill_events.declaring import TYPE_PREFIX
from overspill_events.subjects import STREAM, subject_template

Schema = dict[str, Any]


def schema(event_type: type[Event]) -> Schema:
    """The schema of one event's payload, whole in itself."""
    spec = event_type.spec
    made = msgspec.json.schema(event_type)
    definitions: Schema = {name: _open(name, body) for name, body in made["$defs"].items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{spec.type.replace('.', ':')}",
        "x-overspill": {"type": spec.type, "stream": STREAM, "subject": subject_template(event_type)},
        **definitions.pop(spec.name),
        "$defs": definitions,
    }


def schemas() -> dict[str, Schema]:
    """CloudEvents type → schema, for the whole catalogue."""
    return {ce_type: schema(cls) for ce_type, cls in CATALOG.items()}


def schema_text(event_type: type[Event]) -> str:
    """The schema as a file holds it: stable order, so that a change of the catalogue is a small visible diff."""
    return json.dumps(schema(event_type), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _open(name: str, body: Schema) -> Schema:
    if "enum" in body:
        return {
            "title": name,
            "description": body.get("description", ""),
            "type": "string",
            "x-known-values": body["enum"],
        }
    comments = {_camel(field): text for (cls, field), text in field_comments().items() if cls == name}
    properties = {
        field: {**value, "description": comments[field]} if field in comments else value
        for field, value in body.get("properties", {}).items()
    }
    return {**body, "properties": properties}


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(part.title() for part in rest)


def write(directory: Path) -> None:
    """Write one file per event, named by its type; files of types that are no more are removed, nobody else's."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in directory.glob(f"{TYPE_PREFIX}*.json"):
        if file.stem not in CATALOG:
            file.unlink()
    for ce_type, event_type in CATALOG.items():
        (directory / f"{ce_type}.json").write_text(schema_text(event_type))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
