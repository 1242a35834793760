"""The only package that speaks NATS: events onto the stream and off it, in order, without silent loss.

It must not know Kubernetes, providers or any policy.
"""

from overspill_bus.bus import Bus, connect
from overspill_bus.deadletters import DeadLetter, DeadReason
from overspill_bus.errors import ApiError, BusClosed, BusUnavailable, Poison, RetryLater
from overspill_bus.outbox import Published
from overspill_bus.recorded import Recorded
from overspill_bus.settings import BusSettings, Topology

__all__ = [
    "ApiError",
    "Bus",
    "BusClosed",
    "BusSettings",
    "BusUnavailable",
    "DeadLetter",
    "DeadReason",
    "Poison",
    "Published",
    "Recorded",
    "RetryLater",
    "Topology",
    "connect",
]
