"""The whole loop with a small scenario: every promise kept, seen by a plain NATS client, and explained afterwards."""

import asyncio
import json
import sys
from pathlib import Path

import nats
import pytest

from tests.support.stories import performed

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]


async def overspill(*arguments: str) -> tuple[int, str]:
    """Run a command as a user does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "overspill_cli", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def heard_by_a_plain_client(url: str, ids: set[str], stop: asyncio.Event) -> None:
    """A subscriber that knows nothing of Overspill but its subject root."""
    client = await nats.connect(url)

    async def hear(message: object) -> None:
        ids.add(message.headers["ce-id"])  # type: ignore[attr-defined]

    await client.subscribe("overspill.>", cb=hear)
    await stop.wait()
    await client.close()


async def test_the_whole_loop(tmp_path: Path):
    """Overflow and return, exit 0, and every event of the stream was heard by a plain client and is in the ledger."""
    ids: set[str] = set()
    stop = asyncio.Event()
    async with performed(tmp_path) as demo:
        url = await demo.told_address(r"NATS: (\S+)")
        listening = asyncio.create_task(heard_by_a_plain_client(url, ids, stop))
        code, words, summary = await demo.ended()
        stop.set()
        await asyncio.wait_for(asyncio.gather(listening, return_exceptions=True), 10)
    assert code == 0, words
    assert all(invariant["ok"] for invariant in summary["invariants"])
    assert summary["pods_spilled"] >= 8
    assert summary["pods_returned"] == summary["pods_spilled"]
    assert (summary["gate_openings"], summary["gate_closings"]) == (1, 1)
    assert (summary["orphan_instances"], summary["duplicate_instances"], summary["stream_gaps"]) == (0, 0, 0)
    assert summary["evictions_refused"] >= 1
    await ledger_answers(summary["ledger"], ids)


async def ledger_answers(ledger: str, heard: set[str]) -> None:
    """What was heard is recorded, and the three questions have answers with cause and numbers."""
    code, out = await overspill("events", "--ledger", ledger, "-o", "json", "--limit", "100000")
    assert code == 0
    events = json.loads(out)
    recorded = {event["id"]: event for event in events}
    missed = [
        (event["source"], event["type"])
        for event in events
        if event["id"] not in heard and not _at_start(event, events)
    ]
    assert missed == []
    code, out = await overspill("explain", "node/overspill-external", "--ledger", ledger)
    assert code == 0
    assert "opened: " in out
    assert "free GPUs averaged" in out
    refused = next(event for event in events if "eviction-refused" in event["type"])
    pod = refused["data"]["pod"]
    code, out = await overspill("explain", f"pod/{pod['namespace']}/{pod['name']}", "--ledger", ledger)
    assert code == 0
    assert "It overflowed because the gate of overspill-external opened" in out
    assert "refused: pdb; PodDisruptionBudget" in out
    returned = next(event for event in events if "return-intended" in event["type"])
    evicted = next(
        event for event in events if event["causationid"] == returned["id"] and "pod-evicted" in event["type"]
    )
    assert recorded[evicted["causationid"]]["type"].endswith("return-intended.v1")


def _at_start(event: dict, events: list[dict]) -> bool:
    """Whether an event is older than the plain client can be: before the story's first queued workload."""
    first = next(e["streamSequence"] for e in events if "workload-queued" in e["type"])
    return bool(event["streamSequence"] < first)


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


@pytest.mark.parametrize("victim", ["bridge", "evictor"])
async def test_a_killed_service_keeps_the_promises(tmp_path: Path, victim: str):
    """SIGKILL in the middle, started again by the lab."""
    async with performed(tmp_path, f"--kill={victim}") as demo:
        code, words, summary = await demo.ended()
    assert code == 0, words
    assert summary["killed"] == victim
    assert f"killed {victim}" in demo.told


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
