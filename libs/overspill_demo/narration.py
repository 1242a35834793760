"""The turns of a story in words, each told once, as they are seen from the outside.

Pure. It must not know the services' events: what it tells would be true of any system that does the same.
"""

from collections.abc import Iterator

from overspill_demo.recollection import Figures, Recollection
from overspill_demo.scenario import Scenario


class Narration:
    """What was told of one performance."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._openings = 0
        self._closings = 0
        self._told: set[str] = set()

    def news(self, seen: Recollection, now: Figures) -> Iterator[str]:
        """What has happened since the last call, one line each."""
        for _ in range(seen.openings - self._openings):
            yield f"the gate opens: {now.free_gpus} GPUs free at home, what does not fit may overflow"
        for _ in range(seen.closings - self._closings):
            yield f"the gate closes: {now.free_gpus} GPUs free at home, what is outside may come home"
        self._openings, self._closings = seen.openings, seen.closings
        if seen.spilled and self._first("overflow"):
            yield f"the first overflow: {next(iter(seen.spilled.values()))} is on the virtual node"
        jobs = len(self._scenario.research)
        if len(seen.finished) >= jobs and self._first("research"):
            yield f"research has ended: {jobs} jobs are done"
        if (returned := _first_return(seen)) and self._first("return"):
            yield f"the first return: {returned} is evicted, so that its successor lands at home"

    def _first(self, turn: str) -> bool:
        if turn in self._told:
            return False
        self._told.add(turn)
        return True


def _first_return(seen: Recollection) -> str | None:
    return next((eviction.pod for eviction in seen.evictions.values() if eviction.spilled), None)
