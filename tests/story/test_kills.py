"""A service is killed in the middle of the small story, and every promise is kept."""

from pathlib import Path

import pytest

from tests.support.stories import performed

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]


@pytest.mark.parametrize("victim", ["bridge", "evictor"])
async def test_a_killed_service_keeps_the_promises(tmp_path: Path, victim: str):
    """SIGKILL in the middle, started again by the lab."""
    async with performed(tmp_path, f"--kill={victim}") as demo:
        code, words, summary = await demo.ended()
    assert code == 0, words
    assert summary["killed"] == victim
    assert f"killed {victim}" in demo.told
