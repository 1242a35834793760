"""A past in few words: events with their envelopes, folded into a state."""

from datetime import UTC, datetime, timedelta

import msgspec

from overspill_decider.policy import Gate
from overspill_decider.rules import Preference, Rules
from overspill_decider.state import State, apply
from overspill_events.catalog import (
    CapacitySampled,
    Offering,
    OwnerRef,
    PodRef,
    ProviderSampled,
    Reading,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import Place, Source, UnknownCause

START = datetime(2030, 1, 1, tzinfo=UTC)
RULES = Rules(
    low_mark=1,
    high_mark=8,
    window=60,
    open_hold=30,
    close_hold=60,
    stale_after=25,
    min_coverage=0.8,
    drift_after=60,
    drift_tolerance=4,
    drift_opens=True,
    provider_stale_after=300,
    source=Preference.AUTO,
)
CLOSED, OPEN = (Gate(node="v", uid="u", is_open=is_open) for is_open in (False, True))


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def rules(**changes) -> Rules:
    return msgspec.structs.replace(RULES, **changes)


def reading(source: Source, value, **more) -> Reading:
    """A number, or a cause why there is none."""
    if isinstance(value, UnknownCause):
        return Reading(source=source, observed_at=START, unknown=value)
    return Reading(source=source, observed_at=START, free=value, **more)


class Past:
    """Grows event by event; `state` is what the fold makes of it, `history` can be replayed."""

    def __init__(self, the_rules: Rules = RULES) -> None:
        self.rules = the_rules
        self.state = State()
        self.history: list = []

    def tell(self, event, second: float):
        sequence = len(self.history) + 1
        envelope = Envelope(
            id=f"e{sequence}",
            type=event.spec.type,
            source="/overspill/test/x",
            time=at(second),
            subject="s",
            epoch="e",
            sequence=sequence,
            correlation_id="c",
            stream_sequence=sequence,
        )
        self.history.append((event, envelope))
        self.state = apply(self.state, event, envelope, pool="default", rules=self.rules)
        return self

    def sample(self, second: float, cluster, query=None, *, stuck=0):
        readings = [
            reading(Source.CLUSTER, cluster, **({} if isinstance(cluster, UnknownCause) else {"stuck_pods": stuck}))
        ]
        if query is not None:
            readings.append(reading(Source.QUERY, query))
        return self.tell(CapacitySampled(pool="default", resource="nvidia.com/gpu", readings=tuple(readings)), second)

    def samples(self, first: int, last: int, cluster, query=None, *, every=10, stuck=0):
        for second in range(first, last + 1, every):
            self.sample(second, cluster, query, stuck=stuck)
        return self

    def provider(self, second: float, stock=5, *, healthy=True, name="fake"):
        offering = Offering(id="a", gpu_type="G", gpus=1, region="r", price_per_hour=1.0, stock=stock)
        return self.tell(ProviderSampled(provider=name, healthy=healthy, offerings=(offering,)), second)

    def intended(self, second: float, *, until: float, uid="p1"):
        return self.tell(
            ReturnIntended(
                pod=PodRef(namespace="ml", name="p", uid=uid),
                owner=OwnerRef(kind="ReplicaSet", name="o", uid="o"),
                node="v",
                home_node="n1",
                gpus=1,
                expires_at=at(until),
            ),
            second,
        )

    def settled(self, second: float, *, uid="p1"):
        return self.tell(ReturnSettled(pod=PodRef(namespace="ml", name="p", uid=uid), place=Place.HOME), second)
