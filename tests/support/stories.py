"""A story small enough for the test suite: 24 GPUs at home, 30 research jobs, 16 inference replicas, half a minute."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

SHAPE = {"cpu_milli": 1000, "memory_mib": 1024, "gpus": 1}
SETTINGS = ("decider:OVERSPILL_DECIDER_LOW_MARK=1", "decider:OVERSPILL_DECIDER_HIGH_MARK=12")


def small_scenario() -> dict[str, Any]:
    """As a scenario file holds it."""
    scalings = [{"at": 0, "replicas": 2}, *({"at": 4 + 0.2 * more, "replicas": 2 + more} for more in range(1, 7))]
    return {
        "name": "small",
        "source": "made for the tests",
        "licence": "Apache-2.0",
        "cut": "none",
        "nodes": [
            {"name": f"home-{number}", "cpu_milli": 32000, "memory_mib": 131072, "gpus": 4, "model": "G"}
            for number in range(6)
        ],
        "research": [{"name": f"research-{number}", "shape": SHAPE, "run_seconds": 6} for number in range(30)],
        "inference": [
            {"name": f"inference-{letter}", "shape": SHAPE, "scalings": scalings, "max_unavailable": 2}
            for letter in "ab"
        ],
        "research_at": 1,
        "queue_opens_at": 2,
        "freeze": {"deployment": "inference-b", "lifted_after_closing_seconds": 5},
    }


def patient_scenario() -> dict[str, Any]:
    """The same for a machine of any speed: home stays full until the gate has opened and pods overflowed."""
    jobs = [{"name": f"research-{number}", "shape": SHAPE, "run_seconds": 20} for number in range(22)]
    return small_scenario() | {"research": jobs}


class Performance:
    """A running `overspill demo` as a user would see it: output, exit code and the JSON it writes."""

    def __init__(self, process: asyncio.subprocess.Process, summary: Path) -> None:
        self.process = process
        self._summary = summary
        self.told = ""

    async def told_address(self, pattern: str) -> str:
        """The first group of `pattern` in what the demo says on stderr, as soon as it says it."""
        assert self.process.stderr is not None
        while not (found := re.search(pattern, self.told)):
            line = await self.process.stderr.readline()
            assert line, f"the demo ended before it said {pattern!r}:\n{self.told}"
            self.told += line.decode()
        return found[1]

    async def ended(self) -> tuple[int, str, dict[str, Any]]:
        """Exit code, stdout and the summary."""
        out, err = await self.process.communicate()
        self.told += err.decode()
        assert self._summary.exists(), f"no summary was written:\n{out.decode()}\n{self.told}"
        return self.process.returncode or 0, out.decode(), json.loads(self._summary.read_text())


@asynccontextmanager
async def performed(
    tmp_path: Path, *arguments: str, scenario: dict[str, Any] | None = None
) -> AsyncIterator[Performance]:
    """Start `overspill demo` with this scenario, otherwise the small one; it is ended with the block."""
    file, summary = tmp_path / "scenario.json", tmp_path / "summary.json"
    file.write_text(json.dumps(scenario or small_scenario()))
    options = [f"--setting={setting}" for setting in SETTINGS]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "overspill_cli",
        "demo",
        f"--scenario={file}",
        f"--json={summary}",
        f"--folder={tmp_path / 'lab'}",
        *options,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Performance(process, summary)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()
