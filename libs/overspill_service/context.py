"""What a service's body is given: with an API server, or without for one that needs none."""

from typing import Any, Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from overspill_bus.bus import Bus
from overspill_kube.client import Client
from overspill_runtime.clock import Clock
from overspill_runtime.health import Health
from overspill_runtime.process import Process
from overspill_runtime.settings import CommonSettings, Mode

S = TypeVar("S", bound=CommonSettings)


class BusContext(Struct, Generic[S], frozen=True, kw_only=True):
    """The process, its connection to the bus, and what they were made from."""

    process: Process[S]
    bus: Bus

    @property
    def settings(self) -> S:
        return self.process.settings

    @property
    def clock(self) -> Clock:
        return self.process.clock

    @property
    def log(self) -> Any:
        return self.process.log

    @property
    def health(self) -> Health:
        return self.process.health

    @property
    def registry(self) -> CollectorRegistry:
        return self.process.registry

    @property
    def mode(self) -> Mode:
        return self.process.settings.mode

    @property
    def identity(self) -> str:
        return self.process.settings.identity


class Context(BusContext[S], Generic[S], frozen=True, kw_only=True):
    """With a connection to the cluster."""

    kube: Client
