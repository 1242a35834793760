"""What a controller has done and not yet seen.

A controller acts on a cache that lags behind its own writes. Until the cache has shown every pod that it created and
every deletion that it asked for, it must not count again, or it would create or delete the same pods twice.
"""

from collections.abc import Iterable
from typing import Final

FORGOTTEN_AFTER_S: Final = 300.0  # as the original: a lost watch event must not block a controller for ever


class Expectations:
    """Per owner (by uid): uids of pods created, uids of pods being deleted, neither seen yet."""

    def __init__(self) -> None:
        self._creating: dict[str, set[str]] = {}
        self._deleting: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        # Seen while the owner is being worked on, there and ending: a watch may beat the reply to the request.
        self._seen: dict[str, tuple[set[str], set[str]]] = {}

    def begin(self, owner: str) -> None:
        """The owner is worked on from here; what `saw` is told is remembered until the next `begin`."""
        self._seen[owner] = (set(), set())

    def created(self, owner: str, uids: Iterable[str], *, now: float) -> None:
        """These pods were created for the owner; those seen meanwhile need no waiting."""
        self._expect(self._creating, owner, set(uids) - self._seen[owner][0], now)

    def deleted(self, owner: str, uids: Iterable[str], *, now: float) -> None:
        """The deletion of these pods was asked for; those seen ending meanwhile need no waiting."""
        self._expect(self._deleting, owner, set(uids) - self._seen[owner][1], now)

    def saw(self, owner: str, uid: str, *, ending: bool) -> None:
        """The cache shows this pod of the owner; `ending` when it is being deleted or gone."""
        there, leaving = self._seen.setdefault(owner, (set(), set()))
        there.add(uid)
        self._creating.get(owner, set()).discard(uid)
        if ending:
            leaving.add(uid)
            self._deleting.get(owner, set()).discard(uid)

    def are_met(self, owner: str, *, now: float) -> bool:
        """Whether the owner's pods can be counted again."""
        if not self._creating.get(owner) and not self._deleting.get(owner):
            return True
        return now - self._since[owner] > FORGOTTEN_AFTER_S

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        for known in (self._creating, self._deleting, self._since, self._seen):
            known.pop(owner, None)

    def _expect(self, known: dict[str, set[str]], owner: str, missing: set[str], now: float) -> None:
        if missing:
            known.setdefault(owner, set()).update(missing)
            self._since[owner] = now
