"""The result of a performance: the JSON that programs read and the words that people read. Pure."""

from pathlib import Path

from msgspec import Struct

from overspill_demo.invariants import Invariant, Observation, duplicates, orphans
from overspill_demo.provider import Totals


class Summary(Struct, frozen=True, kw_only=True):
    """What `overspill demo --json FILE` writes. Field names are a promise."""

    scenario: str
    killed: str | None
    pods_total: int
    pods_home_max: int
    pods_spilled: int
    pods_returned: int
    gate_openings: int
    gate_closings: int
    evictions: int
    evictions_refused: int
    instances_created: int
    instances_alive_at_end: int
    orphan_instances: int
    duplicate_instances: int
    external_gpu_hours: float
    external_cost: float
    events_recorded: int
    stream_gaps: int
    nats_url: str
    kubeconfig: str
    ledger: str
    wall_s: float
    invariants: tuple[Invariant, ...]

    @property
    def broken(self) -> tuple[Invariant, ...]:
        """The promises that were not kept."""
        return tuple(invariant for invariant in self.invariants if not invariant.ok)


class Circumstances(Struct, frozen=True, kw_only=True):
    """What the summary says besides the observation."""

    scenario: str
    killed: str | None
    pods_total: int
    pods_home_max: int
    evictions_refused: int
    totals: Totals
    nats_url: str
    kubeconfig: Path
    ledger: Path
    wall_s: float


def summarise(seen: Observation, verdicts: tuple[Invariant, ...], around: Circumstances) -> Summary:
    """Observation and verdicts in one document."""
    ours = [life for life in seen.instances if life.ours]
    return Summary(
        scenario=around.scenario,
        killed=around.killed,
        pods_total=around.pods_total,
        pods_home_max=around.pods_home_max,
        pods_spilled=seen.pods_spilled,
        pods_returned=seen.returned,
        gate_openings=seen.gate_openings,
        gate_closings=seen.gate_closings,
        evictions=len(seen.evictions),
        evictions_refused=around.evictions_refused,
        instances_created=len(ours),
        instances_alive_at_end=sum(life.ended is None for life in ours),
        orphan_instances=len(orphans(seen)),
        duplicate_instances=len(duplicates(seen)),
        external_gpu_hours=round(around.totals.gpu_hours, 3),
        external_cost=round(around.totals.cost, 2),
        events_recorded=seen.events_in_ledger,
        stream_gaps=sum(seen.stream_gaps.values()),
        nats_url=around.nats_url,
        kubeconfig=str(around.kubeconfig),
        ledger=str(around.ledger),
        wall_s=round(around.wall_s, 1),
        invariants=verdicts,
    )


def in_words(summary: Summary) -> str:
    """The story for people, and every promise with its figures."""
    s = summary
    lines = [f"{s.pods_total} pods were asked for; at most {s.pods_home_max} ran at home at once."]
    if s.killed:
        lines.append(f"{s.killed} was killed in the middle and started again.")
    paid = f"{s.external_gpu_hours:,.1f} GPU hours, ${s.external_cost:,.2f}"
    lines.append(f"The gate opened {s.gate_openings}x and closed {s.gate_closings}x.")
    lines.append(f"{s.pods_spilled} pods overflowed onto {s.instances_created} instances: {paid}.")
    refused = f"{s.evictions_refused} refusals by disruption budgets respected"
    alive = f"{s.instances_alive_at_end} instances live at the end"
    lines.append(f"{s.pods_returned} were evicted to come home ({refused}); {alive}.")
    lines.append(f"{s.events_recorded} events are on the record, {s.stream_gaps} lost. It took {s.wall_s:.0f} s.")
    lines.append("")
    lines += [f"  {'ok    ' if promise.ok else 'BROKEN'} {promise.name}: {promise.detail}" for promise in s.invariants]
    if s.broken:
        lines += [
            "",
            f"{len(summary.broken)} promises broken: {', '.join(invariant.name for invariant in summary.broken)}",
        ]
    return "\n".join(lines)
