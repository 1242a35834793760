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
    turns = (
        "a change freeze on inference-b",
        "the gate opens",
        "the first overflow",
        "the gate closes",
        "the first return",
    )
    assert sorted(turns, key=demo.told.index) == list(turns)
    assert "research has ended: 30 jobs are done" in demo.told
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
