"""`overspill lab` and `demo` as a newcomer meets them: what to copy, how to stop, and what is left then."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import overspill

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

NODES = [{"name": "home-1", "cpu": "32", "memory": "128Gi", "gpus": 4, "model": "G"}]
VIRTUAL = "overspill-external"


class Command:
    """A running command, its words so far, and the temporary folder it may use."""

    def __init__(self, process: asyncio.subprocess.Process, temporary: Path) -> None:
        self.process = process
        self.temporary = temporary
        self.told = ""

    async def until(self, pattern: str) -> None:
        """Read stderr until a line matches."""
        assert self.process.stderr is not None
        while not re.search(pattern, self.told):
            line = await self.process.stderr.readline()
            assert line, f"it ended before it said {pattern!r}:\n{self.told}"
            self.told += line.decode()

    async def stopped_by(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        _, err = await self.process.communicate()
        self.told += err.decode()
        return self.process.returncode or 0


def _hear_interrupts() -> None:
    """As at a terminal: a shell that runs the tests in the background has them, and theirs, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.asynccontextmanager
async def started(tmp_path: Path, *arguments: str) -> AsyncIterator[Command]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "overspill_cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary)},
        preexec_fn=_hear_interrupts,
    )
    try:
        yield Command(process, temporary)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def test_what_the_lab_prints_lets_every_command_work_without_options(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(NODES))
    async with started(tmp_path, "lab", f"--nodes={nodes}") as lab:
        await lab.until("ready; Ctrl-C stops it")
        exported = [shlex.split(line)[1] for line in lab.told.splitlines() if line.startswith("export ")]
        env = dict(one.split("=", 1) for one in exported)
        code, out, err = await overspill("doctor", env=env)
        assert (code, err) == (0, ""), out
        code, out, err = await overspill("gate", VIRTUAL, env=env)
        assert (code, err) == (0, "")
        assert re.search(r"Z gate of overspill-external should be", out), out
        code, out, err = await overspill("events", "--type", "NodeRegistered", env=env)
        assert (code, err, len(out.splitlines())) == (0, "", 2)
        code, out, _ = await overspill("explain", f"node/{VIRTUAL}", env=env)
        assert code == 0, out
        assert await lab.stopped_by(signal.SIGTERM) == 143
    assert re.findall("stopping|the bus", lab.told) == ["stopping"]
    (folder,) = lab.temporary.iterdir()
    assert lab.told.endswith(f"stopping\nstopped; the ledger: {folder}/ledger.db\n")
    assert {path.suffix for path in folder.iterdir()} == {".log", ".db"}
    code, out, _ = await overspill("events", "--type", "NodeRegistered", env=env)
    assert (code, len(out.splitlines())) == (0, 2), "what stays of the ledger is whole"


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_stopped_demo_says_so_once_and_where_the_ledger_is(
    tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    async with started(tmp_path, "demo") as demo:
        await demo.until("the story begins")
        assert await demo.stopped_by(number) == expected
    assert re.findall("stopping|the bus|Traceback", demo.told) == ["stopping"]
    (folder,) = demo.temporary.iterdir()
    assert f"stopped; the ledger: {folder}/ledger.db" in demo.told.splitlines()[-1]


async def test_a_demo_stopped_before_anything_was_recorded_leaves_nothing(tmp_path: Path) -> None:
    async with started(tmp_path, "demo") as demo:
        await demo.until("starting the lab in")
        assert await demo.stopped_by(signal.SIGINT) == 130
    assert list(demo.temporary.iterdir()) == []
    assert "nothing had been recorded yet" in demo.told.splitlines()[-1]
