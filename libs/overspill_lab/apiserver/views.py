"""How one request wants objects: plain, or as rows of a Table. Turns entries and changes into bytes."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from overspill_lab.apiserver import tables
from overspill_lab.apiserver.documents import JsonObject, encode
from overspill_lab.apiserver.lists import Page, list_body
from overspill_lab.apiserver.store import Change, Entry, event_line, type_prefix
from overspill_lab.apiserver.targets import Target


class View(Protocol):
    """The representation that a client has asked for."""

    def object_body(self, entry: Entry) -> bytes:
        """Return one object."""

    def list_body(self, shown: Page) -> bytes:
        """Return a list."""

    def change_line(self, kind: str, change: Change) -> bytes:
        """Return the line of a watch for a change."""

    def bookmark_line(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return the line that tells a watcher how far it has seen."""


class PlainView:
    """Objects as they are."""

    def __init__(self, target: Target) -> None:
        self._resource = target.resource
        self._api_version = target.api_version
        self._prefix = type_prefix(target.api_version, target.resource.kind)

    def object_body(self, entry: Entry) -> bytes:
        """Return one object with its type."""
        return entry.typed(self._prefix)

    def list_body(self, shown: Page) -> bytes:
        """Return the list; items of custom resources carry their type, built-in ones do not."""
        item_prefix = self._prefix if self._resource.custom else None
        return list_body(shown, f"{self._resource.kind}List", self._api_version, item_prefix)

    def change_line(self, kind: str, change: Change) -> bytes:
        """Return the shared line of a change."""
        return change.line(kind, self._prefix)

    def bookmark_line(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return a bookmark: an object of the kind that has nothing but a version."""
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        document = {"kind": self._resource.kind, "apiVersion": self._api_version, "metadata": metadata}
        return event_line("BOOKMARK", encode(document))


class TableView:
    """Objects as rows for people. Not shared between watchers: ages differ, and few ask."""

    def __init__(self, target: Target, include: str, now: Callable[[], datetime]) -> None:
        self._resource = target.resource
        self._api_version = target.api_version
        self._include = include or "Metadata"
        self._now = now
        self._columns_told = False

    def _row(self, entry: Entry, now: datetime) -> JsonObject:
        obj = entry.obj
        row: JsonObject = {"cells": tables.cells(self._resource, obj, now)}
        if self._include == "Object":
            row["object"] = {"kind": self._resource.kind, "apiVersion": self._api_version, **obj}
        elif self._include == "Metadata":
            kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**kind, "metadata": obj["metadata"]}
        return row

    def _table(self, rows: list[JsonObject], metadata: dict[str, Any]) -> JsonObject:
        head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        columns = [] if self._columns_told else tables.columns(self._resource)
        return {**head, "columnDefinitions": columns, "rows": rows}

    def object_body(self, entry: Entry) -> bytes:
        """Return a table of one row."""
        metadata = {"resourceVersion": str(entry.revision)}
        return encode(self._table([self._row(entry, self._now())], metadata))

    def list_body(self, shown: Page) -> bytes:
        """Return a table of the page."""
        now = self._now()
        return encode(self._table([self._row(entry, now) for entry in shown.entries], shown.metadata()))

    def change_line(self, kind: str, change: Change) -> bytes:
        """Return a table of one row; only the first of a watch says what the columns are."""
        entry = change.seen_as(kind)
        table = self._table([self._row(entry, self._now())], {"resourceVersion": str(change.revision)})
        self._columns_told = True
        return event_line(kind, encode(table))

    def bookmark_line(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return a table whose one row is an object that has nothing but a version."""
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        table = self._table([{"cells": [], "object": partial}], {"resourceVersion": str(revision)})
        return event_line("BOOKMARK", encode(table))
