"""How a moment is written for people."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from overspill_events.moments import stamp

ROOT = Path(__file__).parents[3]
# A moment with neither date nor zone, or with the zone that Python writes.
BARE = re.compile(r"%H:%M|isoformat\(\)\}")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2030, 1, 31, 18, 0, 0, 999_999, tzinfo=UTC), "2030-01-31T18:00:00Z"),
        (datetime(2030, 1, 31, 18, tzinfo=timezone(timedelta(hours=5, minutes=30))), "2030-01-31T12:30:00Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))), "9999-12-31T23:00:00-14:00"),
    ],
)
def test_a_moment_is_told_in_utc_and_never_without_its_zone(moment: datetime, text: str):
    assert stamp(moment) == text
    assert datetime.fromisoformat(text) == moment.replace(microsecond=0)


def test_what_people_read_is_stamped_everywhere():
    """In the command, and in details and orders that it shows."""
    sources = [*(ROOT / "libs" / "overspill_cli").glob("*.py"), *(ROOT / "services" / "overspill_decider").glob("*.py")]
    sources.append(ROOT / "libs" / "overspill_service" / "control.py")
    assert len(sources) > 20
    assert [path.name for path in sources if BARE.search(path.read_text())] == []
