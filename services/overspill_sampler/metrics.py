"""The sampler's metrics: the readings as gauges, and how they came out."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from overspill_events.catalog import Reading
from overspill_events.reasons import Source, UnknownCause

KNOWN = "known"


class Metrics:
    """Declared once per process. Unknown is NaN, never zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._readings = Counter(
            "overspill_readings", "Readings by what came out.", ["source", "outcome"], registry=registry
        )
        self._gauges = {
            field: Gauge(f"overspill_home_{name}", text, ["source"], registry=registry)
            for field, name, text in (
                ("free", "free_gpus", "Free GPUs at home; NaN: unknown."),
                ("total", "gpus", "Allocatable GPUs at home; NaN: unknown."),
                ("used", "used_gpus", "GPUs held at home; NaN: unknown."),
                ("largest_block", "largest_free_block_gpus", "Most free GPUs on one node; NaN: unknown."),
                ("waiting_pods", "waiting_pods", "Spillable pods without a node; NaN: unknown."),
                ("stuck_pods", "stuck_pods", "Of these, what only an open gate could place; NaN: unknown."),
            )
        }
        for source in (Source.CLUSTER, Source.QUERY):
            for outcome in (KNOWN, *UnknownCause):
                self._readings.labels(str(source), str(outcome))

    def observe(self, reading: Reading) -> None:
        self._readings.labels(str(reading.source), str(reading.unknown or KNOWN)).inc()
        for field, gauge in self._gauges.items():
            value = getattr(reading, field)
            gauge.labels(str(reading.source)).set(float("nan") if value is None else value)
