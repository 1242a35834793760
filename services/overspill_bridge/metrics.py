"""The bridge's metrics, declared once per process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class BridgeMetrics:
    """Named for what an operator asks: is money running, are calls failing, how long until a pod runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.instances = Gauge(
            "overspill_bridge_instances", "Living instances of this node.", ["provider"], registry=registry
        )
        self.gpus = Gauge("overspill_bridge_gpus_in_use", "GPUs of living and requested instances.", registry=registry)
        self.calls = Counter(
            "overspill_bridge_provider_calls_total",
            "Calls to providers by outcome (ok or the error's kind).",
            ["provider", "call", "outcome"],
            registry=registry,
        )
        self.deferrals = Counter(
            "overspill_bridge_deferrals_total", "Pods deferred, by reason.", ["reason"], registry=registry
        )
        self.to_running = Histogram(
            "overspill_bridge_seconds_to_running",
            "From the first sight of a bound pod to its Running status.",
            registry=registry,
            buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1200),
        )
        self.errors = Counter(
            "overspill_bridge_errors_total", "Passes over a pod that failed and are tried again.", ["kind"],
            registry=registry,
        )  # fmt: skip
        self.orphans = Counter(
            "overspill_bridge_orphans_total", "Instances found without their pod.", registry=registry
        )
