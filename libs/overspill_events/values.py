"""Values inside events: identities, readings, offerings. They evolve by the same rules as the events that hold them."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from overspill_events import reasons

Time = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=0)]


class PodRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's identity; the UID is what effects are fenced with."""

    namespace: str
    name: str
    uid: str


class OwnerRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """The controller that owns a pod."""

    kind: str
    name: str
    uid: str


class WorkloadRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a queue admits: a Job or a bare Pod. `kind` is the Kubernetes kind."""

    kind: str
    namespace: str
    name: str
    uid: str


class Reading(Struct, frozen=True, kw_only=True, rename="camel"):
    """Home capacity as one source sees it, in GPUs; every number is absent when `unknown` names a cause."""

    source: reasons.Source
    observed_at: Time
    free: float | None = None
    total: float | None = None
    used: float | None = None
    largest_block: int | None = None
    room: dict[str, int] = {}  # GPUs per pod → how many such pods fit at home now
    waiting_pods: int | None = None  # ungated Pending spillable pods
    waiting_gpus: int | None = None
    stuck_pods: int | None = None  # of these, the ones that no home node fits
    unknown: reasons.UnknownCause | None = None
    detail: str = ""


class Offering(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing a provider sells; price in dollars per instance hour, stock in instances (absent: not told)."""

    id: str
    gpu_type: str
    gpus: Count
    region: str
    price_per_hour: float
    stock: int | None = None
    spot: bool = False


class QuotaUse(Struct, frozen=True, kw_only=True, rename="camel"):
    """One flavor and resource of a ClusterQueue at the time of a decision."""

    flavor: str
    resource: str
    nominal: float
    used: float
    asked: float
