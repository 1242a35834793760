"""The state: every object, the order of all writes, and a bounded memory of past changes for watchers.

An object is encoded once per write; get, list and every watcher share those bytes. Objects in the store are never
changed in place. This module must not know HTTP, kinds or rules: it takes what it is given and numbers it.
"""

import bisect
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from overspill_lab.apiserver.documents import JsonObject, encode
from overspill_lab.apiserver.resources import RESOURCES, Resource

# The first version is well above 1, so that a client which asks for version 1 learns that history does not reach that
# far back, as it does on a server whose etcd has lived before.
FIRST_REVISION = 1000


class Entry:
    """One object at one version. `obj` and `body` are without apiVersion and kind, which depend on who asks."""

    __slots__ = ("body", "key", "name", "namespace", "obj", "revision")

    def __init__(self, key: str, obj: JsonObject, revision: int) -> None:
        metadata = obj["metadata"]
        self.key = key
        self.namespace: str = metadata.get("namespace", "")
        self.name: str = metadata["name"]
        self.obj = obj
        self.revision = revision
        self.body = encode(obj)

    def typed(self, prefix: bytes) -> bytes:
        """Return the object's JSON with apiVersion and kind in front (see `type_prefix`)."""
        return prefix + self.body[1:]


def type_prefix(api_version: str, kind: str) -> bytes:
    """Return the opening of an object's JSON that names its type."""
    return b'{"kind":"' + kind.encode() + b'","apiVersion":"' + api_version.encode() + b'",'


class Change:
    """One write: what became of which object. Lines for watchers are made once and shared."""

    __slots__ = ("_lines", "entry", "kind", "previous", "revision")

    def __init__(self, kind: str, entry: Entry, previous: Entry | None) -> None:
        self.kind = kind
        self.entry = entry
        self.previous = previous
        self.revision = entry.revision
        self._lines: dict[tuple[str, bytes], bytes] = {}

    def line(self, kind: str, prefix: bytes) -> bytes:
        """Return the watch line for this change as seen by a watcher for whom it is an event of `kind`."""
        found = self._lines.get((kind, prefix))
        if found is None:
            found = event_line(kind, self.seen_as(kind).typed(prefix))
            self._lines[(kind, prefix)] = found
        return found

    def seen_as(self, kind: str) -> Entry:
        """Return the object a watcher is shown: for one that left its selection, the old state at the new version."""
        if kind != "DELETED" or self.kind == "DELETED" or self.previous is None:
            return self.entry
        return at_revision(self.previous, self.revision)


def at_revision(entry: Entry, revision: int) -> Entry:
    """Return the same state stamped with another version."""
    metadata = {**entry.obj["metadata"], "resourceVersion": str(revision)}
    return Entry(entry.key, {**entry.obj, "metadata": metadata}, revision)


def event_line(kind: str, document: bytes) -> bytes:
    """Frame a document as one line of a watch."""
    return b'{"type":"' + kind.encode() + b'","object":' + document + b"}\n"


# Whoever follows a collection; must not block and must not write from within.
Listener = Callable[[Change], None]


class Collection:
    """All objects of one kind."""

    def __init__(self, resource: Resource, *, history: int, revision: int) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.listeners: set[Listener] = set()
        # Changes up to and including this version are forgotten.
        self.forgotten = revision
        self._history = history
        self._changes: deque[Change] = deque()
        self._sorted: list[str] | None = None

    def in_order(self, namespace: str = "") -> Iterator[Entry]:
        """Yield the entries of one namespace, or of all, in the order of their keys, as etcd does."""
        keys = self.sorted_keys()
        start, stop = _span(keys, namespace)
        return (self.entries[key] for key in keys[start:stop])

    def sorted_keys(self) -> list[str]:
        """Return all keys in order; kept until one comes or goes."""
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        return self._sorted

    def since(self, revision: int) -> Iterator[Change]:
        """Yield the remembered changes after a version, oldest first. The caller has checked `forgotten`."""
        newer: list[Change] = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def as_of(self, revision: int, namespace: str = "") -> Iterable[Entry]:
        """Return the entries as they were at a remembered version, in order."""
        if not self._changes or self._changes[-1].revision <= revision:
            return self.in_order(namespace)
        past = dict(self.entries)
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            if change.previous is None:
                past.pop(change.entry.key, None)
            else:
                past[change.entry.key] = change.previous
        keys = sorted(past)
        start, stop = _span(keys, namespace)
        return [past[key] for key in keys[start:stop]]

    def record(self, change: Change) -> None:
        """Apply a numbered change and tell everybody who follows."""
        key = change.entry.key
        if change.kind == "DELETED":
            del self.entries[key]
            self._sorted = None
        else:
            self.entries[key] = change.entry
            if change.previous is None:
                self._sorted = None
        self._changes.append(change)
        if len(self._changes) > self._history:
            self.forgotten = self._changes.popleft().revision
        for listener in tuple(self.listeners):
            listener(change)


def _span(keys: list[str], namespace: str) -> tuple[int, int]:
    if not namespace:
        return 0, len(keys)
    return bisect.bisect_left(keys, f"{namespace}/"), bisect.bisect_left(keys, f"{namespace}0")  # "0" follows "/"


class Store:
    """Every collection and the one counter that orders all writes."""

    def __init__(self, *, history: int) -> None:
        self.revision = FIRST_REVISION
        self._collections = {
            resource: Collection(resource, history=history, revision=self.revision) for resource in RESOURCES
        }

    def collection(self, resource: Resource) -> Collection:
        """Return the objects of a kind."""
        return self._collections[resource]

    def put(self, resource: Resource, key: str, obj: JsonObject) -> Entry:
        """Write an object (which the store now owns) under the next version."""
        collection = self._collections[resource]
        previous = collection.entries.get(key)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        entry = Entry(key, obj, self.revision)
        collection.record(Change("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def remove(self, resource: Resource, key: str) -> Entry:
        """Delete an object; returns its last state, stamped with the version of the deletion."""
        collection = self._collections[resource]
        previous = collection.entries[key]
        self.revision += 1
        entry = at_revision(previous, self.revision)
        collection.record(Change("DELETED", entry, previous))
        return entry


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object; cluster-scoped ones have their name alone."""
    return f"{namespace}/{name}" if namespace else name
