"""The decider's metrics. Nodes are labels of gauges only: there are few, and each gate matters."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from overspill_events.reasons import GateReason, Source, Verdict


class Metrics:
    """Declared once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.gate_open = Gauge("overspill_gate_open", "1 while the gate is open.", ["node"], registry=registry)
        self.decisions = Counter(
            "overspill_gate_decisions", "Decisions published.", ["verdict", "reason"], registry=registry
        )
        self.flips = Counter("overspill_gate_flips", "Switch taints changed.", ["verdict"], registry=registry)
        self.average = Gauge(
            "overspill_home_free_average", "Average of free GPUs; NaN: unknown.", ["source"], registry=registry
        )
        self.drift = Gauge("overspill_drift", "1 while drift is raised.", ["node", "kind"], registry=registry)
        self.holds = Counter(
            "overspill_decider_holds",
            "Rounds that could not decide, and samples from a clock ahead.",
            ["what"],
            registry=registry,
        )
        for verdict in (Verdict.OPEN, Verdict.CLOSED):
            self.flips.labels(str(verdict))
            for reason in GateReason:
                self.decisions.labels(str(verdict), str(reason))
        for source in (Source.CLUSTER, Source.QUERY):
            self.average.labels(str(source)).set(float("nan"))
        for what in ("bus", "cluster", "clock", "control"):
            self.holds.labels(what)
