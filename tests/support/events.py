"""Events out of the catalogue's own types, so that a new event is tested the day it is declared."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from msgspec import inspect

from overspill_events.catalog import CATALOG, Event

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.integers(0, 10**10).map(lambda ms: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))


def events(event_type: type[Event] | None = None):
    """A strategy for one kind of event, or for all."""
    types = [event_type] if event_type else list(CATALOG.values())
    return st.one_of(*(_struct(inspect.type_info(cls)) for cls in types))


def _struct(info: inspect.StructType):
    return st.builds(info.cls, **{field.name: _value(field.type, field.name) for field in info.fields})


def _value(info: inspect.Type, name: str = ""):
    match info:
        case inspect.StructType():
            return _struct(info)
        case inspect.UnionType(types=types):
            return st.one_of(*(_value(each, name) for each in types))
        case inspect.VarTupleType(item_type=item):
            return st.lists(_value(item), max_size=2).map(tuple)
        case inspect.DictType(value_type=value):
            return st.dictionaries(TEXTS, _value(value), max_size=2)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(cls)
        case inspect.IntType(ge=ge):
            return st.integers(0 if ge == 0 else -(2**31), 2**31)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.StrType():
            # Keys must not be empty, anything else may be.
            return (
                NAMES if name in {"pool", "node", "key", "provider", "service", "name", "namespace", "kind"} else TEXTS
            )
        case inspect.BoolType():
            return st.booleans()
        case inspect.DateTimeType():
            return TIMES
        case inspect.NoneType():
            return st.none()
    raise TypeError(f"no strategy for {info!r}: add it")
