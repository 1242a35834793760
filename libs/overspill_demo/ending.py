"""How a lab or a story ends for the person at the terminal: one word at once, and what stays of its files.

It must not know what is played.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from overspill_demo.arrangement import ArrangementError
from overspill_lab.lab import LEDGER
from overspill_lab.programs import LabError

LOGS: Final = "*.log"
T = TypeVar("T")


@contextlib.contextmanager
def place(given: Path | None, *, prefix: str) -> Iterator[Path]:
    """The folder that was given, left as it is, or a temporary one, of which the ledger and the logs stay.

    Without a ledger nothing of it stays, unless a LabError has named a log. Raises ArrangementError for a folder that
    cannot be had.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ArrangementError(f"--folder {given}: it is a file, give a folder") from None
        except OSError as error:
            raise ArrangementError(f"--folder {given}: cannot be made: {error.strerror}") from error
        yield given.absolute()  # it is told to other shells
        return
    made = Path(tempfile.mkdtemp(prefix=prefix))
    named_a_log = False
    try:
        yield made
    except LabError:
        named_a_log = True
        raise
    finally:
        _tidy(made, keep=named_a_log or (made / LEDGER).exists())


async def told_when_stopped(work: Coroutine[Any, Any, T], say: Callable[[str], None]) -> T:
    """Do the work; when this is cancelled (Ctrl-C, SIGTERM) say so at once and wait for the work's orderly end."""
    working = asyncio.create_task(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        say("stopping")
        working.cancel()
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError:  # once more: now it is to end at once
            working.cancel()
            await asyncio.wait({working})
        if not working.cancelled() and (failure := working.exception()) is not None:
            raise failure from None
        raise


def where_the_ledger_is(folder: Path) -> str:
    """For the last line of a lab or story that was stopped."""
    ledger = folder / LEDGER
    return f"stopped; the ledger: {ledger}" if ledger.exists() else "stopped; nothing had been recorded yet"


def _tidy(folder: Path, *, keep: bool) -> None:
    if not keep:
        shutil.rmtree(folder)
        return
    kept = {*folder.glob(f"{LEDGER}*"), *folder.glob(LOGS)}
    for entry in folder.iterdir():
        if entry in kept:
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
