"""What a decision of the evictor rests on: the cluster, what is remembered, and the operator's rules. Pure."""

from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct

from overspill_capacity.requests import effective_requests
from overspill_capacity.room import Reservation
from overspill_evictor.memory import Failures, OpenReturn, Refusal
from overspill_evictor.settling import successors
from overspill_objects.apps import ReplicaSet
from overspill_objects.core import Node, Pod, ResourceQuota


class Rules(Struct, frozen=True, kw_only=True):
    """The settings that judge; seconds. What each means is said where the settings are declared."""

    resource: str
    gate_settle: float
    min_pod_age: float
    max_per_cycle: int
    max_in_flight: int
    max_in_flight_per_owner: int
    default_floor: int
    refusal_retry: float
    backoff: float
    backoff_max: float


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything a decision rests on."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    replica_sets: Mapping[str, ReplicaSet]  # by UID
    quotas: tuple[ResourceQuota, ...] = ()
    gate_closed_for: Mapping[str, float] = {}  # virtual nodes whose gate is closed → seconds seen so
    open_returns: tuple[OpenReturn, ...] = ()
    heirs: Mapping[str, str] = {}  # successor UID → predecessor UID, of settled returns
    failures: Mapping[str, Failures] = {}  # by owner UID
    refusals: Mapping[str, Refusal] = {}  # by pod UID
    paused: str | None = None  # an operator holds the evictor still, in words


def reservations(snapshot: Snapshot, *, resource: str) -> tuple[Reservation, ...]:
    """The book: one line per open return, kept under the successor's UID as soon as there is one."""
    pods = {pod.metadata.uid: pod for pod in snapshot.pods}
    heirs = successors(snapshot.open_returns, snapshot.pods, taken=snapshot.heirs)
    lines = []
    for one in snapshot.open_returns:
        heir = heirs.get(one.uid)
        key = heir.metadata.uid if heir is not None else f"return/{one.uid}"
        line = Reservation(
            key=key,
            node=one.intent.home_node,
            requests=_requests_of(one, heir or pods.get(one.uid), snapshot, resource=resource),
            expires_at=one.intent.expires_at,
        )
        lines.append(line)
    return tuple(lines)


def _requests_of(one: OpenReturn, pod: Pod | None, snapshot: Snapshot, *, resource: str) -> Mapping[str, Decimal]:
    """What the successor will ask for; with pod and owner gone, the GPUs are all that is known."""
    owner = snapshot.replica_sets.get(one.intent.owner.uid)
    if pod is None and owner is not None:
        pod = Pod(spec=owner.spec.template.spec)
    return effective_requests(pod) if pod is not None else {resource: Decimal(one.intent.gpus)}
