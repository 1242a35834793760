"""Writes batches of events into the ledger: all of a batch or nothing, each event once.

The ids of events make writing idempotent, so a batch that is delivered again after a crash changes nothing. The
judgement of missing numbers is written in the same transaction as the events it rests on. It must not know NATS: it is
handed events and says how far the ledger reaches.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiosqlite
from msgspec import Struct

from overspill_bus import Recorded
from overspill_events.envelope import Envelope
from overspill_recorder import schema
from overspill_recorder.gaps import FIRST_NUMBER, Gap, Numbers, starting_at
from overspill_recorder.keys import keys_of

# Thirteen digits reach the year 2286. Others write epochs, too: any text may stand there.
EPOCH: Final = re.compile(r"(?P<milliseconds>[0-9]{1,13})-[0-9a-f]{4}")


class Written(Struct, frozen=True, kw_only=True):
    """What one batch changed."""

    stored: int  # events that were new
    repeated: int  # events that the ledger had already
    missing: int  # numbers missing over all sources, after the batch


class Reach(Struct, frozen=True, kw_only=True):
    """How far the ledger goes: its youngest event's place in the stream and id; (0, "") when it is empty."""

    stream_sequence: int = 0
    event_id: str = ""


class LedgerWriter:
    """The one writer of a ledger file; `open_for_writing` makes it."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def append(self, batch: Sequence[Recorded]) -> Written:
        """Store the new events of `batch`. Either everything is committed when this returns, or nothing was stored."""
        await self._connection.execute("BEGIN IMMEDIATE")
        try:
            written = await self._append(batch)
        except BaseException:
            await self._connection.rollback()
            raise
        await self._connection.commit()
        return written

    async def reach(self) -> Reach:
        """The youngest event, to compare with how far the stream's consumer is."""
        row = await self._row("SELECT stream_sequence, id FROM events ORDER BY position DESC LIMIT 1")
        return Reach(stream_sequence=row[0], event_id=row[1]) if row else Reach()

    async def _append(self, batch: Sequence[Recorded]) -> Written:
        known = await self._known_ids([recorded.envelope.id for recorded in batch])
        new = {r.envelope.id: r for r in batch if r.envelope.id not in known}  # one delivery of each
        row = await self._row("SELECT coalesce(max(position), 0) FROM events")
        first = (row[0] if row else 0) + 1
        placed = list(enumerate(new.values(), start=first))
        await self._connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_event_row(position, recorded) for position, recorded in placed],
        )
        await self._connection.executemany(
            "INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?, ?, ?)",
            [row for position, recorded in placed for row in _key_rows(position, recorded)],
        )
        await self._judge_numbers([recorded.envelope for recorded in new.values()])
        # total() counts in floating point: what strangers number wildly must not overflow an integer sum.
        missing = await self._row("SELECT total(last - first + 1) FROM gaps")
        return Written(stored=len(new), repeated=len(batch) - len(new), missing=int(missing[0]) if missing else 0)

    async def _known_ids(self, ids: Sequence[str]) -> set[str]:
        marks = ", ".join("?" * len(ids))
        cursor = await self._connection.execute(f"SELECT id FROM events WHERE id IN ({marks})", ids)  # noqa: S608 marks only
        return {row[0] for row in await cursor.fetchall()}

    async def _judge_numbers(self, envelopes: Sequence[Envelope]) -> None:
        by_source: dict[tuple[str, str], list[int]] = {}
        for envelope in envelopes:
            if envelope.source:  # empty: a message whose headers could not be read; it has no number
                by_source.setdefault((envelope.source, envelope.epoch), []).append(envelope.sequence)
        for (source, epoch), sequences in by_source.items():
            numbers = await self._numbers(source, epoch) or await self._first_numbers(epoch, sequences[0])
            for sequence in sequences:
                numbers = numbers.seen(sequence)
            await self._store_numbers(source, epoch, numbers)

    async def _numbers(self, source: str, epoch: str) -> Numbers | None:
        key = (source, epoch)
        row = await self._row("SELECT highest FROM sources WHERE source = ? AND epoch = ?", key)
        if row is None:
            return None
        cursor = await self._connection.execute(
            "SELECT first, last FROM gaps WHERE source = ? AND epoch = ? ORDER BY first", key
        )
        return Numbers(highest=row[0], gaps=tuple(Gap(first=a, last=b) for a, b in await cursor.fetchall()))

    async def _first_numbers(self, epoch: str, sequence: int) -> Numbers:
        """A source that starts above 1 lost events, unless they may have left the stream before the ledger began."""
        oldest = await self._row("SELECT stream_sequence, time FROM events ORDER BY position LIMIT 1")
        started = epoch_start(epoch)
        whole = oldest is None or oldest[0] == FIRST_NUMBER
        if whole or (oldest is not None and started is not None and schema.text_of(started) >= oldest[1]):
            return Numbers()
        return starting_at(sequence)

    async def _store_numbers(self, source: str, epoch: str, numbers: Numbers) -> None:
        await self._connection.execute(
            "INSERT OR REPLACE INTO sources VALUES (?, ?, ?)", (source, epoch, numbers.highest)
        )
        await self._connection.execute("DELETE FROM gaps WHERE source = ? AND epoch = ?", (source, epoch))
        await self._connection.executemany(
            "INSERT INTO gaps VALUES (?, ?, ?, ?)", [(source, epoch, gap.first, gap.last) for gap in numbers.gaps]
        )

    async def _row(self, query: str, parameters: Iterable[str] = ()) -> aiosqlite.Row | None:
        cursor = await self._connection.execute(query, tuple(parameters))
        return await cursor.fetchone()


@asynccontextmanager
async def open_for_writing(path: Path) -> AsyncIterator[LedgerWriter]:
    """Open the ledger at `path`, made when absent. Raises LedgerError for a file that is no ledger of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        try:
            await _prepare(connection, path)
        except aiosqlite.DatabaseError as error:
            raise schema.LedgerError(f"{path} is not a ledger ({error}): move it away, it is built again") from error
        yield LedgerWriter(connection)


async def _prepare(connection: aiosqlite.Connection, path: Path) -> None:
    cursor = await connection.execute("PRAGMA user_version")
    row = await cursor.fetchone()
    version = row[0] if row else 0
    if version not in {0, schema.VERSION}:
        raise schema.LedgerError(
            f"{path} has version {version}, this recorder writes {schema.VERSION}: move it away, it is built again"
        )
    await connection.execute("PRAGMA journal_mode = WAL")
    # An acknowledged event must be in the file even after a power loss: with NORMAL the last commits could be missing.
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.executescript(schema.CREATE)


def epoch_start(epoch: str) -> datetime | None:
    """When the process with this epoch ("<start in ms>-<4 hex>") started; None for an epoch of another form."""
    found = EPOCH.fullmatch(epoch)
    return datetime.fromtimestamp(int(found["milliseconds"]) / 1000, tz=UTC) if found else None


def _event_row(position: int, recorded: Recorded) -> tuple[object, ...]:
    envelope = recorded.envelope
    return (
        position,
        envelope.id,
        envelope.stream_sequence or 0,
        envelope.source,
        envelope.epoch,
        envelope.sequence,
        envelope.type,
        envelope.subject,
        schema.text_of(envelope.time),
        envelope.correlation_id,
        envelope.causation_id,
        _text_or_bytes(recorded.data),
    )


def _text_or_bytes(data: bytes) -> str | bytes:
    """Text, so that SQLite's JSON functions work on it; bytes of an unknown type that are no text stay as they are."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _key_rows(position: int, recorded: Recorded) -> list[tuple[object, ...]]:
    if recorded.event is None:  # a type of a later version: kept whole, found by type and subject only
        return []
    return [(k.kind, k.namespace, k.name, k.uid, int(k.is_subject), position) for k in keys_of(recorded.event)]
