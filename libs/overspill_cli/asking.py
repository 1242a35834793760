"""`overspill events` and `overspill explain`: questions to the ledger."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from overspill_cli.explaining import Answer, explain_node, explain_pod, explain_workload
from overspill_cli.output import Exit, Format, UsageError, event_document, event_row, print_json, table
from overspill_recorder.ledger import Ledger, open_ledger
from overspill_runtime.terminal import tell

UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
GATE_EVENTS: Final = ("GateDecided", "GateOpened", "GateClosed")
POD_KINDS: Final = ("pod", "pods", "po")
NODE_KINDS: Final = ("node", "nodes", "no")
WORKLOAD_KINDS: Final = ("workload", "workloads", "job", "jobs")


def moment(text: str, *, now: datetime) -> datetime:
    """15m, 2h, 1d ago, or an ISO 8601 time; in UTC. Raises UsageError."""
    try:
        if text[-1:] in UNITS and text[:-1].isdecimal():
            return now - timedelta(**{UNITS[text[-1]]: int(text[:-1])})
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except ValueError:
        raise UsageError(f"{text!r} is no time: give 30s, 15m, 2h, 1d or an ISO 8601 time") from None
    except OverflowError:
        raise UsageError(f"{text!r} is not within the years 1 to 9999") from None


async def events(
    path: Path,
    *,
    names: tuple[str, ...],
    services: tuple[str, ...],
    since: str | None,
    text: str,
    limit: int,
    output: Format,
) -> Exit:
    """Print the ledger's events, the youngest `limit` of those that match, oldest first.

    Raises UsageError for a limit that shows nothing and a time that is none, LedgerError.
    """
    if limit <= 0:
        raise UsageError(f"--limit {limit}: give a number above 0")
    async with open_ledger(path) as ledger:
        start = moment(since, now=datetime.now(UTC)) if since else None
        most = min(limit, sys.maxsize - 1)  # one more than asked for tells whether there are older ones
        found = await ledger.events(names=names, services=services, since=start, text=text, limit=most + 1)
        gaps = await ledger.gaps()
    older, found = found[:-most], found[-most:]
    if output is Format.json:
        print_json([event_document(event) for event in found])
    else:
        table(("TIME", "SERVICE", "EVENT", "WHAT"), (event_row(event) for event in found))
        for gap in gaps:
            print(f"gap: {gap.source} epoch {gap.epoch} lost numbers {gap.first} to {gap.last}")
    if older:
        print(f"the youngest {limit} events are shown, there are older ones: --limit {10 * limit}", file=sys.stderr)
    return Exit.FINE


async def explain(path: Path, what: str, *, namespace: str, output: Format) -> Exit:
    """Answer why; exit code 1 when the ledger knows nothing about it."""
    kind, name, in_namespace = parse(what, namespace)
    async with open_ledger(path) as ledger:
        answer = await _answer(ledger, kind, name, in_namespace)
    if output is Format.json:
        documents = [event_document(event) for event in answer.events]
        print_json({"about": answer.about, "headline": answer.headline, "because": answer.because, "events": documents})
    else:
        tell(sys.stdout, "\n".join((answer.headline, *(f"  {reason}" for reason in answer.because))))
    return Exit.FINE if answer.events else Exit.BROKEN


def parse(what: str, namespace: str) -> tuple[str, str, str]:
    """pod/NAME, pod/NAMESPACE/NAME, node/NAME, workload/[NAMESPACE/]NAME → kind, name, namespace. Raises UsageError."""
    kind, _, rest = what.partition("/")
    *given, name = rest.split("/")
    kind = kind.lower()
    if not name or len(given) > 1 or kind not in (*POD_KINDS, *NODE_KINDS, *WORKLOAD_KINDS):
        raise UsageError(f"{what!r}: ask for pod/NAMESPACE/NAME, node/NAME or workload/NAMESPACE/NAME")
    return kind, name, given[0] if given else namespace


async def _answer(ledger: Ledger, kind: str, name: str, namespace: str) -> Answer:
    if kind in NODE_KINDS:
        return explain_node(name, await ledger.for_node(name))
    if kind in POD_KINDS:
        gates = await ledger.events(names=GATE_EVENTS)
        return explain_pod(f"{namespace}/{name}", await ledger.for_pod(namespace, name), gates)
    found = await ledger.for_workload("job", namespace, name) or await ledger.for_workload("pod", namespace, name)
    return explain_workload(f"{namespace}/{name}", found)
