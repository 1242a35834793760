"""Tables for people, JSON for programs, and the exit codes that both can rely on."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from overspill_cli.narrating import narrate
from overspill_events.moments import stamp
from overspill_recorder.ledger import StoredEvent


class Exit(IntEnum):
    """Exit codes of every command."""

    FINE = 0
    BROKEN = 1  # a check, an invariant or the command itself failed
    USAGE = 2  # arguments, settings or files that cannot be used
    INTERRUPTED = 130  # by Ctrl-C
    TERMINATED = 143  # by SIGTERM


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
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line}\n" for line in lines((columns, *rows)))
        return
    shown = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for row in rows:
        shown.add_row(*row)
    Console(highlight=False, markup=False).print(shown)


def lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows for a pipe, which has no width: each on one line, so that grep finds what it looks for, none with blanks at
    its end.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def event_row(event: StoredEvent) -> tuple[str, str, str, str]:
    """An event as a row of a table."""
    sentence = narrate(event.event) if event.event is not None else event.payload.decode(errors="replace")
    return stamp(event.time), event.source.rsplit("/", 1)[-1], event.name, sentence


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
