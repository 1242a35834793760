"""Why something was decided, as users see it: in events, metric labels, Kubernetes Events and `overspill explain`.

Every enumeration that travels has UNKNOWN: a reader of today meets a reason of tomorrow without failing (evolution rule
of the event catalogue). This module must not know who decides.
"""

from enum import StrEnum
from typing import Self


class WireEnum(StrEnum):
    """A string enumeration that reads members it does not know as UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls("unknown") if value != "unknown" else None


class Source(WireEnum):
    """Where a reading of home capacity comes from."""

    CLUSTER = "cluster"  # computed from the API server's nodes and pods
    QUERY = "query"  # the operator's PromQL
    UNKNOWN = "unknown"


class UnknownCause(WireEnum):
    """Why a reading has no number."""

    NOT_SYNCED = "not-synced"  # nodes or pods not listed yet, or the watch is silent for too long
    NOT_CONFIGURED = "not-configured"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # the source answered with an error
    NO_SERIES = "no-series"
    MANY_SERIES = "many-series"
    NOT_A_NUMBER = "not-a-number"
    STALE = "stale"
    WARNED = "warned"  # Prometheus answered with warnings: the number may be partial
    UNKNOWN = "unknown"


class Verdict(WireEnum):
    """What the gate of a virtual node should be."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class GateReason(WireEnum):
    """Why the gate changes or stays."""

    HOME_FULL = "home-full"  # average at or below the low mark for long enough: open
    HOME_HAS_ROOM = "home-has-room"  # average at or above the high mark for long enough: close
    DRIFT = "drift"  # query and cluster disagree lastingly, or pods wait behind a closed gate: open
    BETWEEN_MARKS = "between-marks"
    HOLDING_LOW = "holding-low"  # below the low mark, not long enough yet
    HOLDING_HIGH = "holding-high"
    ALREADY = "already"  # the gate is as the marks want it
    SAMPLES_UNKNOWN = "samples-unknown"
    SAMPLES_STALE = "samples-stale"
    WINDOW_NOT_FULL = "window-not-full"
    NO_PROVIDER_STOCK = "no-provider-stock"
    RETURN_UNSETTLED = "return-unsettled"
    NODE_UNKNOWN = "node-unknown"
    BY_OPERATOR = "by-operator"  # an order on the virtual node says so, until it expires or is taken back
    PAUSED = "paused"
    UNKNOWN = "unknown"


class HoldReason(WireEnum):
    """Why a spilled pod is not brought home now."""

    GATE_OPEN = "gate-open"
    GATE_SETTLING = "gate-settling"
    TOO_YOUNG = "too-young"
    NO_HOME_FIT = "no-home-fit"
    FIT_UNKNOWN = "fit-unknown"
    OWNER_NOT_SUPPORTED = "owner-not-supported"
    OWNER_UNKNOWN = "owner-unknown"
    AT_FLOOR = "at-floor"
    PDB = "pdb"
    WAITING_POD_FIRST = "waiting-pod-first"
    QUOTA = "quota"
    CYCLE_LIMIT = "cycle-limit"
    OWNER_BACKOFF = "owner-backoff"
    OWNER_IN_FLIGHT = "owner-in-flight"
    BAD_ANNOTATION = "bad-annotation"
    NOT_SYNCED = "not-synced"
    PAUSED = "paused"
    UNKNOWN = "unknown"


class RefusalReason(WireEnum):
    """Why the API server refused an eviction."""

    PDB = "pdb"
    THROTTLED = "throttled"
    SEVERAL_PDBS = "several-pdbs"
    REPLACED = "replaced"  # same name, other UID
    GONE = "gone"
    FORBIDDEN = "forbidden"
    OBSERVING = "observing"  # OVERSPILL_MODE=observe: decided, not carried out
    FAILED = "failed"
    UNKNOWN = "unknown"


class Place(WireEnum):
    """Where the successor of a returned pod ended."""

    HOME = "home"
    VIRTUAL = "virtual"
    PENDING = "pending"
    EXPIRED = "expired"  # no successor was seen in time
    NOT_EVICTED = "not-evicted"  # the intent was dropped: nothing was evicted
    UNKNOWN = "unknown"


class DeferReason(WireEnum):
    """Why a workload is not admitted now."""

    NO_LOCAL_QUEUE = "no-local-queue"
    NO_CLUSTER_QUEUE = "no-cluster-queue"
    QUEUE_STOPPED = "queue-stopped"
    NO_QUOTA = "no-quota"
    NEVER_FITS = "never-fits"  # asks more than the queue's whole quota
    RESOURCE_NOT_COVERED = "resource-not-covered"
    NO_HOME_ROOM = "no-home-room"
    ROOM_UNKNOWN = "room-unknown"
    BEHIND_HEAD = "behind-head"  # StrictFIFO: an older workload of the queue waits
    BAD_QUEUE = "bad-queue"
    NOT_SYNCED = "not-synced"
    PAUSED = "paused"
    UNKNOWN = "unknown"


class SpillReason(WireEnum):
    """Why a pod on the virtual node has no instance yet."""

    NOT_OPTED_IN = "not-opted-in"
    UNSUPPORTED = "unsupported"  # a field of the pod that cannot leave the cluster
    NO_STOCK = "no-stock"
    QUOTA = "quota"
    PRICE_CEILING = "price-ceiling"
    PROVIDER_DOWN = "provider-down"
    CREDENTIALS = "credentials"
    PAYMENT = "payment"
    RATE_LIMITED = "rate-limited"
    AMBIGUOUS = "ambiguous"  # a create was answered ambiguously: looking before asking again
    LIMIT = "limit"  # max_external_gpus
    BAD_ANNOTATION = "bad-annotation"
    MISSING_REFERENCE = "missing-reference"  # a mandatory ConfigMap or Secret is not there
    OBSERVING = "observing"
    PAUSED = "paused"  # no new instances; running ones go on
    UNKNOWN = "unknown"


class InstanceEnd(WireEnum):
    """Why an instance ended or is being ended."""

    POD_GONE = "pod-gone"
    POD_DELETED = "pod-deleted"
    POD_FINISHED = "pod-finished"
    EXITED = "exited"
    FAILED = "failed"
    PREEMPTED = "preempted"
    LOST = "lost"
    START_DEADLINE = "start-deadline"
    DUPLICATE = "duplicate"
    ORPHAN = "orphan"
    POD_DEADLINE = "pod-deadline"
    UNKNOWN = "unknown"
