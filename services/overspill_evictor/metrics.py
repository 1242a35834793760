"""The evictor's metrics, declared once."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from overspill_events.reasons import HoldReason, Place, RefusalReason


class EvictorMetrics:
    """Label values come from closed enumerations; every combination is there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evicted = Counter("overspill_evictor_evicted_total", "Pods evicted to come home.", registry=registry)
        self.refused = Counter(
            "overspill_evictor_refused_total", "Evictions that did not happen.", ["reason"], registry=registry
        )
        self.settled = Counter(
            "overspill_evictor_returns_settled_total", "Returns by where they ended.", ["place"], registry=registry
        )
        self.held = Gauge(
            "overspill_evictor_held_pods", "Spilled pods that stay, by reason.", ["reason"], registry=registry
        )
        self.open_returns = Gauge("overspill_evictor_open_returns", "Returns not settled yet.", registry=registry)
        self.idle = Counter(
            "overspill_evictor_idle_cycles_total", "Cycles without a decision, by cause.", ["cause"], registry=registry
        )
        self.cycle_seconds = Histogram("overspill_evictor_cycle_seconds", "Length of a cycle.", registry=registry)
        for reason in RefusalReason:
            self.refused.labels(reason.value)
        for place in Place:
            self.settled.labels(place.value)
        for cause in ("bus", "cache", "control", "throttled", "paused", "unavailable"):
            self.idle.labels(cause)

    def set_held(self, counts: Mapping[HoldReason, int]) -> None:
        """All reasons at once, so that one that no longer holds anybody goes to zero."""
        for reason in HoldReason:
            self.held.labels(reason.value).set(counts.get(reason, 0))
