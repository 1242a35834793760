"""Tables for people, JSON for programs, and the exit codes that both can rely on."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from itertools import zip_longest
from typing import Any, Final

import msgspec
from rich.cells import cell_len
from rich.console import Console

from overspill_cli.narrating import narrate
from overspill_events.moments import stamp
from overspill_recorder.ledger import StoredEvent
from overspill_runtime.terminal import columns_of, wrapped

PROSE: Final = 36  # columns in which a sentence can be read
SHORT: Final = 20  # of a last column that is no prose: not worth a line of its own
BELOW: Final = 4
COMMANDS: Final = ("kubectl ", "overspill ")


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, with_next_step: bool = False) -> None:
    """A plain table; NO_COLOR and pipes are honoured, nothing is cut off. `with_next_step`: the last column says what
    to do next, and has lines of its own on a terminal.
    """
    whole, width = (columns, *rows), columns_of(sys.stdout)
    if width is None:
        sys.stdout.writelines(f"{line}\n" for line in lines(whole))
        return
    steps = [row[-1] for row in whole[1:]] if with_next_step else []
    head, *shown = blocks([row[:-1] for row in whole] if with_next_step else whole, width)
    console = Console(highlight=False, markup=False)
    console.print("\n".join(head), style="bold", soft_wrap=True)
    for block, step in zip_longest(shown, steps, fillvalue=""):
        sys.stdout.writelines(f"{line}\n" for line in (*block, *step_lines(step, width)))


def blocks(rows: Sequence[Sequence[str]], width: int) -> Iterator[Sequence[str]]:
    """The lines of each row on a terminal: the last column is broken between words, beside the others where there is
    room for prose, below them otherwise.
    """
    whole, others = list(lines(rows)), list(lines([row[:-1] for row in rows]))
    start = len(whole[0]) - len(rows[0][-1])
    longest, room = max(cell_len(row[-1]) for row in rows), width - start
    if longest <= max(room, SHORT):
        yield from ([line] for line in whole)
    elif room >= PROSE:
        for row, other in zip(rows, others, strict=True):
            first, *rest = wrapped(row[-1], room)
            yield [f"{other}{' ' * (start - cell_len(other))}{first}".rstrip(), *(" " * start + part for part in rest)]
    else:
        yield whole[:1]
        for row, other in zip(rows[1:], others[1:], strict=True):
            yield [other, *(wrapped(row[-1], width, indent=BELOW, hanging=BELOW) if row[-1] else ())]


def step_lines(step: str, width: int) -> Iterator[str]:
    """What to do next, below what it is about; a command is one line however long it is, for it will be copied."""
    if step.startswith(COMMANDS):
        yield " " * BELOW + step
    elif step:
        yield from wrapped(step, width, indent=BELOW, hanging=BELOW)


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
    return stamp(event.time, to="milliseconds"), event.source.rsplit("/", 1)[-1], event.name, sentence


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
