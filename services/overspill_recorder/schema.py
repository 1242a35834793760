"""The ledger's tables, declared once for the writer and the readers.

`PRAGMA user_version` carries the version. Since the file is a read model, a ledger of another version is not migrated
but built again from the stream.
"""

from datetime import UTC, datetime
from typing import Final

VERSION: Final = 1

# position: order of recording. stream_sequence starts again when somebody makes the stream anew, position does not.
CREATE: Final = f"""
CREATE TABLE IF NOT EXISTS events (
  position INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  stream_sequence INTEGER NOT NULL,
  source TEXT NOT NULL,
  epoch TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  time TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  causation_id TEXT,
  payload TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_type ON events (type, position);
CREATE INDEX IF NOT EXISTS events_by_time ON events (time);
CREATE INDEX IF NOT EXISTS events_by_correlation ON events (correlation_id);
CREATE INDEX IF NOT EXISTS events_by_causation ON events (causation_id) WHERE causation_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS keys (
  kind TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  uid TEXT NOT NULL,
  is_subject INTEGER NOT NULL,
  position INTEGER NOT NULL REFERENCES events (position),
  PRIMARY KEY (kind, name, namespace, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (
  source TEXT NOT NULL,
  epoch TEXT NOT NULL,
  highest INTEGER NOT NULL,
  PRIMARY KEY (source, epoch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps (
  source TEXT NOT NULL,
  epoch TEXT NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (source, epoch, first)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""

_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"  # UTC, fixed width: sorts as text


class LedgerError(Exception):
    """The file is not a ledger that this version can read; says which file and what to do."""


def text_of(time: datetime) -> str:
    """The ledger's form of a time."""
    return time.astimezone(UTC).strftime(_TIME_FORMAT)


def time_of(text: str) -> datetime:
    """The time that `text_of` wrote."""
    return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
