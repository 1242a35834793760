"""Our own admissions that the cluster's copy does not show yet.

Without them a workload that was just released would look as if it still waited, and its quota as if it were free: the
classic way to admit twice. An expectation ends when the copy has caught up with our write, not by time: a copy that
lags for long is not synced, and then nothing is admitted at all. Only a release whose answer got lost ends by time,
when the copy shows what was so after no request could be on its way any more. Pure.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from overspill_admitter.workload import State, Workload

ANSWER_WITHIN: Final = 60.0  # seconds: twice what a request to the API server may take


class _Expected(Struct, frozen=True, kw_only=True):
    version: int | None = None  # resourceVersion of our write
    lost_at: float | None = None  # monotonic seconds: since when nobody waits for the answer any more


class Expectations:
    """UIDs of workloads that are being released, or were and still look as if they waited."""

    def __init__(self) -> None:
        self._expected: dict[str, _Expected] = {}

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(self._expected)

    def begin(self, uid: str) -> None:
        """A release begins: from now on its quota is taken."""
        self._expected[uid] = _Expected()

    def written(self, uid: str, resource_version: str) -> None:
        """The release took effect in this version of the object (a number in every API server there is)."""
        self._expected[uid] = _Expected(version=int(resource_version))

    def unanswered(self, uid: str, now: float) -> None:
        """The release may have taken effect, or may still."""
        self._expected[uid] = _Expected(lost_at=now)

    def failed(self, uid: str) -> None:
        """The release did not take effect: its quota is free again."""
        self._expected.pop(uid, None)

    def observe(self, workloads: Iterable[Workload], heard: float) -> None:
        """Compare with what the copy shows; what has not begun to be answered stays expected.

        `heard`: until when (monotonic seconds) the copy shows everything.
        """
        shown = {one.ref.uid: one for one in workloads}
        for uid, expected in list(self._expected.items()):
            if _is_over(expected, shown.get(uid), heard):
                del self._expected[uid]


def _is_over(expected: _Expected, found: Workload | None, heard: float) -> bool:
    if found is None or found.state is not State.WAITING:
        return True  # deleted, or visibly released
    if expected.version is not None:
        return int(found.resource_version or 0) >= expected.version  # somebody holds it back again
    return expected.lost_at is not None and heard - expected.lost_at >= ANSWER_WITHIN
