"""The protocol between the bridge and a provider, and the values it speaks in.

Shaped by what GPU clouds lack: no idempotency key, names that are not unique, lists that lag or come in parts. Hence
identity is minted by the caller and carried in tags, and a list says whether it is complete. This module must not know
pods: a key and tags are strings here.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from overspill_events.catalog import Offering


class InstanceState(StrEnum):
    """Where an instance is in its life. A state string that is not understood is UNKNOWN, never an end."""

    QUEUED = "queued"  # accepted, no GPU committed
    PROVISIONING = "provisioning"
    STARTING = "starting"  # machine there; image pulled, container started
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"  # the container ended by itself
    FAILED = "failed"
    PREEMPTED = "preempted"  # the provider took it back
    GONE = "gone"
    UNKNOWN = "unknown"

    @classmethod
    def read(cls, text: str) -> "InstanceState":
        """The state a provider's own word means; UNKNOWN for words that are not ours."""
        try:
            return cls(text)
        except ValueError:
            return cls.UNKNOWN


# An instance in one of these may cost money or hold a GPU. UNKNOWN counts: not knowing is no proof of absence.
LIVING = frozenset(
    {
        InstanceState.QUEUED,
        InstanceState.PROVISIONING,
        InstanceState.STARTING,
        InstanceState.RUNNING,
        InstanceState.STOPPING,
        InstanceState.UNKNOWN,
    }
)


class Instance(Struct, frozen=True, kw_only=True):
    """One running thing at a provider, as the provider tells it now."""

    id: str
    key: str  # the name it was created under; not unique
    state: InstanceState
    offering: str
    gpus: int
    price_per_hour: float  # dollars
    created_at: datetime
    tags: Mapping[str, str] = {}
    running_at: datetime | None = None
    exit_code: int | None = None  # None: not told, which is not zero
    message: str = ""
    endpoint: str = ""  # an IP address that the home cluster can route to; empty when there is none
    billed_hours: float | None = None  # the provider's own count, when it gives one

    @property
    def is_living(self) -> bool:
        return self.state in LIVING


class Inventory(Struct, frozen=True, kw_only=True):
    """One list of the account. Absence from an incomplete list means nothing."""

    instances: tuple[Instance, ...]
    complete: bool


class CreateRequest(Struct, frozen=True, kw_only=True):
    """What to run. `env` may hold secrets: it must not be logged."""

    key: str
    offering: str
    image: str
    tags: Mapping[str, str] = {}
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    ports: tuple[int, ...] = ()


class Created(Struct, frozen=True, kw_only=True):
    """The answer to a create."""

    instance_id: str
    committed: bool  # False: accepted and queued, capacity not committed


class Provider(Protocol):
    """One account at one service. Every call may raise ProviderError and nothing else."""

    @property
    def name(self) -> str: ...

    async def create(self, request: CreateRequest) -> Created:
        """Ask for one instance. An UNKNOWN error leaves open whether it exists; the call never retries by itself."""
        ...

    async def list(self) -> Inventory:
        """All instances of the account, others' too, in one pass."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """End it for good (never merely stop it). An instance that is gone is a success; accepted is not yet ended."""
        ...

    async def offerings(self) -> tuple[Offering, ...]:
        """What is sold now, with price and stock."""
        ...

    async def close(self) -> None:
        """Give up connections."""
        ...
