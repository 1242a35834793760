"""Should this gate be open? The whole judgement, as a function of the past, the gate, the rules and the time.

Rules speak from "must not" to "may": a pause and an operator's order come first; then what is not known holds the gate
as it is; then lasting drift; then the marks.
Opening costs money and so needs stock to buy and no return under way; closing waits for pods that only an open gate can
place.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from overspill_decider.override import Override
from overspill_decider.rules import Preference, Rules
from overspill_decider.state import DISAGREEMENT, STUCK_PODS, State
from overspill_decider.window import Track, seconds
from overspill_events.catalog import DriftCleared, DriftDetected, GateDecided
from overspill_events.moments import stamp
from overspill_events.reasons import GateReason, Source, UnknownCause, Verdict


class Gate(Struct, frozen=True, kw_only=True):
    """A virtual node's gate as the cluster has it now."""

    node: str
    uid: str
    is_open: bool
    override: Override | None = None
    order: Mapping[str, str] = {}  # the annotations that it was read from
    complaint: str = ""  # why the order on the node is none: field, value, what is accepted


class Decision(Struct, frozen=True, kw_only=True):
    """What should be, why, and since when what it rests on has held."""

    verdict: Verdict
    reason: GateReason
    held_since: datetime | None = None
    hold_seconds: float | None = None
    detail: str = ""


class Stock(Struct, frozen=True, kw_only=True):
    """Whether anything can be bought. `amount` is absent when a provider does not tell how much it has."""

    available: bool
    amount: int | None
    detail: str


def decide(
    gate: Gate, state: State, rules: Rules, now: datetime, *, silence: float = 0.0, paused: str | None = None
) -> Decision:
    """The decision about one gate. A verdict that differs from the gate asks for a flip; every other holds.

    `silence`: seconds since the last sample was heard, whatever the clocks say. `paused`: an operator holds the decider
    still, in words.
    """
    if paused is not None:
        return Decision(verdict=_as_is(gate), reason=GateReason.PAUSED, detail=_details(gate, paused))
    if gate.override is not None and gate.override.holds(now):
        return _ordered(gate, gate.override, state, rules, now)
    decision = _by_the_marks(gate, state, rules, now, silence)
    return msgspec.structs.replace(decision, detail=_details(gate, decision.detail))


def _ordered(gate: Gate, override: Override, state: State, rules: Rules, now: datetime) -> Decision:
    """An operator's order needs neither samples nor stock: it is their order. What speaks against it is told."""
    doubts = []
    if override.verdict is Verdict.OPEN:
        if not (there := stock(state, rules, now)).available:
            doubts.append(f"nothing to buy: {there.detail}")
        if count := unsettled(state, now):
            doubts.append(f"{count} returns are not settled")
    detail = "; ".join((str(override), *doubts))
    return Decision(verdict=override.verdict, reason=GateReason.BY_OPERATOR, detail=_details(gate, detail))


def _details(gate: Gate, detail: str) -> str:
    ignored = f"order ignored: {gate.complaint}" if gate.complaint else ""
    return "; ".join(part for part in (detail, ignored) if part)


def _by_the_marks(gate: Gate, state: State, rules: Rules, now: datetime, silence: float) -> Decision:
    as_is = _as_is(gate)
    if hold := _not_fresh(state, rules, now, silence):
        return Decision(verdict=as_is, reason=hold[0], detail=hold[1])
    if drift := _opening_drifts(gate, state, rules):
        reason = Decision(verdict=Verdict.OPEN, reason=GateReason.DRIFT, detail=", ".join(drift))
        return _open(gate, state, rules, now, reason)
    track = track_of(state, rules)
    if hold := _not_known(state, track, rules):
        return Decision(verdict=as_is, reason=hold[0], detail=hold[1])
    if track.low_since is not None:
        if gate.is_open:
            return Decision(verdict=as_is, reason=GateReason.ALREADY, held_since=track.low_since)
        return _held(
            gate, state, rules, now, since=track.low_since, hold=rules.open_hold,
            holding=GateReason.HOLDING_LOW, verdict=Verdict.OPEN, reason=GateReason.HOME_FULL,
        )  # fmt: skip
    if track.high_since is not None:
        if not gate.is_open:
            return Decision(verdict=as_is, reason=GateReason.ALREADY, held_since=track.high_since)
        return _held(
            gate, state, rules, now, since=track.high_since, hold=rules.close_hold,
            holding=GateReason.HOLDING_HIGH, verdict=Verdict.CLOSED, reason=GateReason.HOME_HAS_ROOM,
        )  # fmt: skip
    return Decision(verdict=as_is, reason=GateReason.BETWEEN_MARKS)


def is_news(gate: Gate, decision: Decision, state: State) -> bool:
    """Whether the decision has to be told: another verdict or reason, or a flip whose decision was carried out before.

    A flip that was decided and not carried out yet is not decided again.
    """
    record = state.gate(gate.node)
    decided = record.decided
    if decided is None or (decided.verdict, decided.reason) != (decision.verdict, decision.reason):
        return True
    spent = record.result is not None and record.result.sequence >= (decided.envelope.stream_sequence or 0)
    return spent and decision.verdict is not _as_is(gate)


def judge_drift(
    gate: Gate, state: State, rules: Rules, now: datetime, *, silence: float = 0.0
) -> tuple[DriftDetected | DriftCleared, ...]:
    """What changed about drift at this gate: to be published, and then part of the state.

    A kind is raised when it has been so for `drift_after`, and cleared when it has not been so for `close_hold`: pods
    need time to be placed once the gate is open, and a gate must not follow every one of them.
    """
    if _not_fresh(state, rules, now, silence):
        return ()
    active = set(active_drifts(state, gate.node))
    changes: list[DriftDetected | DriftCleared] = []
    for kind, spell in ((DISAGREEMENT, state.disagreement), (STUCK_PODS, state.stuck)):
        since = spell.present_since
        if kind == STUCK_PODS:
            since = _behind_closed(gate, state, since)
        if kind in active:
            quiet = spell.absent_since
            if quiet is not None and now - quiet >= seconds(rules.close_hold):
                changes.append(DriftCleared(node=gate.node, kind=kind, detail=f"not so since {stamp(quiet)}"))
        elif since is not None and now - since >= seconds(rules.drift_after):
            changes.append(_detected(gate, state, kind, since=since))
    return tuple(changes)


def active_drifts(state: State, node: str) -> Iterator[str]:
    """The kinds of drift that were raised for the node and not cleared since."""
    return (kind for kind, sequence in sorted(state.gate(node).drifts.items()) if sequence > 0)


def event_of(gate: Gate, decision: Decision, state: State, rules: Rules, now: datetime) -> GateDecided:
    """The decision with the numbers behind it."""
    source = source_of(state, rules)
    track = track_of(state, rules)
    return GateDecided(
        node=gate.node,
        verdict=decision.verdict,
        reason=decision.reason,
        average=track.average,
        low_mark=rules.low_mark,
        high_mark=rules.high_mark,
        window_seconds=rules.window,
        samples=track.known,
        source=source,
        held_since=decision.held_since,
        hold_seconds=decision.hold_seconds,
        cluster_average=state.cluster.average,
        unsettled_returns=unsettled(state, now),
        provider_stock=stock(state, rules, now).amount,
        detail=decision.detail,
    )


def source_of(state: State, rules: Rules) -> Source:
    """Whose number the marks are compared with. A query that is configured and fails is not replaced by the cluster."""
    if rules.source is Preference.CLUSTER:
        return Source.CLUSTER
    query = state.reading(Source.QUERY)
    configured = query is not None and query.unknown is not UnknownCause.NOT_CONFIGURED
    return Source.QUERY if configured or rules.source is Preference.QUERY else Source.CLUSTER


def track_of(state: State, rules: Rules) -> Track:
    return state.query if source_of(state, rules) is Source.QUERY else state.cluster


def unsettled(state: State, now: datetime) -> int:
    """Returns whose room is still booked."""
    return sum(not one.settled and one.expires_at > now for one in state.returns.values())


def stock(state: State, rules: Rules, now: datetime) -> Stock:
    """What fresh providers have; one that does not tell may have some. None heard of lately: nothing can be bought."""
    fresh = [one for one in state.providers.values() if now - one.at <= seconds(rules.provider_stale_after)]
    if not fresh:
        return Stock(available=False, amount=None, detail=f"no provider heard of in {rules.provider_stale_after:g} s")
    told = sum(one.stock for one in fresh if one.stock is not None)
    silent = any(one.stock is None for one in fresh)
    return Stock(
        available=told > 0 or silent, amount=None if silent else told, detail=f"{len(fresh)} providers, {told} told"
    )


def _held(
    gate: Gate, state: State, rules: Rules, now: datetime, *, since: datetime, hold: float,
    holding: GateReason, verdict: Verdict, reason: GateReason,
) -> Decision:  # fmt: skip
    """Beyond a mark: flip when it has been so for long enough, hold until then."""
    if now - since < seconds(hold):
        return Decision(verdict=_as_is(gate), reason=holding, held_since=since, hold_seconds=hold)
    flip = Decision(verdict=verdict, reason=reason, held_since=since, hold_seconds=hold)
    if verdict is Verdict.OPEN:
        return _open(gate, state, rules, now, flip)
    if state.stuck.present_since is not None:
        # They would be stuck behind the gate at once, and drift would open it again.
        detail = "pods wait that no home node fits"
        return Decision(verdict=Verdict.OPEN, reason=holding, held_since=since, hold_seconds=hold, detail=detail)
    return flip


def _open(gate: Gate, state: State, rules: Rules, now: datetime, decision: Decision) -> Decision:
    """Opening needs something to buy, and no return under way that the newcomers would overtake."""
    if gate.is_open:
        return decision
    if not (there := stock(state, rules, now)).available:
        return Decision(verdict=Verdict.CLOSED, reason=GateReason.NO_PROVIDER_STOCK, detail=there.detail)
    if count := unsettled(state, now):
        return Decision(verdict=Verdict.CLOSED, reason=GateReason.RETURN_UNSETTLED, detail=f"{count} returns")
    return decision


def _not_fresh(state: State, rules: Rules, now: datetime, silence: float) -> tuple[GateReason, str] | None:
    """Without a fresh sample nothing can be said to be so still.

    Clocks may differ: a sample is stale by its own time or by the time since it was heard, whichever says so, and how
    old one from the future is nobody can tell.
    """
    if state.sampled is None:
        return GateReason.SAMPLES_UNKNOWN, "no sample yet"
    age, patience = now - state.sampled.time, seconds(rules.stale_after)
    if -age > patience:
        return GateReason.SAMPLES_STALE, f"last sample at {stamp(state.sampled.time)}, ahead of the decider's clock"
    if age > patience or silence > rules.stale_after:
        return GateReason.SAMPLES_STALE, f"last sample at {stamp(state.sampled.time)}"
    return None


def _not_known(state: State, track: Track, rules: Rules) -> tuple[GateReason, str] | None:
    """Why the source's average may not be used."""
    source, last = source_of(state, rules), track.last
    reading = state.reading(source)
    if reading is None:
        return GateReason.SAMPLES_UNKNOWN, f"{source}: {UnknownCause.NOT_CONFIGURED}"
    if last is None or last.free is None:
        return (
            GateReason.SAMPLES_UNKNOWN,
            f"{source}: {reading.unknown or UnknownCause.UNKNOWN} {reading.detail}".rstrip(),
        )
    if track.average is None:
        return GateReason.WINDOW_NOT_FULL, f"{track.known} samples with a number"
    return None


def _opening_drifts(gate: Gate, state: State, rules: Rules) -> tuple[str, ...]:
    """Drift that keeps an open gate open, or opens a closed one: the latter only while it is seen to be so.

    Sources that differ in amount but agree that home has room leave the verdict without doubt.
    """
    if not rules.drift_opens:
        return ()
    seen = {DISAGREEMENT: state.disagreement, STUCK_PODS: state.stuck}
    kinds = [kind for kind in active_drifts(state, gate.node) if kind in seen]
    if not gate.is_open:
        kinds = [kind for kind in kinds if seen[kind].present_since is not None]
    averages = (state.query.average, state.cluster.average)
    if all(one is not None and one >= rules.high_mark for one in averages):
        kinds = [kind for kind in kinds if kind != DISAGREEMENT]
    return tuple(kinds)


def _as_is(gate: Gate) -> Verdict:
    return Verdict.OPEN if gate.is_open else Verdict.CLOSED


def _behind_closed(gate: Gate, state: State, since: datetime | None) -> datetime | None:
    """Pods are stuck behind a gate only while it is closed: they are counted from its closing at the earliest."""
    if since is None or gate.is_open:
        return None
    result = state.gate(gate.node).result
    return max(since, result.at) if result is not None and not result.is_open else since


def _detected(gate: Gate, state: State, kind: str, *, since: datetime) -> DriftDetected:
    reading = state.reading(Source.CLUSTER)
    return DriftDetected(
        node=gate.node,
        kind=kind,
        query_average=state.query.average,
        cluster_average=state.cluster.average,
        stuck_pods=reading.stuck_pods if reading is not None else None,
        since=since,
    )
