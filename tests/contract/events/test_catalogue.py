"""The catalogue is a promise: schemas, documentation and old recordings hold today's code to it."""

import json
from enum import EnumType
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given

from overspill_events import decode, encode, from_headers, reasons
from overspill_events.catalog import CATALOG
from overspill_events.documentation import render
from overspill_events.schemas import schema, schema_text, schemas
from tests.support.events import events

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/contract/schemas"
RECORDINGS = sorted((ROOT / "tests/histories").glob("*.jsonl"))


def test_every_event_has_its_golden_schema_and_no_other_is_kept():
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CATALOG)


@pytest.mark.parametrize("ce_type", CATALOG)
def test_schemas_are_as_committed(ce_type):
    """A difference is a change of the promise. Wanted: python -m overspill_events.schemas tests/contract/schemas."""
    assert schema_text(CATALOG[ce_type]) == (GOLDEN / f"{ce_type}.json").read_text()


def test_the_documentation_is_as_committed():
    """Wanted otherwise: python -m overspill_events.documentation > docs/events.md."""
    assert render() == (ROOT / "docs/events.md").read_text()


@given(events())
def test_what_is_published_satisfies_its_schema(event):
    validator = jsonschema.Draft202012Validator(schema(type(event)))
    validator.validate(json.loads(encode(event)))


@pytest.mark.parametrize("ce_type", CATALOG)
def test_schemas_are_valid_and_tell_how_the_event_travels(ce_type):
    made = schemas()[ce_type]
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["x-overspill"]["type"] == ce_type
    assert made["x-overspill"]["stream"] == "EVENTS"


def test_schemas_allow_values_of_tomorrow():
    validator = jsonschema.Draft202012Validator(schema(CATALOG["dev.overspill.decider.gate-opened.v1"]))
    validator.validate({"node": "n", "reason": "of-tomorrow", "colour": "red"})


def test_every_enumeration_that_travels_reads_a_member_of_tomorrow_as_unknown():
    enums = [cls for cls in vars(reasons).values() if isinstance(cls, EnumType) and issubclass(cls, reasons.WireEnum)]
    assert len(enums) > 5
    for cls in enums:
        if cls is not reasons.WireEnum:
            assert msgspec.convert("of-tomorrow", cls) is cls.UNKNOWN


def test_there_are_recordings():
    assert RECORDINGS


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda file: file.name)
def test_old_events_are_read_by_todays_code(recording):
    """Each line is a message as the stream kept it; every field that it had must still be there, unchanged."""
    for line in recording.read_text().splitlines():
        message = json.loads(line)
        envelope = from_headers(message["headers"], subject=message["subject"])
        event = decode(envelope.type, json.dumps(message["data"]).encode())
        assert event is not None, f"{envelope.type} was removed"
        kept = json.loads(encode(event))
        assert {name: kept.get(name, "not kept") for name in message["data"]} == message["data"]


def test_recordings_cover_the_catalogue_of_their_time():
    recorded = {json.loads(line)["headers"]["ce-type"] for file in RECORDINGS for line in file.read_text().splitlines()}
    assert len(recorded & set(CATALOG)) >= 30
