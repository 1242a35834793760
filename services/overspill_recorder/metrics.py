"""The recorder's metrics, declared once."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class RecorderMetrics:
    """One set per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.stored = Counter("overspill_recorder_events_total", "Events written to the ledger.", registry=registry)
        self.repeated = Counter("overspill_recorder_repeated_total", "Events delivered again.", registry=registry)
        self.unreadable = Counter("overspill_recorder_unreadable_total", "Unreadable messages.", registry=registry)
        self.missing = Gauge("overspill_recorder_missing_events", "Numbers missing in all.", registry=registry)
        self.reached = Gauge(
            "overspill_recorder_stream_sequence", "Youngest event of the stream in the ledger.", registry=registry
        )
        self.write_seconds = Histogram("overspill_recorder_write_seconds", "One transaction.", registry=registry)
