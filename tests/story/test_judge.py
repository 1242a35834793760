"""The judge of the demo: a broken promise is named and ends with 1, input that cannot be used with 2."""

import asyncio
import sys
from pathlib import Path

import nats
import pytest

from tests.support.stories import performed

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]


async def remove_an_event(url: str) -> None:
    """Take the first InstanceCreated out of the record, as a careless administrator could."""
    client = await nats.connect(url)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        heard.put_nowait(message.subject)  # type: ignore[attr-defined]

    await client.subscribe("overspill.v1.*.bridge.instance-created.>", cb=hear)
    last = await client.jetstream().get_last_msg("EVENTS", await heard.get())
    assert last.seq is not None
    await asyncio.sleep(1)  # everybody who follows has read it
    await client.jetstream().delete_msg("EVENTS", last.seq)
    await client.close()


async def test_broken_promises_are_named_and_end_with_1(tmp_path: Path):
    """An evictor that only observes brings nobody home, and an event is removed: the demo must say so and fail."""
    async with performed(tmp_path, "--setting=evictor:OVERSPILL_MODE=observe", "--deadline=45") as demo:
        url = await demo.told_address(r"NATS: (\S+)")
        async with asyncio.timeout(60):
            await remove_an_event(url)
        code, words, summary = await demo.ended()
    broken = {invariant["name"] for invariant in summary["invariants"] if not invariant["ok"]}
    assert code == 1
    assert "spilled-pods-came-home-or-finished" in broken
    assert "no-instance-lives" in broken
    assert {"no-gaps-in-the-stream", "ledger-equals-stream"} <= broken
    assert "BROKEN spilled-pods-came-home-or-finished" in words
    assert summary["evictions"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--setting=nobody:OVERSPILL_X=1"], "SERVICE:OVERSPILL_NAME=VALUE"),
        (["--scenario=/nonexistent.json"], "cannot be read"),
        (["--kill=kubelet"], "kubelet"),
    ],
)
async def test_bad_input_is_refused_before_anything_starts(arguments: list[str], said: str):
    """Exit code 2 and one sentence."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "overspill_cli",
        "demo",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 2
    assert said in out.decode()
