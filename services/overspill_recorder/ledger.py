"""Reads the ledger: events by filter, what happened to one thing, and the chain of causes behind an event.

The file is opened read-only, so that questions never disturb the recorder. Events come back as they were published,
with the decoded payload where this version knows the type.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import aiosqlite
from msgspec import Struct

from overspill_events.catalog import CATALOG, Event, kebab
from overspill_events.coding import decode
from overspill_events.errors import EventError
from overspill_recorder import schema
from overspill_recorder.schema import LedgerError

COLUMNS: Final = (
    "position, id, stream_sequence, source, epoch, sequence, type, subject, time, correlation_id, causation_id, payload"
)
CHAIN_LIMIT: Final = 64  # causes of causes; a longer chain would be a loop


class StoredEvent(Struct, frozen=True, kw_only=True):
    """One event of the ledger. `event` is None for a type this version does not know; `payload` is its JSON."""

    position: int
    id: str
    stream_sequence: int
    source: str
    epoch: str
    sequence: int
    type: str
    subject: str
    time: datetime
    correlation_id: str
    causation_id: str | None
    payload: bytes
    event: Event | None

    @property
    def name(self) -> str:
        """The event's name in the catalogue, else its type."""
        return type(self.event).__name__ if self.event is not None else self.type


class LostNumbers(Struct, frozen=True, kw_only=True):
    """Numbers `first` to `last` of a source's epoch that never reached the ledger."""

    source: str
    epoch: str
    first: int
    last: int


class Ledger:
    """Questions to a ledger; `open_ledger` makes it."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def events(
        self,
        *,
        names: Sequence[str] = (),
        services: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        text: str = "",
        limit: int | None = None,
    ) -> tuple[StoredEvent, ...]:
        """Events in order of recording; with `limit` the youngest ones.

        `names` as in the catalogue (GateOpened or gate-opened), `services` by short name, `after` a position, `text`
        anywhere in subject or payload. Raises LedgerError for a name that is not in the catalogue.
        """
        where, parameters = ["position > ?"], [after]  # type: list[str], list[object]
        if names:
            types = [event_type for name in names for event_type in types_named(name)]
            where.append(f"type IN ({_marks(types)})")
            parameters += types
        if services:
            where.append("(" + " OR ".join(["source LIKE ? OR source LIKE ?"] * len(services)) + ")")
            parameters += [
                pattern for service in services for pattern in (f"/overspill/%/{service}", f"/overspill/%/{service}/%")
            ]
        if since is not None:
            where.append("time >= ?")
            parameters.append(schema.text_of(since))
        if until is not None:
            where.append("time < ?")
            parameters.append(schema.text_of(until))
        if text:
            where.append("(instr(subject, ?) OR instr(CAST(payload AS TEXT), ?))")
            parameters += [text, text]
        return await self._select(" AND ".join(where), parameters, limit=limit)

    async def for_pod(self, namespace: str, name: str) -> tuple[StoredEvent, ...]:
        """Everything that names this pod, also as successor or predecessor."""
        return await self._about("pod", name, namespace)

    async def for_node(self, name: str) -> tuple[StoredEvent, ...]:
        """Everything that names this node, as virtual node or as home of a return."""
        return await self._about("node", name, "")

    async def for_workload(self, kind: str, namespace: str, name: str) -> tuple[StoredEvent, ...]:
        """Everything that names this workload or owner; a Deployment's are found by its ReplicaSets' names."""
        if kind.lower() != "deployment":
            return await self._about(kind.lower(), name, namespace)
        pattern = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "-%"
        where = (
            "position IN (SELECT position FROM keys WHERE kind = 'replicaset' AND namespace = ?"
            " AND name LIKE ? ESCAPE '\\' AND instr(substr(name, ?), '-') = 0)"
        )
        return await self._select(where, [namespace, pattern, len(name) + 2])

    async def about(self, kind: str, name: str, *, namespace: str = "") -> tuple[StoredEvent, ...]:
        """Everything that names a thing of another kind: provider, instance, instance-key, clusterqueue, localqueue."""
        return await self._about(kind.lower(), name, namespace)

    async def event(self, event_id: str) -> StoredEvent | None:
        """One event by its id."""
        found = await self._select("id = ?", [event_id])
        return found[0] if found else None

    async def causes(self, event_id: str) -> tuple[StoredEvent, ...]:
        """The event's cause, the cause's cause, … nearest first; ends where the ledger knows no further."""
        chain: list[StoredEvent] = []
        current = await self.event(event_id)
        while current is not None and current.causation_id and len(chain) < CHAIN_LIMIT:
            current = await self.event(current.causation_id)
            if current is not None:
                chain.append(current)
        return tuple(chain)

    async def effects(self, event_id: str) -> tuple[StoredEvent, ...]:
        """The events that name this one as their cause."""
        return await self._select("causation_id = ?", [event_id])

    async def correlated(self, correlation_id: str) -> tuple[StoredEvent, ...]:
        """All events of one story."""
        return await self._select("correlation_id = ?", [correlation_id])

    async def gaps(self) -> tuple[LostNumbers, ...]:
        """Events that were published (or lost in a full buffer) and are not in the ledger."""
        cursor = await self._connection.execute(
            "SELECT source, epoch, first, last FROM gaps ORDER BY source, epoch, first"
        )
        return tuple(LostNumbers(source=s, epoch=e, first=a, last=b) for s, e, a, b in await cursor.fetchall())

    async def count(self, *, names: Sequence[str] = ()) -> int:
        """How many events are recorded, of these names or all."""
        types = [event_type for name in names for event_type in types_named(name)]
        where = f"WHERE type IN ({_marks(types)})" if names else ""
        cursor = await self._connection.execute(f"SELECT count(*) FROM events {where}", types)  # noqa: S608 marks only
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def _about(self, kind: str, name: str, namespace: str) -> tuple[StoredEvent, ...]:
        where = "position IN (SELECT position FROM keys WHERE kind = ? AND name = ? AND namespace = ?)"
        return await self._select(where, [kind, name, namespace])

    async def _select(
        self, where: str, parameters: Sequence[object], *, limit: int | None = None
    ) -> tuple[StoredEvent, ...]:
        order = "ORDER BY position" if limit is None else "ORDER BY position DESC LIMIT ?"
        cursor = await self._connection.execute(
            f"SELECT {COLUMNS} FROM events WHERE {where} {order}",  # noqa: S608 only our own text, values are parameters
            [*parameters, *([] if limit is None else [limit])],
        )
        found = [_stored(row) for row in await cursor.fetchall()]
        return tuple(found if limit is None else reversed(found))


@asynccontextmanager
async def open_ledger(path: Path) -> AsyncIterator[Ledger]:
    """Open an existing ledger for reading. Raises LedgerError for an absent file, no ledger, or another version."""
    async with aiosqlite.connect(_read_only_uri(path), uri=True) as connection:
        try:
            cursor = await connection.execute("PRAGMA user_version")
            row = await cursor.fetchone()
        except aiosqlite.DatabaseError as error:
            raise LedgerError(f"{path} is not a ledger: {error}") from error
        if (version := row[0] if row else 0) != schema.VERSION:
            raise LedgerError(f"{path} has version {version}, this command reads version {schema.VERSION}")
        yield Ledger(connection)


def _read_only_uri(path: Path) -> str:
    if not path.is_file():
        raise LedgerError(f"no ledger at {path}: the recorder writes it (OVERSPILL_RECORDER_PATH)")
    return f"{path.resolve().as_uri()}?mode=ro"


def types_named(name: str) -> tuple[str, ...]:
    """The CloudEvents types (all versions) of a catalogue name. Raises LedgerError naming the accepted names."""
    wanted = kebab(name) if name[:1].isupper() else name
    found = tuple(type_ for type_, cls in CATALOG.items() if kebab(cls.spec.name) == wanted or type_ == name)
    if not found:
        accepted = ", ".join(sorted(cls.spec.name for cls in CATALOG.values()))
        raise LedgerError(f"{name!r} is no event of the catalogue; accepted: {accepted}")
    return found


def _stored(row: aiosqlite.Row) -> StoredEvent:
    payload = row[11].encode() if isinstance(row[11], str) else bytes(row[11])
    return StoredEvent(
        position=row[0],
        id=row[1],
        stream_sequence=row[2],
        source=row[3],
        epoch=row[4],
        sequence=row[5],
        type=row[6],
        subject=row[7],
        time=schema.time_of(row[8]),
        correlation_id=row[9],
        causation_id=row[10],
        payload=payload,
        event=_decoded(row[6], payload),
    )


def _decoded(event_type: str, payload: bytes) -> Event | None:
    try:
        return decode(event_type, payload)
    except EventError:  # a payload that today's decoder refuses stays readable as JSON
        return None


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
