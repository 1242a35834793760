"""What the stream has told, folded: samples, providers, returns, and what was decided about each gate.

A pure fold: the same events in the same order give the same state, live or after a restart. Events that are seen twice,
or older than what they would replace, change nothing. It must not know the clock.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from overspill_decider.rules import Rules
from overspill_decider.window import Track, extend, seconds
from overspill_events.catalog import (
    CapacitySampled,
    DriftCleared,
    DriftDetected,
    Event,
    GateClosed,
    GateDecided,
    GateOpened,
    ProviderSampled,
    Reading,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import GateReason, Source, Verdict

FOLLOWED: Final = (
    CapacitySampled,
    ProviderSampled,
    ReturnIntended,
    ReturnSettled,
    GateDecided,
    GateOpened,
    GateClosed,
    DriftDetected,
    DriftCleared,
)
DISAGREEMENT: Final = "disagreement"
STUCK_PODS: Final = "stuck-pods"


class Spell(Struct, frozen=True, kw_only=True):
    """How long something has been so, without a doubt in between: at most one of the two is set."""

    present_since: datetime | None = None
    absent_since: datetime | None = None


class Provider(Struct, frozen=True, kw_only=True):
    """What a provider last told. `stock`: instances on sale, None when it does not tell; an ill one sells nothing."""

    at: datetime
    stock: int | None


class Return(Struct, frozen=True, kw_only=True):
    """One return as its last event leaves it."""

    expires_at: datetime
    settled: bool
    sequence: int


class Decided(Struct, frozen=True, kw_only=True):
    """The last GateDecided of a node, and the envelope that its effect names as cause."""

    verdict: Verdict
    reason: GateReason
    average: float | None
    detail: str
    envelope: Envelope


class Result(Struct, frozen=True, kw_only=True):
    """The last GateOpened or GateClosed of a node."""

    is_open: bool
    at: datetime
    sequence: int


class GateRecord(Struct, frozen=True, kw_only=True):
    """What the stream says about one gate."""

    decided: Decided | None = None
    result: Result | None = None
    drifts: Mapping[str, int] = {}  # kind → stream sequence of its DriftDetected; negative: cleared then


class State(Struct, frozen=True, kw_only=True):
    """Everything that decisions look back on."""

    cluster: Track = Track()
    query: Track = Track()
    sample: CapacitySampled | None = None  # the last one
    sampled: Envelope | None = None
    disagreement: Spell = Spell()
    stuck: Spell = Spell()
    providers: Mapping[str, Provider] = {}
    returns: Mapping[str, Return] = {}  # by pod UID, until their reservation would have ended
    gates: Mapping[str, GateRecord] = {}

    def gate(self, node: str) -> GateRecord:
        return self.gates.get(node, GateRecord())

    def reading(self, source: Source) -> Reading | None:
        """What the last sample says about that source."""
        readings = self.sample.readings if self.sample is not None else ()
        return next((one for one in readings if one.source is source), None)


def apply(state: State, event: Event | None, envelope: Envelope, *, pool: str, rules: Rules) -> State:
    """The state after one more event of the stream; other pools' samples and unknown events change nothing."""
    match event:
        case CapacitySampled() if event.pool == pool:
            return _sampled(state, event, envelope, rules=rules)
        case ProviderSampled():
            return _provider(state, event, envelope)
        case ReturnIntended() | ReturnSettled():
            return _returning(state, event, envelope)
        case GateDecided() | GateOpened() | GateClosed() | DriftDetected() | DriftCleared():
            record = _recorded(state.gate(event.node), event, envelope)
            return replace(state, gates={**state.gates, event.node: record})
    return state


def missing_result(state: State, node: str, *, is_open: bool) -> tuple[GateOpened | GateClosed, Envelope | None] | None:
    """What the record lacks when the gate is found so, and the decision that caused it.

    A gate without a result yet was closed when its node was created. A change without a decision that is younger than
    the last result was made by somebody else, or by a new node in place of the old.
    """
    record = state.gate(node)
    known = record.result.is_open if record.result is not None else False
    if known == is_open:
        return None
    kind = GateOpened if is_open else GateClosed
    decided, since = record.decided, record.result.sequence if record.result is not None else 0
    wanted = Verdict.OPEN if is_open else Verdict.CLOSED
    if decided is not None and decided.verdict is wanted and (decided.envelope.stream_sequence or 0) > since:
        event = kind(node=node, reason=decided.reason, average=decided.average, detail=decided.detail)
        return event, decided.envelope
    return kind(node=node, reason=GateReason.UNKNOWN, detail="found so; no decision of ours led to it"), None


def with_result(state: State, node: str, *, is_open: bool, at: datetime) -> State:
    """The state once a result was said that the stream has not given back yet: its number is not known.

    It takes the place of the last number that is known of this gate, so that the event itself supersedes it.
    """
    record = state.gate(node)
    decided = record.decided.envelope.stream_sequence or 0 if record.decided is not None else 0
    sequence = max(decided, record.result.sequence if record.result is not None else 0)
    said = replace(record, result=Result(is_open=is_open, at=at, sequence=sequence))
    return replace(state, gates={**state.gates, node: said})


def _sampled(state: State, event: CapacitySampled, envelope: Envelope, *, rules: Rules) -> State:
    at = envelope.time
    if state.sampled is not None and at <= state.sampled.time:
        return state
    gap = state.sampled is not None and at - state.sampled.time > seconds(rules.stale_after)
    now = replace(state, sample=event, sampled=envelope)
    cluster, query = now.reading(Source.CLUSTER), now.reading(Source.QUERY)
    now = replace(
        now,
        cluster=extend(state.cluster, at=at, free=_free(cluster), rules=rules),
        query=extend(state.query, at=at, free=_free(query), rules=rules) if query is not None else Track(),
    )
    apart = None
    seen_now = _free(cluster) is not None and _free(query) is not None
    if seen_now and now.query.average is not None and now.cluster.average is not None:
        apart = abs(now.query.average - now.cluster.average) > rules.drift_tolerance
    stuck = cluster.stuck_pods if cluster is not None else None
    return replace(
        now,
        disagreement=_spell(Spell() if gap else state.disagreement, at=at, present=apart),
        stuck=_spell(Spell() if gap else state.stuck, at=at, present=None if stuck is None else stuck > 0),
    )


def _free(reading: Reading | None) -> float | None:
    """Unknown is never a number, whatever else the reading carries."""
    return None if reading is None or reading.unknown is not None else reading.free


def _spell(before: Spell, *, at: datetime, present: bool | None) -> Spell:
    """Doubt ends a spell of either kind: what lasts must have been seen to last."""
    if present is None:
        return Spell()
    if present:
        return Spell(present_since=before.present_since or at)
    return Spell(absent_since=before.absent_since or at)


def _provider(state: State, event: ProviderSampled, envelope: Envelope) -> State:
    before = state.providers.get(event.provider)
    if before is not None and before.at >= envelope.time:
        return state
    told = [offering.stock for offering in event.offerings]
    stock: int | None = sum(amount for amount in told if amount is not None)
    if not event.healthy:
        stock = 0
    elif not stock and None in told:
        stock = None
    return replace(state, providers={**state.providers, event.provider: Provider(at=envelope.time, stock=stock)})


def _returning(state: State, event: ReturnIntended | ReturnSettled, envelope: Envelope) -> State:
    """Reservations that had ended when the event happened are dropped, so that the books do not grow for ever."""
    uid, sequence = event.pod.uid, envelope.stream_sequence or 0
    before = state.returns.get(uid)
    if before is not None and sequence <= before.sequence:
        return state
    if isinstance(event, ReturnIntended):
        entry = Return(expires_at=event.expires_at, settled=False, sequence=sequence)
    elif before is not None:
        entry = Return(expires_at=before.expires_at, settled=True, sequence=sequence)
    else:
        return state
    current = {key: one for key, one in state.returns.items() if one.expires_at > envelope.time}
    return replace(state, returns={**current, uid: entry})


def _recorded(
    record: GateRecord,
    event: GateDecided | GateOpened | GateClosed | DriftDetected | DriftCleared,
    envelope: Envelope,
) -> GateRecord:
    sequence = envelope.stream_sequence or 0
    match event:
        case GateDecided():
            known = record.decided.envelope.stream_sequence or 0 if record.decided is not None else -1
            if sequence > known:
                decided = Decided(
                    verdict=event.verdict,
                    reason=event.reason,
                    average=event.average,
                    detail=event.detail,
                    envelope=envelope,
                )
                return replace(record, decided=decided)
        case GateOpened() | GateClosed():
            if record.result is None or sequence > record.result.sequence:
                is_open = isinstance(event, GateOpened)
                return replace(record, result=Result(is_open=is_open, at=envelope.time, sequence=sequence))
        case DriftDetected() | DriftCleared():
            if sequence > abs(record.drifts.get(event.kind, 0)):
                signed = sequence if isinstance(event, DriftDetected) else -sequence
                return replace(record, drifts={**record.drifts, event.kind: signed})
    return record
