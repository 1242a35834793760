"""The admitter's metrics, declared once."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from overspill_events.reasons import DeferReason


class AdmitterMetrics:
    """Queue names are few and chosen by operators; workloads are never labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.admitted = Counter(
            "overspill_admitter_admitted_total", "Workloads released.", ["cluster_queue"], registry=registry
        )
        self.failed = Counter(
            "overspill_admitter_release_failed_total", "Releases the API server refused.", registry=registry
        )
        self.waiting = Gauge("overspill_admitter_waiting_workloads", "Waiting.", ["reason"], registry=registry)
        self.waited = Histogram(
            "overspill_admitter_wait_seconds",
            "From creation to release.",
            buckets=(0.5, 1, 5, 15, 60, 300, 1800, 7200, 28800, 86400),
            registry=registry,
        )
        self.used = Gauge(
            "overspill_admitter_quota_used", "Charged.", ["cluster_queue", "flavor", "resource"], registry=registry
        )
        self.cycle_seconds = Histogram("overspill_admitter_cycle_seconds", "One decision.", registry=registry)
        self.standing_back = Gauge(
            "overspill_admitter_standing_back", "1 while Kueue's own controller admits.", registry=registry
        )

    def set_waiting(self, counts: Mapping[DeferReason, int]) -> None:
        """All reasons at once, so that one that no longer holds anybody goes to zero."""
        for reason in DeferReason:
            self.waiting.labels(reason.value).set(counts.get(reason, 0))
