"""Which waiting pods have room coming to them, and whose going they wait for.

A nomination is a hint: the room is kept from less important pods, and the pod takes another place if it finds one. It
must not know how victims are chosen.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from overspill_lab.scheduler.ask import Ask
from overspill_lab.scheduler.preemption import Candidate


class _Nomination(Struct, frozen=True, kw_only=True):
    ask: Ask
    node_name: str


class Nominations:
    """The nominations of one scheduler."""

    def __init__(self) -> None:
        self._by_uid: dict[str, _Nomination] = {}
        # Victims that have not been seen to leave yet. Once they are, their own condition holds the preemptor back.
        self._awaited: dict[str, set[str]] = {}

    def note(self, ask: Ask, node_name: str) -> None:
        """The API server says that the pod is nominated: a predecessor has done that."""
        self._by_uid[ask.uid] = _Nomination(ask=ask, node_name=node_name)

    def make(self, ask: Ask, candidate: Candidate) -> tuple[Ask, ...]:
        """Nominate a pod to the room that its victims will leave; less important ones lose their claim on that node.

        The victims that nobody has told to go yet.
        """
        for uid, known in list(self._by_uid.items()):
            if known.node_name == candidate.node_name and known.ask.priority < ask.priority:
                self.drop(uid)
        self.note(ask, candidate.node_name)
        told = set().union(*self._awaited.values())
        if staying := {victim.uid: victim for victim in candidate.victims if not victim.leaving}:
            self._awaited[ask.uid] = set(staying)
        return tuple(victim for uid, victim in staying.items() if uid not in told)

    def drop(self, uid: str) -> bool:
        """The pod waits for no room any more; whether it did."""
        self._awaited.pop(uid, None)
        return self._by_uid.pop(uid, None) is not None

    def victim_settled(self, uid: str) -> None:
        """A victim has been seen to leave, or will not."""
        for waiting, victims in list(self._awaited.items()):
            victims.discard(uid)
            if not victims:
                del self._awaited[waiting]

    def awaits(self, uid: str) -> bool:
        """Whether the pod has victims that have not been seen to leave."""
        return uid in self._awaited

    def node_of(self, uid: str) -> str:
        """The node that the pod is nominated to; empty without."""
        known = self._by_uid.get(uid)
        return known.node_name if known is not None else ""

    def before(self, ask: Ask) -> Mapping[str, Sequence[Ask]]:
        """By node: the other pods whose claim on its room comes before this pod's."""
        claims: dict[str, list[Ask]] = {}
        for uid, known in self._by_uid.items():
            if uid != ask.uid and known.ask.priority >= ask.priority:
                claims.setdefault(known.node_name, []).append(known.ask)
        return claims
