"""How a return ends: which pod took the place of the one that left, and where it landed. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from overspill_capacity.nodes import is_virtual
from overspill_capacity.room import TERMINAL
from overspill_events.catalog import PodRef, ReturnSettled
from overspill_events.reasons import Place
from overspill_evictor.floor import owner_uid_of
from overspill_evictor.memory import OpenReturn
from overspill_objects.core import Node, Pod


class Settlement(Struct, frozen=True, kw_only=True):
    """The end of one return."""

    open_return: OpenReturn
    event: ReturnSettled


def pod_ref(pod: Pod) -> PodRef:
    """The pod's identity as events carry it."""
    return PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)


def successors(
    open_returns: Iterable[OpenReturn], pods: Iterable[Pod], *, taken: Collection[str] = ()
) -> dict[str, Pod]:
    """UID of the pod that left → the pod that took its place, one to one: who has the fewest claimants
    first, then oldest with oldest.

    A successor has the same owner, appeared after the intent and is not `taken` (by a return settled before).
    """
    returns = sorted(open_returns, key=lambda one: (one.envelope.time, one.uid))
    leaving = {one.uid for one in returns}
    owners = {one.intent.owner.uid for one in returns}
    free = [pod for pod in pods if owner_uid_of(pod) in owners and pod.metadata.uid not in leaving and _lives(pod)]
    matched: dict[str, Pod] = {}
    claimed = set(taken)

    def preference(pod: Pod) -> tuple[int, datetime, str]:
        # A pod that fewer others may take first: creation times are whole seconds and tell less than who was there.
        return sum(_follows(pod, one) for one in returns), _created(pod), pod.metadata.name

    for one in returns:
        fitting = [pod for pod in free if pod.metadata.uid not in claimed and _follows(pod, one)]
        if fitting:
            heir = min(fitting, key=preference)
            claimed.add(heir.metadata.uid)
            matched[one.uid] = heir
    return matched


def settle(
    open_returns: Iterable[OpenReturn], heirs: Mapping[str, Pod], nodes: Iterable[Node], *, now: datetime
) -> tuple[Settlement, ...]:
    """The returns that are over: their successor is bound, or their time is up. Only evicted ones can be over."""
    by_name = {node.metadata.name: node for node in nodes}
    return tuple(
        Settlement(open_return=one, event=end)
        for one in open_returns
        if one.evicted_at is not None and (end := _end(one, heirs.get(one.uid), by_name, now=now)) is not None
    )


def rests_on_absence(ends: Iterable[Settlement]) -> bool:
    """Whether an end was judged by what was not seen: a copy that lags says so too, only a live list may."""
    return any(end.event.place in {Place.EXPIRED, Place.PENDING} for end in ends)


def not_evicted(one: OpenReturn, *, detail: str) -> ReturnSettled:
    """The end of an intent that came to nothing: its room is free again and nobody is blamed."""
    return ReturnSettled(pod=one.intent.pod, place=Place.NOT_EVICTED, node=one.intent.node, detail=detail)


def _end(one: OpenReturn, heir: Pod | None, nodes: Mapping[str, Node], *, now: datetime) -> ReturnSettled | None:
    pod = one.intent.pod
    if heir is not None and (node := nodes.get(heir.spec.node_name)) is not None:
        place = Place.VIRTUAL if is_virtual(node) else Place.HOME
        detail = "" if node.metadata.name == one.intent.home_node else f"{one.intent.home_node} was expected"
        return ReturnSettled(pod=pod, place=place, successor=pod_ref(heir), node=node.metadata.name, detail=detail)
    if now < one.intent.expires_at:
        return None
    if heir is None:
        return ReturnSettled(pod=pod, place=Place.EXPIRED, detail="no successor appeared in time")
    return ReturnSettled(
        pod=pod, place=Place.PENDING, successor=pod_ref(heir), detail="the successor was not placed in time"
    )


def _follows(pod: Pod, one: OpenReturn) -> bool:
    if owner_uid_of(pod) != one.intent.owner.uid:
        return False
    if one.siblings is not None:
        return pod.metadata.uid not in one.siblings
    # Told by a predecessor: only the time is left to judge by. Creation times are whole seconds.
    return _created(pod) >= one.envelope.time.replace(microsecond=0)


def _lives(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL


def _created(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
