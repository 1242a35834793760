"""How the demo's services are set, and what a caller may change."""

import pytest

from overspill_demo.arrangement import ARRANGEMENT, ArrangementError, arranged
from overspill_events.names import SERVICES


def test_every_service_is_arranged():
    """None runs on the defaults of production by accident."""
    assert set(ARRANGEMENT) == set(SERVICES)


def test_an_override_wins_and_leaves_the_others():
    """The base is not changed for the next caller."""
    settings = arranged(["evictor:OVERSPILL_EVICTOR_MAX_PER_CYCLE=0", "bridge:OVERSPILL_MODE=observe"])
    assert settings["evictor"]["OVERSPILL_EVICTOR_MAX_PER_CYCLE"] == "0"
    assert settings["bridge"]["OVERSPILL_MODE"] == "observe"
    assert arranged([])["evictor"] == ARRANGEMENT["evictor"]


@pytest.mark.parametrize(
    "bad", ["OVERSPILL_MODE=observe", "evictor:OVERSPILL_MODE", "nobody:OVERSPILL_MODE=observe", "evictor:PATH=x"]
)
def test_a_bad_override_is_refused_with_the_right_form(bad: str):
    """The message shows how to write it."""
    with pytest.raises(ArrangementError, match="SERVICE:OVERSPILL_NAME=VALUE"):
        arranged([bad])
