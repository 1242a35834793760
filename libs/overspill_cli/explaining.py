"""Answers "why" from the ledger's events: why is this pod external, why did the gate open, why was that refused.

Pure: it gets events in order of recording and returns an answer. It claims nothing that no event says; where the ledger
is silent, the answer says so.
"""

from collections.abc import Sequence

from msgspec import Struct

from overspill_cli.narrating import marks, narrate, pod_name
from overspill_events import catalog
from overspill_events.moments import stamp
from overspill_events.reasons import GateReason
from overspill_recorder.ledger import StoredEvent


class Answer(Struct, frozen=True, kw_only=True):
    """A headline, the reasons behind it, and the events they stand on."""

    about: str
    headline: str
    because: tuple[str, ...]
    events: tuple[StoredEvent, ...]


# What a pod's story is told by: the last of each.
_TOLD: tuple[type[catalog.Event], ...] = (
    catalog.InstanceRequested,
    catalog.InstanceCreated,
    catalog.InstanceAdopted,
    catalog.InstanceRunning,
    catalog.InstanceFailed,
    catalog.SpillDeferred,
    catalog.PodHeld,
    catalog.EvictionRefused,
    catalog.ReturnIntended,
    catalog.PodEvicted,
    catalog.ReturnSettled,
    catalog.TerminationDeferred,
    catalog.InstanceTerminated,
    catalog.WorkloadQueued,
    catalog.AdmissionDeferred,
    catalog.WorkloadAdmitted,
    catalog.WorkloadFinished,
)


def explain_pod(name: str, events: Sequence[StoredEvent], gates: Sequence[StoredEvent]) -> Answer:
    """Where a pod is and why. `gates` are the GateDecided, GateOpened and GateClosed events of the whole ledger."""
    if not events:
        return _silent(f"pod {name}")
    because: list[str] = []
    requested = _last(events, catalog.InstanceRequested)
    if requested is not None:
        because.append(_why_external(requested, gates))
    told = [event for kind in _TOLD if (event := _last(events, kind)) is not None]
    because += [_line(event) for event in sorted(told, key=lambda event: event.position)]
    return Answer(
        about=f"pod {name}", headline=_pod_headline(name, events), because=tuple(because), events=tuple(events)
    )


def explain_node(name: str, events: Sequence[StoredEvent]) -> Answer:
    """The state of a virtual node's gate and the decision behind it."""
    moves = [event for event in events if isinstance(event.event, catalog.GateOpened | catalog.GateClosed)]
    decided = _last(events, catalog.GateDecided)
    if not moves and decided is None:
        return _silent(f"node {name}") if not events else Answer(
            about=f"node {name}",
            headline=f"{name}: {len(events)} events, none of them about a gate.",
            because=tuple(_line(event) for event in events[-10:]),
            events=tuple(events),
        )  # fmt: skip
    state = "as it was created (closed)"
    if moves:
        state = (
            f"{'open' if isinstance(moves[-1].event, catalog.GateOpened) else 'closed'} since {stamp(moves[-1].time)}"
        )
    because = [_move(move, events) for move in moves]
    if decided is not None:
        because.append(f"Now, as decided at {stamp(decided.time)}: {_text(decided)}")
    because += _sentence(_last(events, catalog.DriftDetected)) + _sentence(_last(events, catalog.DriftCleared))
    return Answer(
        about=f"node {name}", headline=f"The gate of {name} is {state}.", because=tuple(because), events=tuple(events)
    )


def explain_workload(name: str, events: Sequence[StoredEvent]) -> Answer:
    """Where a queued workload stands and why."""
    if not events:
        return _silent(f"workload {name}")
    last = next((event for event in reversed(events) if type(event.event) in _STAGES), events[-1])
    stage = _STAGES.get(type(last.event), "was last heard of")
    because = [_line(event) for event in events if type(event.event) in _STAGES]
    return Answer(
        about=f"workload {name}",
        headline=f"{name} {stage} at {stamp(last.time)}.",
        because=tuple(because),
        events=tuple(events),
    )


_STAGES: dict[type[object], str] = {
    catalog.WorkloadQueued: "was queued",
    catalog.AdmissionDeferred: "waits, for the reason told",
    catalog.WorkloadAdmitted: "was admitted",
    catalog.WorkloadFinished: "finished",
}


def _pod_headline(name: str, events: Sequence[StoredEvent]) -> str:
    settled, terminated = _last(events, catalog.ReturnSettled), _last(events, catalog.InstanceTerminated)
    evicted, running = _last(events, catalog.PodEvicted), _last(events, catalog.InstanceRunning)
    for event in reversed(events):
        match event.event:
            case catalog.ReturnSettled(successor=successor) as e if successor and pod_name(successor) == name:
                return f"{name} is the successor of {pod_name(e.pod)}, which came back: it is {e.place} on {e.node}."
            case _:
                continue
    if settled is not None or evicted is not None:
        return f"{name} was external and was evicted so that its successor could run at home."
    if terminated is not None:
        return f"{name} was external; its instance is gone."
    if running is not None:
        return f"{name} is external, its instance runs."
    if _last(events, catalog.InstanceRequested) is not None:
        return f"{name} is external, its instance is being provided."
    # Why it has no instance says more than why it is not brought home.
    last = _last(events, catalog.SpillDeferred) or events[-1]
    if last.event is None:
        return f"{name}: {last.type}."
    told = narrate(last.event)
    return f"{told}." if told.startswith(name) else f"{name}: {told}."


def _why_external(requested: StoredEvent, gates: Sequence[StoredEvent]) -> str:
    before = [move for move in gates if move.position < requested.position]
    opened = _last(before, catalog.GateOpened)
    if opened is None:
        return "The ledger holds no opening of the gate before it was bound to the virtual node."
    return f"It overflowed because {_move(opened, before)[:1].lower()}{_move(opened, before)[1:]}"


def _move(move: StoredEvent, events: Sequence[StoredEvent]) -> str:
    """An opening or closing with the figures of the decision that caused it."""
    assert move.event is not None  # noqa: S101 chosen by its type
    text = f"The {narrate(move.event)} at {stamp(move.time)}"
    decided = next((event for event in events if event.id == move.causation_id), None)
    if decided is None:
        earlier = [event for event in events if event.position < move.position]
        decided = _last(earlier, catalog.GateDecided)
    if decided is not None and isinstance(decided.event, catalog.GateDecided) and not _is_ordered(move.event):
        text += f": {marks(decided.event)}"
    return text + "."


def _is_ordered(event: catalog.Event) -> bool:
    """Whether an operator moved the gate: then the marks explain nothing."""
    return isinstance(event, catalog.GateOpened | catalog.GateClosed) and event.reason is GateReason.BY_OPERATOR


def _last(events: Sequence[StoredEvent], kind: type[catalog.Event]) -> StoredEvent | None:
    return next((event for event in reversed(events) if isinstance(event.event, kind)), None)


def _sentence(event: StoredEvent | None) -> list[str]:
    return [] if event is None else [_line(event)]


def _line(event: StoredEvent) -> str:
    return f"{stamp(event.time)} {_text(event)}"


def _text(event: StoredEvent) -> str:
    return narrate(event.event) if event.event is not None else f"{event.type} (unknown to this version)"


def _silent(about: str) -> Answer:
    return Answer(about=about, headline=f"The ledger knows nothing about {about}.", because=(), events=())
