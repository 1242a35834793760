"""Settings of the decider that depend on each other."""

import pytest

from overspill_decider.settings import Settings
from overspill_events.catalog import RETURN_SECONDS_MAX
from overspill_runtime.settings import SettingsError, load


def test_the_marks_must_not_meet():
    env = {"OVERSPILL_DECIDER_LOW_MARK": "8"}
    with pytest.raises(
        SettingsError, match=r"OVERSPILL_DECIDER_HIGH_MARK: 8.0 is not accepted: a number above low_mark \(8\)"
    ):
        load(Settings, service="decider", env=env)


def test_the_look_back_covers_every_window_and_hold_twice():
    settings = load(Settings, service="decider", env={"OVERSPILL_DECIDER_CLOSE_HOLD": "4000"})
    assert settings.look_back() >= 8000


def test_the_look_back_covers_every_booking():
    """The evictor may book room for that long."""
    assert load(Settings, service="decider", env={}).look_back() >= RETURN_SECONDS_MAX
