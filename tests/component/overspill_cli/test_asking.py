"""Questions to a ledger, as people and programs ask them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from overspill_bus import Recorded
from overspill_events import Envelope, catalog, encode
from overspill_events.catalog import Event
from overspill_recorder.writer import open_for_writing
from tests.support.commands import overspill
from tests.support.terminals import on_a_terminal

START = datetime(2030, 1, 1, microsecond=250_000, tzinfo=UTC)
JOB = catalog.WorkloadRef(kind="Job", namespace="research", name="train", uid="u")
MEMORY = 32.0 * 1024**3


def recorded(event: Event, sequence: int) -> Recorded:
    envelope = Envelope(
        id=f"e-{sequence}", type=event.spec.type, source="/overspill/lab/admitter", subject="overspill.v1.x",
        time=START + timedelta(seconds=sequence), epoch="1893456000000-abcd", sequence=sequence, correlation_id="c",
        stream_sequence=sequence,
    )  # fmt: skip
    return Recorded(envelope=envelope, event=event, data=encode(event), redelivered=0, stored_at=envelope.time)


@pytest.fixture
async def ledger(tmp_path: Path) -> str:
    """A Job is queued and finishes three times over."""
    path = tmp_path / "ledger.db"
    events: list[Event] = [catalog.WorkloadQueued(workload=JOB, local_queue="training", requests={"memory": MEMORY})]
    events += [catalog.WorkloadFinished(workload=JOB, outcome="succeeded")] * 3
    async with open_for_writing(path) as writer:
        await writer.append([recorded(event, at) for at, event in enumerate(events, start=1)])
    return str(path)


async def test_a_list_that_was_cut_says_so(ledger: str) -> None:
    """On stderr, so that what is piped stays a table or JSON; all of it is told without a word."""
    code, out, err = await overspill("events", "--ledger", ledger, "--limit", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "TIME",
        "2030-01-01T00:00:03.250Z",
        "2030-01-01T00:00:04.250Z",
    ]
    assert (await overspill("events", "--ledger", ledger, "--since", "2030-01-01T00:00:04.250Z"))[1].count("\n") == 2
    assert err == "the youngest 2 events are shown, there are older ones: --limit 20\n"
    code, out, err = await overspill("events", "--ledger", ledger, "--limit", "3", "-o", "json")
    assert (code, [event["sequence"] for event in json.loads(out)]) == (0, [2, 3, 4])
    assert err.startswith("the youngest 3 events")
    for limit in ("4", str(10**30)):
        code, out, err = await overspill("events", "--ledger", ledger, "--limit", limit)
        assert (code, len(out.splitlines()), err) == (0, 5, "")


@pytest.mark.parametrize("limit", ["0", "-1"])
async def test_a_limit_that_shows_nothing_is_refused(ledger: str, limit: str) -> None:
    code, out, err = await overspill("events", "--ledger", ledger, f"--limit={limit}")
    assert (code, out, err) == (2, "", f"--limit {limit}: give a number above 0\n")


async def test_tables_have_units_and_no_blanks_at_the_end_and_json_has_the_figures(ledger: str) -> None:
    code, out, _ = await overspill("events", "--ledger", ledger)
    assert code == 0
    assert "memory 32Gi" in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    code, out, _ = await overspill("events", "--ledger", ledger, "-o", "json", "--type", "WorkloadQueued")
    assert (code, json.loads(out)[0]["data"]["requests"]["memory"]) == (0, MEMORY)


async def test_explain_says_in_which_namespace_it_looked(ledger: str) -> None:
    """The one of the name or the option; without either the one that --help names."""
    code, out, _ = await overspill("explain", "job/train", "--ledger", ledger)
    assert (code, out) == (1, "The ledger knows nothing about workload default/train.\n")
    code, out, _ = await overspill("explain", "job/train", "-n", "research", "--ledger", ledger)
    assert code == 0, out
    code, out, _ = await overspill("explain", "--help")
    assert "[default: default]" in out


@pytest.mark.parametrize("command", ["demo", "events", "explain", "doctor", "gate open", "pause", "uninstall"])
async def test_help_shows_only_what_can_be_used(command: str) -> None:
    """No flags that nobody declared, no defaults that mean nothing."""
    code, out, _ = await overspill(*command.split(), "--help")
    assert code == 0
    for noise in ("--empty-", "--no-", "[default: ()]", "[default: None]", "[default: False]", '[default: ""]'):
        assert noise not in out


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_on_a_terminal_no_word_is_broken_and_nothing_is_lost(ledger: str, columns: int) -> None:
    """Whatever its width: the words are those that a pipe gets, in their order."""
    for arguments in (("events",), ("explain", "job/train", "-n", "research")):
        _, piped, _ = await overspill(*arguments, "--ledger", ledger)
        code, lines = await on_a_terminal(*arguments, "--ledger", ledger, columns=columns)
        assert code == 0
        assert " ".join(lines).split() == piped.split()
        assert all(len(line) <= max(columns, 60) for line in lines)
        assert columns < 200 or len(lines) == len(piped.splitlines())


async def test_doctor_on_a_terminal_tells_addresses_whole() -> None:
    env = {"OVERSPILL_NATS_URL": "nats://127.0.0.1:1", "OVERSPILL_KUBECONFIG": "/nonexistent/somewhere/kubeconfig"}
    code, lines = await on_a_terminal("doctor", columns=80, env=env)
    assert code == 1
    assert all(len(line) <= 80 for line in lines)
    words = {word.strip("?:,") for word in " ".join(lines).split()}
    assert {"OVERSPILL_NATS_URL=nats://127.0.0.1:1", "/nonexistent/somewhere/kubeconfig"} <= words
    assert not [word for word in words if "…" in word]
