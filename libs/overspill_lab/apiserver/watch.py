"""Following a collection: which changes one watcher sees, and its bounded queue of ready lines.

A watcher never slows a write down: `offer` appends bytes and returns; one that falls too far behind is cut off and has
to list again, as on a real server. This module must not know HTTP; the streaming itself is in `streaming`.
"""

import asyncio
from collections.abc import Callable

from overspill_lab.apiserver.selectors import Selection
from overspill_lab.apiserver.store import Change, Entry

# Turns (event type, change) into the line this watcher gets.
Renderer = Callable[[str, Change], bytes]


def seen_kind(change: Change, selection: Selection) -> str | None:
    """Return what a change is to a watcher with this selection: an object that leaves the selection is DELETED to it.

    None: the watcher does not see it at all.
    """
    if selection.is_everything:
        return change.kind
    matched = change.previous is not None and selection.matches(change.previous.obj)
    if change.kind == "DELETED":
        return "DELETED" if matched else None
    if selection.matches(change.entry.obj):
        return "MODIFIED" if matched else "ADDED"
    return "DELETED" if matched else None


class Watcher:
    """One watch: a filter in front of a queue of bytes."""

    def __init__(
        self,
        *,
        namespace: str,
        selection: Selection,
        render: Renderer,
        limit_bytes: int,
        on_overflow: Callable[[], None],
    ) -> None:
        self._namespace = namespace
        self._selection = selection
        self._render = render
        self._limit_bytes = limit_bytes
        self._on_overflow = on_overflow
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._ready = asyncio.Event()
        self.closed = False

    def selects(self, entry: Entry) -> bool:
        """Tell whether an object belongs to this watch."""
        if self._namespace and entry.namespace != self._namespace:
            return False
        return self._selection.matches(entry.obj)

    def offer(self, change: Change) -> None:
        """Queue the line of a change, if this watcher sees it."""
        if self._namespace and change.entry.namespace != self._namespace:
            return
        kind = seen_kind(change, self._selection)
        if kind is not None:
            self.push(self._render(kind, change))

    def push(self, line: bytes) -> None:
        """Queue a line; a queue beyond its bound ends the watch."""
        if self.closed:
            return
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._ready.set()
        if self._waiting_bytes > self._limit_bytes:
            self.close()
            self._on_overflow()

    def close(self) -> None:
        """End the watch; whoever drains it finds out."""
        self.closed = True
        self._ready.set()

    async def take(self, timeout: float | None) -> bytes:
        """Wait up to `timeout` seconds for lines; returns all that are queued, or nothing."""
        if not self._lines and not self.closed:
            try:
                await asyncio.wait_for(self._ready.wait(), timeout)
            except TimeoutError:
                return b""
        self._ready.clear()
        lines, self._lines = self._lines, []
        self._waiting_bytes = 0
        return b"".join(lines)
