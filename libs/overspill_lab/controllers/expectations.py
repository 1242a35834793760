"""What a controller has done and not yet seen.

A controller acts on a cache that lags behind its own writes. Until the cache has shown every pod that it created and
every deletion that it asked for, it must not count again, or it would create or delete the same pods twice.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

FORGOTTEN_AFTER_S: Final = 300.0  # as the original: a lost watch event must not block a controller for ever


class _Book(Struct, kw_only=True):
    """One owner: uids of pods that were created and not seen, and of pods whose end was asked for and not seen."""

    creating: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    since: float = 0.0
    # Seen since the owner's present work began: a watch may beat the reply to the request.
    seen: set[str] = field(default_factory=set)
    seen_ending: set[str] = field(default_factory=set)


class Expectations:
    """Of one controller, per owner (by uid)."""

    def __init__(self) -> None:
        self._books: dict[str, _Book] = {}

    def begin(self, owner: str) -> None:
        """The owner is worked on from here."""
        book = self._books.setdefault(owner, _Book())
        book.seen, book.seen_ending = set(), set()

    def created(self, owner: str, uids: Iterable[str], *, now: float) -> None:
        """These pods were created for the owner; those seen since `begin` need no waiting."""
        book = self._books.get(owner)
        if book is not None and (missing := set(uids) - book.seen):  # no book: the owner went in the meantime
            book.creating |= missing
            book.since = now

    def deleted(self, owner: str, uids: Iterable[str], *, now: float) -> None:
        """The deletion of these pods was asked for; those seen ending since `begin` need no waiting."""
        book = self._books.get(owner)
        if book is not None and (missing := set(uids) - book.seen_ending):
            book.ending |= missing
            book.since = now

    def saw(self, owner: str, uid: str, *, ending: bool) -> None:
        """The cache shows this pod of the owner; `ending` when it is being deleted or gone."""
        book = self._books.get(owner)
        if book is None:
            return
        book.seen.add(uid)
        book.creating.discard(uid)
        if ending:
            book.seen_ending.add(uid)
            book.ending.discard(uid)

    def are_met(self, owner: str, *, now: float) -> bool:
        """Whether the owner's pods can be counted again."""
        book = self._books.get(owner)
        if book is None or not (book.creating or book.ending):
            return True
        return now - book.since > FORGOTTEN_AFTER_S

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        self._books.pop(owner, None)
