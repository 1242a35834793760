"""Tables for people, JSON for programs, and the exit codes that both can rely on."""

import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from overspill_cli.narrating import narrate
from overspill_recorder.ledger import StoredEvent

PIPE_WIDTH: Final = 4000


class Exit(IntEnum):
    """Exit codes of every command."""

    FINE = 0
    BROKEN = 1  # a check, an invariant or the command itself failed
    USAGE = 2  # arguments, settings or files that cannot be used
    INTERRUPTED = 130


class Format(StrEnum):
    """How a command prints."""

    table = "table"
    json = "json"


class UsageError(Exception):
    """Something the caller can put right; the message says what to do next."""


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) + b"\n")
    sys.stdout.flush()


def print_json_line(value: Any) -> None:
    """One JSON document on one line, for streams."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A plain table; NO_COLOR and pipes are honoured, and nothing is cut off in a pipe."""
    shown = Table(*columns, box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, show_edge=False)
    for row in rows:
        shown.add_row(*row)
    # A pipe has no width: rows stay on one line there, so that grep finds what it looks for.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(shown)


def event_row(event: StoredEvent) -> tuple[str, str, str, str]:
    """An event as a row of a table."""
    sentence = narrate(event.event) if event.event is not None else event.payload.decode(errors="replace")
    return f"{event.time:%H:%M:%S.%f}"[:-3], event.source.rsplit("/", 1)[-1], event.name, sentence


def event_document(event: StoredEvent) -> dict[str, Any]:
    """An event as a JSON document: the CloudEvents attributes and the payload under `data`."""
    return {
        "id": event.id,
        "type": event.type,
        "source": event.source,
        "subject": event.subject,
        "time": event.time,
        "epoch": event.epoch,
        "sequence": event.sequence,
        "streamSequence": event.stream_sequence,
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "data": msgspec.Raw(event.payload),
    }
