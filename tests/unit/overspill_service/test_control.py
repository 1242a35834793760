"""What the control ConfigMap says to a service."""

from datetime import UTC, datetime, timedelta

import pytest

from overspill_service.control import PAUSABLE, Pause, entry_of, pause_of

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_only_the_named_service_is_paused_until_its_time():
    pause = Pause(until=NOW + timedelta(hours=1), reason="audit", by="ada")
    data = {"evictor": entry_of(pause)}
    assert pause_of(data, "evictor", now=NOW) == pause
    assert pause_of(data, "evictor", now=NOW + timedelta(hours=1)) is None
    for other in set(PAUSABLE) - {"evictor"}:
        assert pause_of(data, other, now=NOW) is None
    assert str(pause) == "paused until 2030-01-01T13:00:00Z by ada: audit"


def test_without_an_end_it_holds_until_resumed():
    assert pause_of({"bridge": "{}"}, "bridge", now=NOW) == Pause()
    assert str(Pause()) == "paused until resumed"


@pytest.mark.parametrize(
    "entry", ["", "yes", "[]", '{"until": "soon"}', '{"until": "2030-01-01T12:00:00"}', '{"til": 1}']
)
def test_an_entry_that_cannot_be_read_pauses_and_names_itself(entry):
    pause = pause_of({"decider": entry}, "decider", now=NOW)
    assert pause is not None
    assert "data.decider cannot be read" in pause.reason
    assert "accepted:" in pause.reason
