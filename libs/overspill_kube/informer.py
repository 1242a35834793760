"""Follows a resource for ever and keeps its objects at hand, honestly: it says when it no longer knows.

List, then watch from the list's version. A broken watch goes on from the last version; a version that is gone means a
new list, whose difference to the cache becomes changes (so nothing that was deleted meanwhile stays). The server's
troubles never end an informer, they only make it unsynced; a handler's error does end it. It must not know what its
objects are for.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, Never, Protocol, TypeVar

from msgspec import Struct

from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable, VersionGone
from overspill_kube.resources import Resource
from overspill_kube.watching import Bookmark, Seen, Selection, open_watch
from overspill_objects.meta import ObjectMeta

YIELD_EVERY: Final = 100  # objects handled before others may run
SHORTEST_WATCH_SECONDS: Final = 0.5
_RANDOM: Final = random.SystemRandom()


class HasMeta(Protocol):
    """Every view of an object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its identity."""
        ...


T = TypeVar("T", bound=HasMeta)
Key = tuple[str, str]  # namespace ("" for cluster-wide kinds), name


class ChangeKind(Enum):
    """What happened to an object, as far as the cache can tell."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Change(Struct, Generic[T], frozen=True):
    """One difference. `object` is the new state, for DELETED the last one known; `old` the state before."""

    kind: ChangeKind
    object: T
    old: T | None = None


class Informer(Generic[T]):
    """A live copy of a resource. `run` keeps it; everything else only looks."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        on_change: Callable[[Change[T]], None] | None = None,
    ) -> None:
        self._client = client
        self._selection = Selection(resource=resource, namespace=namespace, labels=labels, fields=fields)
        self._on_change = on_change
        self._items: dict[Key, T] = {}
        self._version: str | None = None  # to watch from; None: list first
        self._listed = False
        self._contact: float | None = None
        self._synced_since = 0.0
        self._failures = 0
        self._revision = 0
        self._reported = 0
        self._stirred = asyncio.Event()
        self.last_error: str | None = None
        self.relists = 0

    # --- looking
    # ---------------------------------------------------------------------------------------------------------

    @property
    def items(self) -> Mapping[Key, T]:
        """The objects by (namespace, name): a read-only live view. Meaningless unless `is_synced`."""
        return MappingProxyType(self._items)

    def get(self, namespace: str, name: str) -> T | None:
        """The object as last seen, or None; "" is the namespace of cluster-wide kinds."""
        return self._items.get((namespace, name))

    @property
    def is_synced(self) -> bool:
        """Whether `items` can be trusted: listed whole, readable, and the server heard within the stale time."""
        return self._listed and self.last_contact_age() <= self._client.settings.watch.stale_seconds

    def last_contact_age(self) -> float:
        """Seconds since the server was last heard (a bookmark counts); infinite when it never was."""
        return math.inf if self._contact is None else self._client.clock.monotonic() - self._contact

    def synced_for(self) -> float:
        """Seconds without an interruption for which `is_synced` has held; zero when it does not hold now."""
        return self._client.clock.monotonic() - self._synced_since if self.is_synced else 0.0

    @property
    def revision(self) -> int:
        """Grows with every change."""
        return self._revision

    async def wait_synced(self) -> None:
        """Returns when `is_synced`."""
        while not self.is_synced:
            await self._stirred.wait()

    async def next_change(self, timeout: float | None = None, *, after: int | None = None) -> bool:
        """Wait until `revision` exceeds `after`; False when `timeout` seconds pass first.

        Without `after`: until something changed since the last call returned; that form is for one waiter only.
        """
        mark = self._reported if after is None else after
        try:
            async with asyncio.timeout(timeout):
                while self._revision <= mark:
                    await self._stirred.wait()
        except TimeoutError:
            return False
        if after is None:
            self._reported = self._revision
        return True

    # --- following
    # -------------------------------------------------------------------------------------------------------

    async def run(self) -> Never:
        """Follow the resource until cancelled. Raises only what `on_change` raises."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                else:
                    await self._watch(self._version)
            except VersionGone as gone:
                self.last_error, self._version = str(gone), None
            except KubeUnavailable as error:
                self.last_error = str(error)
                await self._pause(error.retry_after)
            except KubeError as error:
                # Refused, not served or unreadable: what we hold may be wrong in a way that only a whole list can mend.
                self.last_error, self._version, self._listed = str(error), None, False
                await self._pause(None)

    async def _list(self) -> None:
        selection = self._selection
        listing = await self._client.list(
            selection.resource, namespace=selection.namespace, labels=selection.labels, fields=selection.fields
        )
        self._heard()
        there = {_key(item): item for item in listing.items}
        await self._apply(Seen(item, "", gone=True) for key, item in list(self._items.items()) if key not in there)
        await self._apply(Seen(item, "") for item in listing.items)
        self._version, self._listed, self.last_error = listing.resource_version, True, None
        self.relists += 1
        self._stir()

    async def _watch(self, since: str) -> None:
        started = self._client.clock.monotonic()
        async with open_watch(self._client, self._selection, since=since) as batches:
            self._touch()
            async for batch in batches:
                self._heard()
                self.last_error = None
                await self._apply(batch)
        self._touch()
        if self._version == since and self._contact_after(started) < SHORTEST_WATCH_SECONDS:
            # Ending without a word is normal when the time is over, but a server that hangs up at once must not be
            # called in a tight loop.
            await self._pause(None)

    async def _apply(self, events: Iterable[Seen[T] | Bookmark]) -> None:
        for number, event in enumerate(events, start=1):
            if isinstance(event, Seen):
                self._take(event)
            if event.resource_version:
                self._version = event.resource_version
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _take(self, event: Seen[T]) -> None:
        key, new = _key(event.object), event.object
        old = self._items.get(key)
        if event.gone:
            if old is not None:
                del self._items[key]
                self._report(Change(ChangeKind.DELETED, new, old))
            return
        if old is not None and old.metadata.uid != new.metadata.uid:
            # Same name, another object: the first one was deleted while we were not looking.
            del self._items[key]
            self._report(Change(ChangeKind.DELETED, old, old))
            old = None
        elif old is not None and old.metadata.resource_version == new.metadata.resource_version:
            return
        self._items[key] = new
        self._report(Change(ChangeKind.ADDED if old is None else ChangeKind.MODIFIED, new, old))

    def _report(self, change: Change[T]) -> None:
        self._revision += 1
        self._stir()
        if self._on_change is not None:
            self._on_change(change)

    def _stir(self) -> None:
        """Wake everybody who waits now; who comes later waits for the next one."""
        self._stirred.set()
        self._stirred = asyncio.Event()

    def _touch(self) -> None:
        was_synced = self.is_synced
        self._contact = self._client.clock.monotonic()
        if not was_synced:
            self._synced_since = self._contact
            self._stir()

    def _contact_after(self, moment: float) -> float:
        """Seconds from `moment` to the last contact."""
        return (self._contact or moment) - moment

    def _heard(self) -> None:
        self._touch()
        self._failures = 0

    async def _pause(self, wish: float | None) -> None:
        """Back off exponentially with full jitter; a server's own wish is a lower bound."""
        first, longest = self._client.settings.watch.backoff_seconds
        pause = _RANDOM.uniform(first / 2, min(longest, first * 2 ** min(self._failures, 16)))
        self._failures += 1
        await self._client.clock.sleep(max(pause, wish or 0.0))


def _key(item: HasMeta) -> Key:
    return item.metadata.namespace, item.metadata.name
