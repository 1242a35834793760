"""Bad settings name the field and what it accepts."""

import pytest

from overspill_admitter.settings import Settings
from overspill_runtime.settings import SettingsError, load


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("OVERSPILL_ADMITTER_INTERVAL", "0", "a number > 0"),
        ("OVERSPILL_ADMITTER_PARALLEL", "65", "a whole number >= 1 <= 64"),
        ("OVERSPILL_ADMITTER_MEMORY", "3599", "a number >= 3600"),
        ("OVERSPILL_ADMITTER_RETRY", "soon", "a number >= 0"),
        ("OVERSPILL_ADMITTER_HOMEFLAVORS", "a", "OVERSPILL_ADMITTER_HOME_FLAVORS"),
    ],
)
def test_bad_settings_are_named(name: str, value: str, accepted: str) -> None:
    """Name, value, what is accepted."""
    with pytest.raises(SettingsError) as error:
        load(Settings, service="admitter", env={name: value})
    assert name in str(error.value)
    assert accepted in str(error.value)


def test_home_flavors_are_comma_separated() -> None:
    """As tuples are everywhere."""
    settings = load(Settings, service="admitter", env={"OVERSPILL_ADMITTER_HOME_FLAVORS": "a, b"})
    assert settings.rules.home_flavors == ("a", "b")
