"""Bad settings name the field and what it accepts."""

import pytest

from overspill_evictor.settings import Settings
from overspill_runtime.settings import SettingsError, load


@pytest.mark.parametrize(
    ("env", "named", "accepted"),
    [
        ({"INTERVAL": "0"}, "INTERVAL", "a number > 0"),
        ({"DEFAULT_FLOOR": "0"}, "DEFAULT_FLOOR", "a whole number >= 1"),
        ({"MAX_PER_CYCLE": "-1"}, "MAX_PER_CYCLE", "a whole number >= 0"),
        ({"BACKOFF": "100", "BACKOFF_MAX": "99"}, "BACKOFF_MAX", "at least OVERSPILL_EVICTOR_BACKOFF (100)"),
        ({"MEMORY": "10"}, "MEMORY", "at least OVERSPILL_EVICTOR_RETURN_TIMEOUT (600)"),
        ({"RETURN_TIMEOUT": "3601"}, "RETURN_TIMEOUT", "<= 3600"),
        ({"GATE_SETLE": "1"}, "GATE_SETLE", "OVERSPILL_EVICTOR_GATE_SETTLE"),
    ],
)
def test_bad_settings_are_named(env: dict[str, str], named: str, accepted: str) -> None:
    """Name, value, what is accepted."""
    with pytest.raises(SettingsError) as error:
        load(Settings, service="evictor", env={f"OVERSPILL_EVICTOR_{name}": value for name, value in env.items()})
    assert f"OVERSPILL_EVICTOR_{named}" in str(error.value)
    assert accepted in str(error.value)


def test_the_rules_are_the_settings() -> None:
    """Nothing is judged by a number that cannot be set."""
    rules = load(Settings, service="evictor", env={"OVERSPILL_EVICTOR_MAX_PER_CYCLE": "3"}).rules
    assert rules.max_per_cycle == 3
    assert rules.default_floor == 1
