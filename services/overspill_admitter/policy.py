"""What is admitted now, and why each of the others waits. Pure: snapshot + rules → plan.

Everything charged to a queue is counted first; then the waiting are asked in order of priority, then age, then UID,
each against what those before have left. Nothing here remembers: the same snapshot gives the same plan.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from overspill_admitter.memory import Given, OpenReturn
from overspill_admitter.quota import Assigned, Flavors, NoFlavor, Usage, assign, first_flavors, is_virtual, uses_of
from overspill_admitter.room import Room
from overspill_admitter.workload import State, Workload
from overspill_capacity.room import HomeSnapshot
from overspill_events.catalog import QuotaUse
from overspill_events.reasons import DeferReason
from overspill_objects.core import Pod
from overspill_objects.meta import selects
from overspill_objects.queues import ClusterQueue, LocalQueue, ResourceFlavor

RUNNING: Final = "None"  # stopPolicy of a queue that admits
STRICT: Final = "StrictFIFO"


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything a decision rests on.

    `home` counts nodes, bound pods and the rooms booked for returns; `under_way` are pods outside the queues that wait
    for a node. `expected` are UIDs of workloads that were admitted by us and still look as if they waited.
    """

    workloads: tuple[Workload, ...]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    cluster_queues: Mapping[str, ClusterQueue]
    flavors: Mapping[str, ResourceFlavor]
    namespaces: Mapping[str, Mapping[str, str]]  # name → labels
    home: HomeSnapshot
    under_way: tuple[Pod, ...] = ()
    expected: frozenset[str] = frozenset()
    given: Mapping[str, Given] = {}  # UID → what it was given when it was admitted
    heirs: Mapping[str, str] = {}  # UID of an admitted successor → UID of the pod whose quota it has
    returns: tuple[OpenReturn, ...] = ()


class Rules(Struct, frozen=True, kw_only=True):
    """The settings that judge."""

    home_flavors: tuple[str, ...] = ()  # home whatever their labels say


class Admit(Struct, frozen=True, kw_only=True):
    """Release this workload."""

    workload: Workload
    cluster_queue: str
    flavors: Flavors
    quota: tuple[QuotaUse, ...]
    home_room: float | None = None
    inherited: OpenReturn | None = None


class Defer(Struct, frozen=True, kw_only=True):
    """This workload waits."""

    workload: Workload
    reason: DeferReason
    cluster_queue: str = ""
    detail: str = ""
    quota: tuple[QuotaUse, ...] = ()
    home_room: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """One answer for every waiting workload."""

    admits: tuple[Admit, ...]
    defers: tuple[Defer, ...]
    usage: Mapping[str, Usage]  # ClusterQueue → after the plan


def decide(snapshot: Snapshot, rules: Rules) -> Plan:
    """Judge every waiting workload."""
    cycle = _Cycle(snapshot, rules)
    waiting = sorted(
        (one for one in snapshot.workloads if one.state is State.WAITING and one.ref.uid not in snapshot.expected),
        key=lambda one: (-one.priority, one.created, one.ref.uid),
    )
    answers = [cycle.judge(one) for one in waiting]
    return Plan(
        admits=tuple(one for one in answers if isinstance(one, Admit)),
        defers=tuple(one for one in answers if isinstance(one, Defer)),
        usage=cycle.usage,
    )


def heirs_of(
    returns: Iterable[OpenReturn], snapshot: Snapshot, *, taken: Collection[str] = ()
) -> dict[str, OpenReturn]:
    """UID of a waiting successor → the return it belongs to: same owner, younger, one to one, oldest with oldest.

    Returns of pods in `taken` have their successor already.
    """
    by_uid = {one.ref.uid: one for one in snapshot.workloads}
    free = sorted(
        (one for one in snapshot.workloads if one.state is State.WAITING and one.owner_uid),
        key=lambda one: (one.created, one.ref.name),
    )
    found: dict[str, OpenReturn] = {}
    for one in sorted(returns, key=lambda item: (item.envelope.time, item.intent.pod.uid)):
        left = by_uid.get(one.intent.pod.uid)
        has_left = one.is_evicted or left is None or left.is_leaving
        if not has_left or one.intent.pod.uid in taken:
            continue
        born = one.envelope.time.replace(microsecond=0)  # creation times are whole seconds
        heir = next(
            (
                pod
                for pod in free
                if pod.owner_uid == one.intent.owner.uid and pod.created >= born and pod.ref.uid not in found
            ),
            None,
        )
        if heir is not None:
            found[heir.ref.uid] = one
    return found


class _Cycle:
    """One decision: usage and room so far, and the queues that are blocked by their head."""

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._snapshot, self._rules = snapshot, rules
        self.usage: dict[str, Usage] = {name: Usage() for name in snapshot.cluster_queues}
        self._blocked: dict[str, str] = {}  # StrictFIFO queue → the head that waits
        self._charged_to: dict[str, str] = {}  # UID → the ClusterQueue that it is charged to
        self._room = Room(snapshot.home)
        charged = [one for one in snapshot.workloads if self._is_charged(one)]
        uids = {one.ref.uid for one in charged}
        # Whoever has an heir hands its quota on, as long as the heir is charged for it.
        replaced = {left for heir, left in snapshot.heirs.items() if heir in uids}
        for one in sorted(charged, key=lambda item: (item.created, item.ref.uid)):
            if one.ref.uid not in replaced:
                self._charge(one)
        self._charge_ghosts(present={one.ref.uid for one in snapshot.workloads}, replaced=replaced)
        # Without a charge to take over, a successor is admitted like everybody else.
        heirs = heirs_of(snapshot.returns, snapshot, taken=replaced)
        self._heirs = {uid: one for uid, one in heirs.items() if one.intent.pod.uid in self._charged_to}
        for pod in snapshot.under_way:
            self._room.take_under_way(pod, 1, may_overflow=True)

    def _charge_ghosts(self, *, present: set[str], replaced: set[str]) -> None:
        """A pod that left for a return and is gone keeps its quota until its successor has it."""
        for one in self._snapshot.returns:
            uid = one.intent.pod.uid
            given = self._snapshot.given.get(uid)
            if uid not in present | replaced and given is not None and given.cluster_queue in self.usage:
                self.usage[given.cluster_queue].charge(given.flavors, given.requests)
                self._charged_to[uid] = given.cluster_queue

    def judge(self, workload: Workload) -> Admit | Defer:
        """The first rule that speaks defers the workload; if none does, it is admitted and counted."""
        queue = self._queue_of(workload)
        if isinstance(queue, Defer):
            return queue
        name = queue.metadata.name
        one = self._heirs.get(workload.ref.uid)
        # Quota of one ClusterQueue is none in another, to which the LocalQueue may point since.
        if one is not None and self._charged_to[one.intent.pod.uid] == name:
            return self._inherit(workload, queue, one)
        if name in self._blocked:
            detail = f"{self._blocked[name]} is first"
            return Defer(workload=workload, reason=DeferReason.BEHIND_HEAD, cluster_queue=name, detail=detail)
        answer = self._admit(workload, queue)
        if isinstance(answer, Defer) and queue.spec.queueing_strategy == STRICT:
            self._blocked[name] = f"{workload.ref.kind} {workload.ref.namespace}/{workload.ref.name}"
        return answer

    def _is_charged(self, workload: Workload) -> bool:
        return workload.state is State.ADMITTED or workload.ref.uid in self._snapshot.expected

    def _queue_of(self, workload: Workload) -> ClusterQueue | Defer:
        """The ClusterQueue, or why the workload's queue admits nothing."""
        snapshot, namespace = self._snapshot, workload.ref.namespace

        def no(reason: DeferReason, detail: str, queue: str = "") -> Defer:
            return Defer(workload=workload, reason=reason, detail=detail, cluster_queue=queue)

        local = snapshot.local_queues.get((namespace, workload.queue))
        if local is None:
            return no(DeferReason.NO_LOCAL_QUEUE, f"LocalQueue {namespace}/{workload.queue} doesn't exist")
        name = local.spec.cluster_queue
        queue = snapshot.cluster_queues.get(name)
        if queue is None:
            return no(DeferReason.NO_CLUSTER_QUEUE, f"ClusterQueue {name} doesn't exist", name)
        if local.spec.stop_policy != RUNNING:
            return no(DeferReason.QUEUE_STOPPED, f"LocalQueue {workload.queue} is stopped", name)
        if queue.spec.stop_policy != RUNNING:
            return no(DeferReason.QUEUE_STOPPED, f"ClusterQueue {name} is stopped", name)
        if workload.problem:
            return no(DeferReason.UNKNOWN, workload.problem, name)
        try:
            chosen = selects(queue.spec.namespace_selector, snapshot.namespaces.get(namespace, {}))
        except ValueError as error:
            return no(DeferReason.BAD_QUEUE, str(error), name)
        if not chosen:
            return no(DeferReason.BAD_QUEUE, "workload namespace doesn't match ClusterQueue selector", name)
        return queue

    def _admit(self, workload: Workload, queue: ClusterQueue) -> Admit | Defer:
        name, snapshot = queue.metadata.name, self._snapshot
        room_before, mark = self._room.free, self._room.mark()
        at_home = False

        def veto(flavor: ResourceFlavor) -> NoFlavor | None:
            """A home flavor needs a place for every pod; the place is taken once, whatever groups ask."""
            nonlocal at_home
            if at_home or not self._is_home(flavor):
                return None
            refusal = self._room.take(workload.pod, workload.pods)
            at_home = refusal is None
            return None if refusal is None else NoFlavor(reason=refusal.reason, detail=refusal.detail)

        try:
            answer = assign(
                queue, workload.pod, workload.requests, usage=self.usage[name], flavors=snapshot.flavors, veto=veto
            )
        except ValueError as error:
            answer = NoFlavor(reason=DeferReason.BAD_QUEUE, detail=str(error))
        if isinstance(answer, NoFlavor):
            self._room.restore(mark)  # one group may have found its place before another found no quota
            return Defer(
                workload=workload,
                reason=answer.reason,
                cluster_queue=name,
                detail=answer.detail,
                quota=answer.quota,
                home_room=room_before if answer.reason is DeferReason.NO_HOME_ROOM else None,
            )
        self.usage[name].charge(answer.flavors, workload.requests)
        return Admit(
            workload=workload,
            cluster_queue=name,
            flavors=answer.flavors,
            quota=answer.quota,
            home_room=room_before if at_home else None,
        )

    def _inherit(self, workload: Workload, queue: ClusterQueue, one: OpenReturn) -> Admit:
        """The successor of a returning pod takes over what its predecessor is charged with; its room is booked."""
        name = queue.metadata.name
        given = self._snapshot.given.get(one.intent.pod.uid)
        flavors = given.flavors if given is not None else self._assign_blindly(workload, name)
        quota = uses_of(queue, flavors, workload.requests, usage=self.usage[name])
        return Admit(workload=workload, cluster_queue=name, flavors=flavors, quota=quota, inherited=one)

    def _charge(self, workload: Workload) -> None:
        """Count what is admitted: in the queue and flavors it was given, else where it would go.

        What runs keeps what it was given though its LocalQueue is gone or points elsewhere now.
        """
        if workload.problem:
            return
        given = self._snapshot.given.get(workload.ref.uid)
        local = self._snapshot.local_queues.get((workload.ref.namespace, workload.queue))
        name = local.spec.cluster_queue if local is not None else ""
        flavors: Flavors = {}
        if given is not None:
            name, flavors = given.cluster_queue, given.flavors
        elif name in self.usage:
            flavors = self._assign_blindly(workload, name)
        if name in self.usage:
            self.usage[name].charge(flavors, workload.requests)
            self._charged_to[workload.ref.uid] = name
        unbound = workload.unbound if workload.state is State.ADMITTED else workload.pods
        may_overflow = not any(self._is_home_name(flavor) for flavor in flavors.values())
        self._room.take_under_way(workload.pod, unbound, may_overflow=may_overflow)

    def _assign_blindly(self, workload: Workload, name: str) -> Flavors:
        """Quota alone decides; over-use goes to the first flavors."""
        queue = self._snapshot.cluster_queues[name]
        try:
            answer = assign(
                queue,
                workload.pod,
                workload.requests,
                usage=self.usage[name],
                flavors=self._snapshot.flavors,
                veto=lambda _: None,
            )
        except ValueError:
            answer = None  # `judge` names the quota that is none
        return answer.flavors if isinstance(answer, Assigned) else first_flavors(queue, workload.requests)

    def _is_home_name(self, name: str) -> bool:
        flavor = self._snapshot.flavors.get(name)
        return flavor is None or self._is_home(flavor)

    def _is_home(self, flavor: ResourceFlavor) -> bool:
        return flavor.metadata.name in self._rules.home_flavors or not is_virtual(flavor)
