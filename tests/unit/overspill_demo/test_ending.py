"""What a lab or a story leaves of its files, and how it says that it stops."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from overspill_demo.arrangement import ArrangementError
from overspill_demo.ending import place, told_when_stopped, where_the_ledger_is
from overspill_lab.programs import LabError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary folders that has nobody else's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()


def ends_with(error: BaseException) -> None:
    with place(None, prefix="x-") as folder:
        fill(folder, "bridge.log", "nats/messages")
        raise error


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_of_a_temporary_folder_the_ledger_and_the_logs_stay(temporary: Path) -> None:
    with place(None, prefix="x-") as folder:
        assert folder.parent == temporary
        fill(folder, "ledger.db", "ledger.db-wal", "bridge.log", "nats/messages", "kubeconfig", "nodes.json")
    assert left(folder) == {"ledger.db", "ledger.db-wal", "bridge.log"}
    assert {path.name for path in folder.iterdir()} == left(folder)
    assert where_the_ledger_is(folder) == f"stopped; the ledger: {folder}/ledger.db"


def test_without_a_ledger_nothing_stays(temporary: Path) -> None:
    assert where_the_ledger_is(temporary) == "stopped; nothing had been recorded yet"
    with pytest.raises(KeyboardInterrupt):
        ends_with(KeyboardInterrupt())
    assert list(temporary.iterdir()) == []


def test_a_log_that_an_error_has_named_stays(temporary: Path) -> None:
    with pytest.raises(LabError):
        ends_with(LabError("the end of bridge.log"))
    assert left(temporary) == {"bridge.log"}


def test_a_folder_that_was_given_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made absolute, since other shells are told of it."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "given", "theirs")
    with place(Path("given"), prefix="x-") as folder:
        assert folder == tmp_path / "given"
    assert left(tmp_path) == {"theirs"}


async def test_a_stop_is_said_at_once_and_once_and_waits_for_the_orderly_end() -> None:
    order: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("ended")

    stopping = asyncio.create_task(told_when_stopped(work(), order.append))
    await begun.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert order == ["stopping", "ended"]


async def test_what_fails_while_stopping_is_told() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            raise LabError("it does not end")

    stopping = asyncio.create_task(told_when_stopped(work(), print))
    await begun.wait()
    stopping.cancel()
    with pytest.raises(LabError, match="does not end"):
        await stopping


async def test_a_second_stop_reaches_the_work_too() -> None:
    begun, cleaning = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    stopping = asyncio.create_task(told_when_stopped(work(), print))
    for moment in (begun, cleaning):
        await moment.wait()
        stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(ArrangementError, match=r"--folder .*notes\.txt: it is a file"), place(file, prefix="x-"):
        pytest.fail("it began")
    assert file.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(ArrangementError, match=r"--folder .*: cannot be made: Not a directory"):
        place(file / "lab", prefix="x-").__enter__()
