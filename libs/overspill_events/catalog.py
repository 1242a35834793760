"""The events of Overspill, declared once: payload, type, version, subject and key.

Past tense, frozen, camelCase on the wire. Decoders, subjects, JSON Schemas and the documentation are derived from
this module. Evolution: new fields have defaults; nothing is renamed or removed; a breaking change is a new version
beside the old. This module must not know NATS or Kubernetes.
"""

from typing import Final

from msgspec import field

from overspill_events import reasons
from overspill_events.declaring import CATALOG, Event, EventSpec, event, kebab
from overspill_events.values import Count, Offering, OwnerRef, PodRef, QuotaUse, Reading, Time, WorkloadRef

# What readers of events need stands in one place, wherever it is written.
__all__ = [
    "CATALOG",
    "RETURN_SECONDS_MAX",
    "Event",
    "EventSpec",
    "Offering",
    "OwnerRef",
    "PodRef",
    "QuotaUse",
    "Reading",
    "Time",
    "WorkloadRef",
    "event",
    "kebab",
]

# --- every service ----------------------------------------------------------------------------------------------------


@event("*", "service")
class ServiceStarted(Event, frozen=True, kw_only=True):
    service: str
    version: str
    mode: str
    settings: dict[str, str] = field(default_factory=dict)  # as the service understood them; secrets left out


@event("*", "service")
class ServiceStopped(Event, frozen=True, kw_only=True):
    service: str
    reason: str = ""


@event("*", "service")
class LeadershipTaken(Event, frozen=True, kw_only=True):
    service: str
    lease: str
    holder: str


@event("*", "service")
class LeadershipLost(Event, frozen=True, kw_only=True):
    service: str
    lease: str
    holder: str
    reason: str = ""


# --- sampler ----------------------------------------------------------------------------------------------------------


@event("sampler", "pool")
class CapacitySampled(Event, frozen=True, kw_only=True):
    """Both sources in one event, so that a decision names one cause."""

    pool: str
    resource: str
    readings: tuple[Reading, ...]


# --- decider ----------------------------------------------------------------------------------------------------------


@event("decider", "node")
class GateDecided(Event, frozen=True, kw_only=True):
    """Published when the verdict or its reason changes. Average and marks in free GPUs."""

    node: str
    verdict: reasons.Verdict
    reason: reasons.GateReason
    average: float | None
    low_mark: float
    high_mark: float
    window_seconds: float
    samples: Count
    source: reasons.Source | None = None  # of the average
    held_since: Time | None = None
    hold_seconds: float | None = None  # how long it must hold before the gate moves
    cluster_average: float | None = None
    unsettled_returns: Count = 0
    provider_stock: int | None = None
    detail: str = ""


@event("decider", "node")
class GateOpened(Event, frozen=True, kw_only=True):
    """The switch taint was removed."""

    node: str
    reason: reasons.GateReason
    average: float | None = None
    detail: str = ""


@event("decider", "node")
class GateClosed(Event, frozen=True, kw_only=True):
    """The switch taint was put on."""

    node: str
    reason: reasons.GateReason
    average: float | None = None
    detail: str = ""


@event("decider", "node")
class DriftDetected(Event, frozen=True, kw_only=True):
    """Query and cluster disagree lastingly, or pods wait behind a closed gate that no home node fits."""

    node: str
    kind: str  # "disagreement" | "stuck-pods"
    query_average: float | None = None
    cluster_average: float | None = None
    stuck_pods: int | None = None
    since: Time | None = None
    detail: str = ""


@event("decider", "node")
class DriftCleared(Event, frozen=True, kw_only=True):
    node: str
    kind: str
    detail: str = ""


# --- evictor ----------------------------------------------------------------------------------------------------------


# No `expires_at` of a return is further ahead: who reads the stream that far back misses no booking.
RETURN_SECONDS_MAX: Final = 3600.0


@event("evictor", "pod")
class ReturnIntended(Event, frozen=True, kw_only=True):
    """A pod is about to be evicted so that its successor lands at home; the room is booked until `expires_at`."""

    pod: PodRef
    owner: OwnerRef
    node: str  # the virtual node it leaves
    home_node: str  # where it fits now
    gpus: Count
    expires_at: Time
    priority: int = 0
    age_seconds: float | None = None
    ready_replicas: int | None = None
    floor: int | None = None
    home_free_gpus: int | None = None  # on home_node, before
    was_running: bool = True


@event("evictor", "pod")
class PodEvicted(Event, frozen=True, kw_only=True):
    pod: PodRef
    node: str
    home_node: str
    gpus: Count


@event("evictor", "pod")
class EvictionRefused(Event, frozen=True, kw_only=True):
    pod: PodRef
    node: str
    reason: reasons.RefusalReason
    message: str = ""
    pdb: str = ""
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    retry_after_seconds: float | None = None


@event("evictor", "pod")
class ReturnSettled(Event, frozen=True, kw_only=True):
    pod: PodRef
    place: reasons.Place
    successor: PodRef | None = None
    node: str = ""
    detail: str = ""


@event("evictor", "pod")
class PodHeld(Event, frozen=True, kw_only=True):
    """A spilled pod stays where it is; published when the reason changes."""

    pod: PodRef
    node: str
    reason: reasons.HoldReason
    detail: str = ""
    needed: float | None = None
    available: float | None = None


# --- admitter ---------------------------------------------------------------------------------------------------------


@event("admitter", "workload")
class WorkloadQueued(Event, frozen=True, kw_only=True):
    workload: WorkloadRef
    local_queue: str
    cluster_queue: str = ""
    priority: int = 0
    pods: Count = 1
    requests: dict[str, float] = field(default_factory=dict)  # whole workload: resource → amount (GPUs, cores, bytes)


@event("admitter", "workload")
class WorkloadAdmitted(Event, frozen=True, kw_only=True):
    """Published before the workload is released."""

    workload: WorkloadRef
    cluster_queue: str
    flavor: str
    quota: tuple[QuotaUse, ...] = ()
    home_room: float | None = None  # GPUs at home left for the flavor before this workload; absent for virtual flavors
    waited_seconds: float | None = None
    inherited_from: PodRef | None = None  # a returned pod whose successor keeps its quota


@event("admitter", "workload")
class AdmissionDeferred(Event, frozen=True, kw_only=True):
    workload: WorkloadRef
    reason: reasons.DeferReason
    cluster_queue: str = ""
    quota: tuple[QuotaUse, ...] = ()
    home_room: float | None = None
    detail: str = ""


@event("admitter", "workload")
class WorkloadFinished(Event, frozen=True, kw_only=True):
    workload: WorkloadRef
    outcome: str  # "succeeded" | "failed" | "deleted"
    cluster_queue: str = ""


# --- bridge -----------------------------------------------------------------------------------------------------------


@event("bridge", "node")
class NodeRegistered(Event, frozen=True, kw_only=True):
    node: str
    uid: str
    created: bool  # False: it was there already
    max_external_gpus: Count
    providers: tuple[str, ...] = ()


@event("bridge", "key")
class InstanceRequested(Event, frozen=True, kw_only=True):
    """Intent: published before the provider is asked."""

    key: str  # minted from the pod's UID
    pod: PodRef
    node: str
    provider: str
    offering: str
    gpus: Count
    price_per_hour: float
    attempt: Count = 1


@event("bridge", "key")
class InstanceCreated(Event, frozen=True, kw_only=True):
    key: str
    pod: PodRef
    provider: str
    instance: str
    offering: str
    price_per_hour: float
    committed: bool = True  # False: accepted and queued


@event("bridge", "key")
class InstanceRunning(Event, frozen=True, kw_only=True):
    key: str
    pod: PodRef
    provider: str
    instance: str
    seconds_to_running: float | None = None


@event("bridge", "key")
class InstanceFailed(Event, frozen=True, kw_only=True):
    key: str
    pod: PodRef
    provider: str
    instance: str
    end: reasons.InstanceEnd
    exit_code: int | None = None
    message: str = ""


@event("bridge", "key")
class InstanceTerminating(Event, frozen=True, kw_only=True):
    """Intent: published before the provider is told (with the bus away, as soon as it is back)."""

    key: str
    pod: PodRef
    provider: str
    instance: str
    end: reasons.InstanceEnd


@event("bridge", "key")
class TerminationDeferred(Event, frozen=True, kw_only=True):
    """An instance is to be ended, and is not because the bridge observes; told once for each cause."""

    key: str
    pod: PodRef
    provider: str
    instance: str
    end: reasons.InstanceEnd
    detail: str = ""


@event("bridge", "key")
class InstanceTerminated(Event, frozen=True, kw_only=True):
    key: str
    pod: PodRef
    provider: str
    instance: str
    end: reasons.InstanceEnd
    hours: float | None = None
    cost: float | None = None  # dollars, from the price and the time it lived


@event("bridge", "key")
class InstanceAdopted(Event, frozen=True, kw_only=True):
    """An instance of ours was found that this process did not create."""

    key: str
    pod: PodRef
    provider: str
    instance: str
    state: str


@event("bridge", "key")
class OrphanFound(Event, frozen=True, kw_only=True):
    """An instance with our tag and no pod."""

    key: str
    pod: PodRef
    provider: str
    instance: str
    age_seconds: float | None = None


@event("bridge", "pod")
class SpillDeferred(Event, frozen=True, kw_only=True):
    """A pod bound to the virtual node has no instance yet; published when the reason changes."""

    pod: PodRef
    node: str
    reason: reasons.SpillReason
    detail: str = ""
    tried: tuple[str, ...] = ()  # offerings tried or skipped, each with why


@event("bridge", "provider")
class ProviderSampled(Event, frozen=True, kw_only=True):
    provider: str
    healthy: bool
    offerings: tuple[Offering, ...] = ()
    instances: int | None = None
    detail: str = ""
