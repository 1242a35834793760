"""Which spilled pods return now, and why each of the others stays. Pure: snapshot + now + rules → plan.

Rules are asked in order, the first that speaks wins; they go from what must not be to what may wait its turn. Order
of return: pods that are bound but do not run, then higher priority, then longest away, then more GPUs, then name.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from msgspec import Struct

from overspill_capacity.nodes import is_ready as is_node_ready
from overspill_capacity.nodes import is_virtual, selects_node, untolerated
from overspill_capacity.requests import add, effective_requests
from overspill_capacity.room import TERMINAL, HomeSnapshot
from overspill_events.catalog import OwnerRef
from overspill_events.names import NO_SCHEDULE, SPILLABLE_LABEL, SWITCH_TAINT
from overspill_events.reasons import HoldReason, RefusalReason
from overspill_evictor.floor import FloorError, floor_of, owner_uid_of, ready_replicas, stays_above
from overspill_evictor.memory import Refusal, backoff_seconds
from overspill_evictor.quota import charges, shortage
from overspill_evictor.room import Found, Home, NotFound, priority_of, waits_for_home
from overspill_evictor.settling import successors
from overspill_evictor.snapshot import Rules, Snapshot, reservations
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of, controller_of

SUPPORTED_OWNER: Final = "ReplicaSet"
PDB_REFUSALS: Final = frozenset({RefusalReason.PDB, RefusalReason.SEVERAL_PDBS})


class Return(Struct, frozen=True, kw_only=True):
    """Evict this pod: there is room for its successor on `home_node`."""

    pod: Pod
    owner: OwnerRef
    home_node: str
    home_free_gpus: int
    gpus: int
    floor: int
    ready_replicas: int
    age_seconds: float | None
    is_running: bool


class Hold(Struct, frozen=True, kw_only=True):
    """This pod stays, and why."""

    pod: Pod
    reason: HoldReason
    detail: str = ""
    needed: float | None = None
    available: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """One answer for every spilled pod that is not returning already."""

    returns: tuple[Return, ...]
    holds: tuple[Hold, ...]

    def about(self, pod: Pod) -> Return | Hold:
        """The answer for this very pod; it stays when there is none, because it is no spilled pod any more."""
        answers: tuple[Return | Hold, ...] = (*self.returns, *self.holds)
        mine = (one for one in answers if one.pod.metadata.uid == pod.metadata.uid)
        return next(mine, Hold(pod=pod, reason=HoldReason.UNKNOWN, detail="it is gone or leaving already"))


def decide(snapshot: Snapshot, now: datetime, rules: Rules, *, slots: int | None = None) -> Plan:
    """Judge every spilled pod. At most `slots` returns (absent: `max_per_cycle`)."""
    cycle = _Cycle(snapshot, now, rules, slots=rules.max_per_cycle if slots is None else slots)
    answers = [cycle.judge(pod) for pod in candidates(snapshot, resource=rules.resource)]
    return Plan(
        returns=tuple(answer for answer in answers if isinstance(answer, Return)),
        holds=tuple(answer for answer in answers if isinstance(answer, Hold)),
    )


def candidates(snapshot: Snapshot, *, resource: str) -> tuple[Pod, ...]:
    """Opted-in pods on virtual nodes that nobody is removing yet, in the order in which they return."""
    virtual = {node.metadata.name for node in snapshot.nodes if is_virtual(node)}
    leaving = {one.uid for one in snapshot.open_returns}
    found = (
        pod
        for pod in snapshot.pods
        if pod.spec.node_name in virtual
        and pod.metadata.labels.get(SPILLABLE_LABEL) == "true"
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL
        and pod.metadata.uid not in leaving
    )
    return tuple(sorted(found, key=lambda pod: _turn(pod, resource)))


def gate_is_closed(node: Node) -> bool:
    """Whether the switch taint is on the node."""
    return any(taint.key == SWITCH_TAINT and taint.effect == NO_SCHEDULE for taint in node.spec.taints)


def is_running(pod: Pod) -> bool:
    """Whether the pod has started; a bound pod that has not is waiting for an instance."""
    return pod.status.phase == "Running"


def away_since(pod: Pod) -> datetime | None:
    """Since when the pod is where it is; None when nobody has said."""
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    told = scheduled.last_transition_time if scheduled is not None and scheduled.status == "True" else None
    return pod.status.start_time or told


class _Cycle:
    """One decision: what was given away so far, and the rules."""

    def __init__(self, snapshot: Snapshot, now: datetime, rules: Rules, *, slots: int) -> None:
        self._snapshot, self._now, self._rules = snapshot, now, rules
        self._nodes = {node.metadata.name: node for node in snapshot.nodes}
        self._open = [node for node in snapshot.nodes if is_virtual(node) and not gate_is_closed(node)]
        self._owned: dict[str, list[Pod]] = defaultdict(list)
        for pod in snapshot.pods:
            self._owned[owner_uid_of(pod)].append(pod)
        self._slots = min(slots, rules.max_in_flight - len(snapshot.open_returns))
        self._leaving: dict[str, set[str]] = {}  # owner UID → pods that leave: open returns and this plan's
        for one in snapshot.open_returns:
            self._leaving.setdefault(one.intent.owner.uid, set()).add(one.uid)
        self._promised: dict[str, dict[str, Decimal]] = {}  # namespace → quota charges of this plan's successors
        heirs = successors(snapshot.open_returns, snapshot.pods, taken=snapshot.heirs)
        booked = {pod.metadata.uid for pod in heirs.values()}
        # Without `now`: a line in the book is crossed out by its settlement, not by its expiry alone.
        book = reservations(snapshot, resource=rules.resource)
        self._counted = HomeSnapshot.build(snapshot.nodes, snapshot.pods, resource=rules.resource, reservations=book)
        waiting = [
            pod
            for pod in snapshot.pods
            if pod.metadata.uid not in booked and waits_for_home(pod, resource=rules.resource)
        ]
        self._home = Home(self._counted, waiting)

    def judge(self, pod: Pod) -> Return | Hold:
        """The first rule that speaks holds the pod; if none does, it returns and its place is booked."""
        rules: tuple[Callable[[Pod], Hold | None], ...] = (
            self._is_paused,
            self._node_is_not_ready,
            self._gate_is_not_settled,
            self._owner_is_unfit,
            self._too_young,
            self._refused_lately,
            self._owner_rests,
            self._owner_is_in_flight,
            self._at_floor,
            self._short_of_quota,
            self._out_of_turn,
        )
        for rule in rules:
            if hold := rule(pod):
                return hold
        return self._place(pod)

    def _is_paused(self, pod: Pod) -> Hold | None:
        """An operator's pause is nobody's fault and ends by itself or by a word."""
        paused = self._snapshot.paused
        return None if paused is None else Hold(pod=pod, reason=HoldReason.PAUSED, detail=paused)

    def _node_is_not_ready(self, pod: Pod) -> Hold | None:
        """A silent virtual node: its bridge is away, and a pod evicted now could not be ended properly."""
        if is_node_ready(self._nodes[pod.spec.node_name]):
            return None
        return Hold(pod=pod, reason=HoldReason.NOT_SYNCED, detail=f"virtual node {pod.spec.node_name} is not Ready")

    def _gate_is_not_settled(self, pod: Pod) -> Hold | None:
        """While a gate that it could pass is open, or its own has hardly closed, the successor could overflow again."""
        name = pod.spec.node_name
        closed, settle = self._snapshot.gate_closed_for.get(name), self._rules.gate_settle
        if closed is None or not gate_is_closed(self._nodes[name]):
            return Hold(pod=pod, reason=HoldReason.GATE_OPEN)
        for node in self._open:
            if _could_take(node, pod):
                detail = f"the gate of {node.metadata.name} is open, and the successor could go there"
                return Hold(pod=pod, reason=HoldReason.GATE_OPEN, detail=detail)
        if closed >= settle:
            return None
        # Without the seconds so far: the detail is told once, when the reason changes.
        return Hold(pod=pod, reason=HoldReason.GATE_SETTLING, needed=settle, available=closed)

    def _owner_is_unfit(self, pod: Pod) -> Hold | None:
        """Only a ReplicaSet that wants its pods makes a successor; its floor must be readable."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != SUPPORTED_OWNER:
            kind = "no controller" if owner is None else owner.kind
            return Hold(pod=pod, reason=HoldReason.OWNER_NOT_SUPPORTED, detail=kind)
        replica_set = self._snapshot.replica_sets.get(owner.uid)
        if replica_set is None or replica_set.metadata.deletion_timestamp is not None:
            return Hold(pod=pod, reason=HoldReason.OWNER_UNKNOWN, detail=f"{owner.kind} {owner.name} is not there")
        try:
            self._floor(pod)
        except FloorError as error:
            return Hold(pod=pod, reason=HoldReason.BAD_ANNOTATION, detail=str(error))
        return None

    def _too_young(self, pod: Pod) -> Hold | None:
        """A running pod stays a while; one that does not run has nothing to lose."""
        if not is_running(pod):
            return None
        age = self._age(pod)
        if age is None:
            return Hold(pod=pod, reason=HoldReason.TOO_YOUNG, detail="its start time is not known")
        needed = self._rules.min_pod_age
        return None if age >= needed else Hold(pod=pod, reason=HoldReason.TOO_YOUNG, needed=needed, available=age)

    def _refused_lately(self, pod: Pod) -> Hold | None:
        """A refusal is not asked again at once; a budget that refused one replica would refuse its siblings."""
        refusal = self._refusal_of(pod)
        if refusal is None:
            return None
        event = refusal.event
        if event.reason not in PDB_REFUSALS:
            return Hold(pod=pod, reason=HoldReason.UNKNOWN, detail=f"refused ({event.reason}): {event.message}")
        budget, allowed = event.pdb or event.message, event.disruptions_allowed
        return Hold(pod=pod, reason=HoldReason.PDB, detail=budget, needed=1, available=allowed)

    def _refusal_of(self, pod: Pod) -> Refusal | None:
        """The refusal that still holds the pod: its own, or a running sibling's by their budget."""
        refusals = self._snapshot.refusals
        own = refusals.get(pod.metadata.uid)
        siblings = self._owned[owner_uid_of(pod)] if is_running(pod) else ()
        shared = [found for one in siblings if (found := refusals.get(one.metadata.uid)) is not None]
        latest = [one for one in shared if one.event.reason in PDB_REFUSALS]
        if own is not None and own.event.reason not in {RefusalReason.OBSERVING, RefusalReason.THROTTLED}:
            latest.append(own)
        youngest = max(latest, key=lambda one: one.at, default=None)
        if youngest is None or self._now >= youngest.at + timedelta(seconds=self._rules.refusal_retry):
            return None
        return youngest

    def _owner_rests(self, pod: Pod) -> Hold | None:
        """After a failed return its owner is left alone, longer each time."""
        failures = self._snapshot.failures.get(owner_uid_of(pod))
        if failures is None:
            return None
        needed = backoff_seconds(failures, first=self._rules.backoff, longest=self._rules.backoff_max)
        rested = (self._now - failures.last).total_seconds()
        if rested >= needed:
            return None
        detail = f"{failures.count} failed returns in a row" if failures.count > 1 else "its last return failed"
        return Hold(pod=pod, reason=HoldReason.OWNER_BACKOFF, detail=detail, needed=needed, available=rested)

    def _owner_is_in_flight(self, pod: Pod) -> Hold | None:
        """One owner's pods leave one after the other; none leaves an owner that has more pods than it wants."""
        owner = owner_uid_of(pod)
        limit = self._rules.max_in_flight_per_owner
        if (leaving := len(self._leaving.get(owner, ()))) >= limit:
            return Hold(pod=pod, reason=HoldReason.OWNER_IN_FLIGHT, needed=limit, available=leaving)
        wanted = self._snapshot.replica_sets[owner].spec.replicas
        living = sum(1 for other in self._owned[owner] if _is_active(other))
        if living <= wanted:
            return None
        detail = f"its owner wants {wanted} pods and has {living}: no successor would come"
        return Hold(pod=pod, reason=HoldReason.OWNER_IN_FLIGHT, detail=detail)

    def _at_floor(self, pod: Pod) -> Hold | None:
        """Ready replicas, less those that leave, less this one, must not fall below the floor."""
        owner = owner_uid_of(pod)
        ready = ready_replicas(self._owned[owner])
        floor = self._floor(pod)
        leaving = frozenset(self._leaving.get(owner, ()))
        if stays_above(ready=ready, leaving=leaving, pod=pod, floor=floor):
            return None
        detail = f"{len(ready)} ready, {len(ready & leaving)} of them leaving, floor {floor}"
        return Hold(
            pod=pod, reason=HoldReason.AT_FLOOR, detail=detail, needed=floor + 1, available=len(ready - leaving)
        )

    def _short_of_quota(self, pod: Pod) -> Hold | None:
        """The successor must be creatable while its predecessor still counts."""
        promised = self._promised.get(pod.metadata.namespace, {})
        try:
            short = shortage(pod, self._snapshot.quotas, promised=promised)
        except ValueError as error:
            return Hold(pod=pod, reason=HoldReason.QUOTA, detail=str(error))
        if short is None:
            return None
        detail = f"ResourceQuota {short.quota}: {short.resource}"
        return Hold(
            pod=pod,
            reason=HoldReason.QUOTA,
            detail=detail,
            needed=float(short.needed),
            available=float(short.available),
        )

    def _out_of_turn(self, pod: Pod) -> Hold | None:
        """Gradually: so many in a cycle, so many under way."""
        if self._slots > 0:
            return None
        return Hold(pod=pod, reason=HoldReason.CYCLE_LIMIT, needed=self._rules.max_per_cycle)

    def _place(self, pod: Pod) -> Return | Hold:
        if self._counted.unknown is not None:
            detail = f"home cannot be counted ({self._counted.unknown}): {self._counted.detail}"
            return Hold(pod=pod, reason=HoldReason.FIT_UNKNOWN, detail=detail)
        owner = controller_of(pod.metadata)
        if owner is None:
            raise ValueError(f"pod {pod.metadata.name} has no controller: rules before this one hold it")
        match self._home.place_for(pod, alike=owner.uid):
            case NotFound() as none:
                return self._no_place(pod, none)
            case Found() as place:
                return self._give(pod, place, OwnerRef(kind=owner.kind, name=owner.name, uid=owner.uid))

    def _no_place(self, pod: Pod, none: NotFound) -> Hold:
        if none.unknown:
            return Hold(pod=pod, reason=HoldReason.FIT_UNKNOWN, detail=none.detail)
        reason = HoldReason.WAITING_POD_FIRST if none.waiting_first else HoldReason.NO_HOME_FIT
        needed, available = _gpus(pod, self._rules.resource), self._counted.largest_block
        return Hold(pod=pod, reason=reason, detail=none.detail, needed=needed, available=available)

    def _give(self, pod: Pod, place: Found, owner: OwnerRef) -> Return:
        self._home.book(pod, place.node)
        self._slots -= 1
        ready = ready_replicas(self._owned[owner.uid])
        self._leaving.setdefault(owner.uid, set()).add(pod.metadata.uid)
        namespace = pod.metadata.namespace
        self._promised[namespace] = add(self._promised.get(namespace, {}), charges(pod))
        return Return(
            pod=pod,
            owner=owner,
            home_node=place.node,
            home_free_gpus=place.free_gpus,
            gpus=_gpus(pod, self._rules.resource),
            floor=self._floor(pod),
            ready_replicas=len(ready),
            age_seconds=self._age(pod),
            is_running=is_running(pod),
        )

    def _floor(self, pod: Pod) -> int:
        replica_set = self._snapshot.replica_sets[owner_uid_of(pod)]
        stated = (replica_set.metadata.annotations, pod.metadata.annotations)
        return floor_of(stated, default=self._rules.default_floor)

    def _age(self, pod: Pod) -> float | None:
        since = away_since(pod)
        return None if since is None else (self._now - since).total_seconds()


def _turn(pod: Pod, resource: str) -> tuple[bool, int, str, int, str, str]:
    since = away_since(pod)
    return (
        is_running(pod),
        -priority_of(pod),
        since.isoformat() if since is not None else "~",  # unknown: last
        -_gpus(pod, resource),
        pod.metadata.namespace,
        pod.metadata.name,
    )


def _could_take(node: Node, pod: Pod) -> bool:
    """Whether taints and selectors let a pod like this one onto the node; one that cannot be judged might go there."""
    if untolerated(node.spec.taints, pod.spec.tolerations) is not None:
        return False
    try:
        return selects_node(pod, name=node.metadata.name, labels=node.metadata.labels)
    except ValueError:
        return True


def _gpus(pod: Pod, resource: str) -> int:
    return int(effective_requests(pod).get(resource, 0))


def _is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL
