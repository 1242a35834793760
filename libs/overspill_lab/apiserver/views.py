"""How one request wants objects: plain, or as rows of a Table. Turns entries and changes into bytes."""

from typing import Protocol

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
