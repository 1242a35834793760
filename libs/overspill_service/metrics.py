"""The metrics that every service has: its bus, its requests to the API server, its leadership."""

from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Gauge, Histogram

from overspill_bus.bus import Bus

M = TypeVar("M")
_MADE: Final[WeakKeyDictionary[CollectorRegistry, dict[type[Any], Any]]] = WeakKeyDictionary()


def metrics_of(registry: CollectorRegistry, kind: type[M]) -> M:
    """A service's metrics, one set per registry: a second leadership in the same process goes on counting."""
    made = _MADE.setdefault(registry, {})
    if kind not in made:
        made[kind] = kind(registry)  # type: ignore[call-arg]  # every kind takes the registry and nothing else
    found: M = made[kind]
    return found


class ServiceMetrics:
    """Declared once per process, before the connections are made."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Histogram(
            "overspill_kube_request_seconds",
            "Requests to the API server; code 0: no answer.",
            ["verb", "code"],
            registry=registry,
        )
        self._leader = Gauge("overspill_leader", "1 while this process holds the lease.", ["lease"], registry=registry)

    def observe_request(self, method: str, path: str, status: int, seconds: float) -> None:  # noqa: ARG002
        """One request; its path is left out, since names as label values would never end."""
        self._requests.labels(method, str(status)).observe(seconds)

    def lead(self, lease: str, *, leads: bool) -> None:
        self._leader.labels(lease).set(float(leads))

    def watch_bus(self, bus: Bus) -> None:
        """Read the bus' own counts whenever somebody asks."""
        for name, text, read in (
            ("overspill_nats_connected", "1 while connected to NATS.", lambda: float(bus.connected)),
            ("overspill_bus_buffered_events", "Events that wait to be sent.", lambda: float(bus.buffered)),
            (
                "overspill_bus_lost_events",
                "Events dropped because the buffer was full.",
                lambda: float(bus.lost_events),
            ),
        ):
            self._gauge(name, text, read)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(name, text, registry=self._registry).set_function(read)
