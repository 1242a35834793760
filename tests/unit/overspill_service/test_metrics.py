"""One set of metrics per registry, however often a service leads."""

from prometheus_client import CollectorRegistry, Counter

from overspill_service import metrics_of


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter("rounds_total", "Rounds.", registry=registry)


class Others:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter("others_total", "Others.", registry=registry)


def test_a_second_leadership_goes_on_counting():
    """The same registry gives the same metrics; a second registration would raise."""
    registry = CollectorRegistry()
    metrics_of(registry, Metrics).rounds.inc()
    metrics_of(registry, Metrics).rounds.inc()
    assert registry.get_sample_value("rounds_total") == 2


def test_kinds_and_registries_are_apart():
    """Two services in one process, or two processes' registries in one test, do not share."""
    one, two = CollectorRegistry(), CollectorRegistry()
    metrics_of(one, Metrics).rounds.inc()
    metrics_of(one, Others).rounds.inc()
    assert two.get_sample_value("rounds_total") is None
    assert metrics_of(two, Metrics) is not metrics_of(one, Metrics)
