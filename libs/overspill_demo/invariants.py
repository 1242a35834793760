"""What must be true at the end, judged on observations made from the outside.

Pure: it gets an Observation and says which promises held. It must not ask the services anything; an event counts only
as something that stands in the stream, never as proof of what it claims.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise

from msgspec import Struct

from overspill_events.reasons import Place


class Eviction(Struct, frozen=True, kw_only=True):
    """A pod that the API server marked as evicted, and its owner's other Ready pods at that moment."""

    uid: str
    pod: str  # namespace/name
    owner: str
    spilled: bool
    was_ready: bool
    ready_others: int


class Lifetime(Struct, frozen=True, kw_only=True):
    """One instance's life as the provider's own audit has it; times in seconds of its clock, None while it goes on."""

    instance: str
    pod_uid: str
    gpus: int
    created: float
    ended: float | None
    ours: bool  # carries our cluster's tag


class Return(Struct, frozen=True, kw_only=True):
    """One return as the stream tells it: each intent with the endings that name it as their cause."""

    uid: str
    pod: str  # namespace/name
    begun: bool  # False: it ended, and no intent stands before that
    ends: tuple[Place, ...]


class Observation(Struct, frozen=True, kw_only=True):
    """Everything that was seen."""

    pods_spilled: int
    spilled_left: tuple[str, ...]  # pods still on the virtual node
    vanished: tuple[str, ...]  # spilled pods that failed, or went away without an eviction
    returned: int
    deployments_short: tuple[str, ...]  # "name: 3 of 4 at home"
    jobs_unfinished: tuple[str, ...]
    gate_openings: int
    gate_closings: int
    gate_closed_at_end: bool
    evictions: tuple[Eviction, ...]
    successions: tuple[tuple[str, str], ...]  # (pod that left, its successor) as the stream tells them, by UID
    owners: Mapping[str, str]  # pod UID → its Deployment, as the API server showed them
    returns: tuple[Return, ...]
    intents_before: frozenset[str]  # pod UIDs whose ReturnIntended stands in the stream before their eviction's event
    instances: tuple[Lifetime, ...]
    announced_instances: frozenset[str]  # instances with InstanceCreated or InstanceAdopted in the stream
    ended_instances: frozenset[str]  # instances with InstanceTerminated in the stream
    pods_seen: frozenset[str]  # UIDs of all pods the API server ever showed
    max_external_gpus: int
    stream_gaps: Mapping[str, int]  # source → missing numbers
    events_in_stream: int
    events_in_ledger: int
    floor: int


class Invariant(Struct, frozen=True, kw_only=True):
    """One promise, kept or not, with the figures."""

    name: str
    ok: bool
    detail: str


def judge(seen: Observation) -> tuple[Invariant, ...]:
    """Every promise of the story, in the order a reader would ask."""
    return tuple(_judged(name, rule(seen)) for name, rule in RULES.items())


def orphans(seen: Observation) -> list[str]:
    """Instances of ours whose pod was never there, or that live although the story is over."""
    return [
        life.instance
        for life in seen.instances
        if life.ours and (life.pod_uid not in seen.pods_seen or life.ended is None)
    ]


def duplicates(seen: Observation) -> list[str]:
    """Pods that had two instances alive at once."""
    lives: dict[str, list[Lifetime]] = {}
    for life in sorted(seen.instances, key=lambda life: life.created):
        if life.ours:
            lives.setdefault(life.pod_uid, []).append(life)
    return [uid for uid, several in lives.items() if any(_overlap(a, b) for a, b in pairwise(several))]


def peak_gpus(seen: Observation) -> int:
    """Most external GPUs held at one moment."""
    changes = [(life.created, life.gpus) for life in seen.instances if life.ours]
    changes += [(life.ended, -life.gpus) for life in seen.instances if life.ours and life.ended is not None]
    held = peak = 0
    for _, change in sorted(changes):  # an end before a beginning at the same instant
        held += change
        peak = max(peak, held)
    return peak


def _overlap(first: Lifetime, second: Lifetime) -> bool:
    return first.ended is None or second.created < first.ended


def _judged(name: str, problem_or_figures: tuple[bool, str]) -> Invariant:
    ok, detail = problem_or_figures
    return Invariant(name=name, ok=ok, detail=detail)


def _some(items: list[str] | tuple[str, ...], shown: int = 5) -> str:
    rest = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + rest


def _none_of(items: list[str] | tuple[str, ...], what: str) -> tuple[bool, str]:
    return (True, f"0 {what}") if not items else (False, f"{len(items)} {what}: {_some(items)}")


def _home(seen: Observation) -> tuple[bool, str]:
    if seen.spilled_left:
        return _none_of(seen.spilled_left, "pods are still external")
    return True, f"{seen.pods_spilled} spilled, {seen.returned} evicted to return, 0 left external"


def _gate(seen: Observation) -> tuple[bool, str]:
    ok = seen.gate_openings == 1 and seen.gate_closings == 1 and seen.gate_closed_at_end
    end = "closed" if seen.gate_closed_at_end else "open"
    return ok, f"{seen.gate_openings} openings, {seen.gate_closings} closings, {end} at the end"


def _floors(seen: Observation) -> tuple[bool, str]:
    below = [
        f"{e.pod} ({e.ready_others} others ready)"
        for e in seen.evictions
        if e.was_ready and e.ready_others < seen.floor
    ]
    return _none_of(below, f"evictions below the floor of {seen.floor}")


def _once(seen: Observation) -> tuple[bool, str]:
    """No pod twice, and none that was at home already: a return moves a spilled pod once."""
    twice = [uid for uid, count in Counter(e.uid for e in seen.evictions).items() if count > 1]
    foreign = [e.pod for e in seen.evictions if not e.spilled]
    ok = not twice and not foreign
    return ok, f"{len(seen.evictions)} evictions, {len(twice)} twice, {len(foreign)} of pods that were at home"


def _intents(seen: Observation) -> tuple[bool, str]:
    return _none_of(
        [e.pod for e in seen.evictions if e.uid not in seen.intents_before], "evictions without an intent before"
    )


def _successors(seen: Observation) -> tuple[bool, str]:
    """One successor for one that left, both of the same Deployment."""
    wrong = [heir for left, heir in seen.successions if seen.owners.get(left) != seen.owners.get(heir)]
    heirs = Counter(heir for _, heir in seen.successions)
    twice = [heir for heir, count in heirs.items() if count > 1]
    return not wrong and not twice, f"{len(heirs)} successors, {len(wrong)} of another owner, {len(twice)} told twice"


def _settled(seen: Observation) -> tuple[bool, str]:
    """Every return ends once, and none by its time running out: Deployments only grow in a story, so that each of their
    pods that was evicted has a successor. Nor does the stream call a pod not evicted that the API server saw evicted.
    """
    evicted = {one.uid for one in seen.returns if set(one.ends) - {Place.NOT_EVICTED}}
    problems = {
        "not ended": [one.pod for one in seen.returns if not one.ends],
        "ended more than once": [one.pod for one in seen.returns if len(one.ends) > 1],
        "ended without an intent": [one.pod for one in seen.returns if not one.begun],
        "expired": [one.pod for one in seen.returns if Place.EXPIRED in one.ends],
        "evicted and not told so at the end": [one.pod for one in seen.evictions if one.uid not in evicted],
    }
    found = [f"{len(pods)} {what}: {_some(pods)}" for what, pods in problems.items() if pods]
    places = Counter(place.value for one in seen.returns for place in one.ends)
    ends = ", ".join(f"{count} {place}" for place, count in sorted(places.items()))
    return not found, "; ".join((f"{len(seen.returns)} returns: {ends or 'no end'}", *found))


def _announced(seen: Observation) -> tuple[bool, str]:
    ours = [life.instance for life in seen.instances if life.ours]
    silent = [i for i in ours if i not in seen.announced_instances or i not in seen.ended_instances]
    return _none_of(silent, "instances whose life is not in the stream")


def _gaps(seen: Observation) -> tuple[bool, str]:
    return _none_of([f"{source}: {count}" for source, count in seen.stream_gaps.items() if count], "sources with gaps")


def _ledger(seen: Observation) -> tuple[bool, str]:
    detail = f"{seen.events_in_stream} events in the stream, {seen.events_in_ledger} in the ledger"
    return seen.events_in_stream == seen.events_in_ledger, detail


def _ceiling(seen: Observation) -> tuple[bool, str]:
    peak = peak_gpus(seen)
    return peak <= seen.max_external_gpus, f"at most {peak} of {seen.max_external_gpus} external GPUs"


RULES: Mapping[str, Callable[[Observation], tuple[bool, str]]] = {
    "spilled-pods-came-home-or-finished": _home,
    "spilled-pods-leave-by-eviction-only": lambda seen: _none_of(
        seen.vanished, "spilled pods failed or went without an eviction"
    ),
    "deployments-whole-at-home": lambda seen: _none_of(
        seen.deployments_short, "deployments are short of replicas at home"
    ),
    "research-finished": lambda seen: _none_of(seen.jobs_unfinished, "research jobs are unfinished"),
    "no-instance-lives": lambda seen: _none_of(
        [life.instance for life in seen.instances if life.ours and life.ended is None], "instances still live"
    ),
    "no-orphans": lambda seen: _none_of(orphans(seen), "orphaned instances"),
    "no-duplicates": lambda seen: _none_of(duplicates(seen), "pods had two instances at once"),
    "gate-opened-once-and-closed-once": _gate,
    "owners-stay-above-their-floor": _floors,
    "nobody-evicted-twice": _once,
    "intent-before-every-eviction": _intents,
    "successors-are-of-the-same-owner": _successors,
    "every-return-ends-once-and-none-expires": _settled,
    "every-instance-on-the-record": _announced,
    "external-gpus-within-the-ceiling": _ceiling,
    "no-gaps-in-the-stream": _gaps,
    "ledger-equals-stream": _ledger,
}
