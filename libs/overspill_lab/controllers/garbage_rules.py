"""Who owns whom, and what becomes of an object whose owners go. (pkg/controller/garbagecollector)

Pure: a graph of metadata and the decision for one object in it. Whether an owner that the graph does not know really
does not exist, only the API server can say.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from msgspec import Struct

from overspill_kube.resources import Resource
from overspill_objects.meta import ObjectMeta, OwnerReference

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


class Item(Struct, frozen=True, kw_only=True):
    """One object."""

    resource: Resource[Any]
    meta: ObjectMeta


class Standing(Enum):
    """How an owner stands."""

    SOLID = auto()
    WAITING = auto()  # being deleted in the foreground: it waits for its dependents
    ABSENT = auto()


class Release(Struct, frozen=True, kw_only=True):
    """Take a finalizer of ours off the object: its dependents are dealt with."""

    finalizer: str


class Orphan(Struct, frozen=True, kw_only=True):
    """Take the object out of the owners of these, then release it."""

    dependents: tuple[Item, ...]


class Clear(Struct, frozen=True, kw_only=True):
    """Delete these dependents: the object waits for them."""

    dependents: tuple[Item, ...]


class Delete(Struct, frozen=True, kw_only=True):
    """Delete the object, since nobody owns it any more."""

    propagation: str


class Disown(Struct, frozen=True, kw_only=True):
    """Keep the object, without these owners."""

    owner_uids: frozenset[str]


Verdict: TypeAlias = Release | Orphan | Clear | Delete | Disown


class Graph:
    """All known objects by uid, and their dependents."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}

    def get(self, uid: str) -> Item | None:
        """The object, if it is known."""
        return self._items.get(uid)

    def put(self, item: Item) -> None:
        """An object is new or has changed."""
        self.drop(item.meta.uid)
        self._items[item.meta.uid] = item
        for owner in item.meta.owner_references:
            self._dependents.setdefault(owner.uid, set()).add(item.meta.uid)

    def drop(self, uid: str) -> None:
        """An object is gone."""
        item = self._items.pop(uid, None)
        for owner in item.meta.owner_references if item is not None else ():
            family = self._dependents.get(owner.uid, set())
            family.discard(uid)
            if not family:
                self._dependents.pop(owner.uid, None)

    def dependents_of(self, uid: str) -> list[Item]:
        """The objects that name this one as an owner."""
        return [self._items[one] for one in sorted(self._dependents.get(uid, ()))]


def needs_work(meta: ObjectMeta) -> bool:
    """Whether an object can be of interest at all."""
    deleting = meta.deletion_timestamp is not None
    return bool(meta.owner_references) or (deleting and (FOREGROUND in meta.finalizers or ORPHAN in meta.finalizers))


def standing_of(owner: Item | None) -> Standing:
    """How a known owner stands; None is one that does not exist."""
    if owner is None:
        return Standing.ABSENT
    waits = owner.meta.deletion_timestamp is not None and FOREGROUND in owner.meta.finalizers
    return Standing.WAITING if waits else Standing.SOLID


def judge(item: Item, standings: Mapping[str, Standing], dependents: Iterable[Item]) -> Verdict | None:
    """What to do with an object, given how each of its owners stands (by uid) and who depends on it."""
    family = tuple(dependents)
    if item.meta.deletion_timestamp is not None:
        return _leaving(item, family)
    if not item.meta.owner_references:
        return None
    lost = frozenset(uid for uid, standing in standings.items() if standing is not Standing.SOLID)
    if len(lost) < len(standings):
        return Disown(owner_uids=lost) if lost else None
    waited_for = any(
        standings[owner.uid] is Standing.WAITING and owner.block_owner_deletion for owner in item.meta.owner_references
    )
    return Delete(propagation="Foreground" if waited_for and family else "Background")


def _leaving(item: Item, family: tuple[Item, ...]) -> Verdict | None:
    if ORPHAN in item.meta.finalizers:
        return Orphan(dependents=family)
    if FOREGROUND not in item.meta.finalizers:
        return None
    blocking = [one for one in family if _reference(one.meta, item.meta.uid).block_owner_deletion]
    if not blocking:
        return Release(finalizer=FOREGROUND)
    there = tuple(one for one in family if one.meta.deletion_timestamp is None)
    return Clear(dependents=there) if there else None


def _reference(meta: ObjectMeta, owner_uid: str) -> OwnerReference:
    return next(one for one in meta.owner_references if one.uid == owner_uid)
