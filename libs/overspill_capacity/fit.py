"""Does this pod fit that node? Yes, no with the reason, or unknown with the rule that is not modelled.

Modelled: resources and pod slots, nodeSelector, required node affinity, hard taints. A definite "no" from a modelled
rule stands, whatever else the pod asks for; a "yes" needs that it asks for nothing else.
"""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from msgspec import Struct

from overspill_capacity.nodes import selects_node, untolerated
from overspill_capacity.requests import ZERO, effective_requests
from overspill_capacity.room import PODS, HomeSnapshot, Ineligible, NodeRoom
from overspill_objects.core import Pod
from overspill_objects.view import RawObject

HARMLESS_VOLUMES: Final = frozenset({"emptyDir", "configMap", "secret", "projected", "downwardAPI"})
DEFAULT_SCHEDULER: Final = "default-scheduler"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
REFUSING: Final = (
    Ineligible.NOT_READY,
    Ineligible.CORDONED,
)  # for every pod; taints are judged with the pod's tolerations


class Fits(Struct, frozen=True, kw_only=True):
    """By every rule that applies to the pod."""


class DoesNotFit(Struct, frozen=True, kw_only=True):
    """`reason` is for people and fit for counting; the numbers are there when a resource is short."""

    reason: str
    resource: str = ""
    needed: Decimal | None = None
    available: Decimal | None = None


class FitUnknown(Struct, frozen=True, kw_only=True):
    """The pod depends on a rule that is not modelled."""

    rule: str


Fit: TypeAlias = Fits | DoesNotFit | FitUnknown


def fits(pod: Pod, room: NodeRoom) -> Fit:
    """Whether kube-scheduler could place this pod, or its successor, on that node without preempting anybody.

    `spec.nodeName` is ignored; the pod's own nomination or reservation on the node does not count against it.
    """
    try:
        requests = effective_requests(pod)
    except ValueError as error:
        return FitUnknown(rule=str(error))
    return _fits(pod, room, requests=requests, unmodelled=unmodelled_rule(pod))


def find_home(pod: Pod, home: HomeSnapshot) -> str | FitUnknown | None:
    """The tightest node that fits, None when no node fits, FitUnknown when none surely fits but one might.

    Tightest (least devices free) keeps large blocks whole; kube-scheduler may choose another.
    """
    try:
        requests = effective_requests(pod)
    except ValueError as error:
        return FitUnknown(rule=str(error))
    unmodelled = unmodelled_rule(pod)
    found: list[NodeRoom] = []
    doubt: FitUnknown | None = None
    devices, uid = requests.get(home.resource, ZERO), pod.metadata.uid
    for room in home.rooms.values():
        if (
            devices
            and room.ineligible is not Ineligible.UNCOUNTABLE
            and devices > room.raw_of(home.resource, ignoring=uid)
        ):
            continue  # the usual case when home is full, and a definite no: the other rules need not be asked
        match _fits(pod, room, requests=requests, unmodelled=unmodelled):
            case Fits():
                found.append(room)
            case FitUnknown() as unknown:
                doubt = doubt or unknown
    return min(found, key=lambda room: (room.free_of(home.resource), room.name)).name if found else doubt


def why_no_home(pod: Pod, home: HomeSnapshot) -> str:
    """One sentence as kube-scheduler writes it: how many nodes refuse, and why."""
    reasons = Counter(
        answer.reason for room in home.rooms.values() if isinstance(answer := fits(pod, room), DoesNotFit)
    )
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda r: (-r[1], r[0])))
    return f"0/{len(home.rooms)} home nodes fit: {told}" if told else f"0/{len(home.rooms)} home nodes fit"


def unmodelled_rule(pod: Pod) -> str | None:
    """The first rule about placement that the pod has and that is not modelled; None when there is none."""
    spec = pod.spec
    affinity = spec.affinity
    if spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        return f"scheduler {spec.scheduler_name}"
    if affinity is not None and _is_required(affinity.pod_affinity):
        return "required pod affinity"
    if affinity is not None and _is_required(affinity.pod_anti_affinity):
        return "required pod anti-affinity"
    if any(c.get("whenUnsatisfiable", "DoNotSchedule") != "ScheduleAnyway" for c in spec.topology_spread_constraints):
        return "hard topology spread"
    if spec.resource_claims or pod.status.extended_resource_claim_status is not None:
        return "resource claims (DRA)"
    if _uses_host_ports(pod):
        return "host ports"
    return next(
        (f"volume of type {kind}" for v in spec.volumes if (kind := _volume_type(v)) not in HARMLESS_VOLUMES), None
    )


def _fits(pod: Pod, room: NodeRoom, *, requests: Mapping[str, Decimal], unmodelled: str | None) -> Fit:
    if room.ineligible in REFUSING:
        return DoesNotFit(reason=str(room.ineligible))
    try:
        if not selects_node(pod, name=room.name, labels=room.labels):
            return DoesNotFit(reason="did not match node selector or affinity")
    except ValueError as error:
        return FitUnknown(rule=str(error))
    if taint := untolerated(room.taints, pod.spec.tolerations):
        return DoesNotFit(reason=f"had untolerated taint {taint.key}:{taint.effect}")
    if room.ineligible is Ineligible.UNCOUNTABLE:
        return FitUnknown(rule=f"node {room.name}: {room.detail}")
    for resource, needed in (*requests.items(), (PODS, Decimal(1))):
        available = room.raw_of(resource, ignoring=pod.metadata.uid)
        if needed > available:
            return DoesNotFit(
                reason=f"insufficient {resource}",
                resource=resource,
                needed=needed,
                available=max(ZERO, available),
            )
    return Fits() if unmodelled is None else FitUnknown(rule=unmodelled)


def _is_required(affinity: RawObject | None) -> bool:
    """Preferred terms only weigh."""
    return bool(affinity and affinity.get(REQUIRED))


def _uses_host_ports(pod: Pod) -> bool:
    ports = [port for c in (*pod.spec.containers, *pod.spec.init_containers) for port in c.ports]
    return any(port.host_port for port in ports) or (pod.spec.host_network and bool(ports))


def _volume_type(volume: RawObject) -> str:
    """A volume has its name and one more key: its type. Without one it is an emptyDir."""
    return next((key for key in volume if key != "name"), "emptyDir")
