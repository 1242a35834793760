"""What a service's body is given."""

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


class Context(Struct, Generic[S], frozen=True, kw_only=True):
    """The process, its connections and what they were made from."""

    process: Process[S]
    bus: Bus
    kube: Client

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
