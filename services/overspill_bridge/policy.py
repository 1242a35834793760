"""What to do about one pod: everything known about it in, one decision out. Pure.

The first rule that speaks wins; rules go from what ends things to what starts them. A decision that would spend or end
something is only made on knowledge that is complete; otherwise it is to wait.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from overspill_bridge import podstatus
from overspill_bridge.podstatus import Desired
from overspill_bridge.sighting import Flight, Sighting
from overspill_bridge.support import unsupported
from overspill_bridge.wishes import Problem, Wish, is_opted_in, wish_of
from overspill_events.names import INSTANCE_ANNOTATION
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_objects.core import Pod
from overspill_providers.protocol import InstanceState


class Rules(Struct, frozen=True, kw_only=True):
    """The settings that decisions depend on; seconds."""

    resource: str
    max_external_gpus: int
    list_lag: float
    start_deadline: float
    terminate_again: float


class Case(Struct, frozen=True, kw_only=True):
    """Everything known about one pod now. `now` is wall time, `moment` the same on the monotonic clock."""

    pod: Pod
    now: datetime
    moment: float
    sightings: tuple[Sighting, ...] = ()
    flight: Flight | None = None
    knows_enough: bool = False  # an instance that we have not seen can be ruled out
    api_is_fresh: bool = True  # the cache was in contact with the API server lately
    paused: str | None = None  # an operator wants no new instances, in words
    provider_is_down: bool = False  # one that would have to be asked does not answer
    missing_provider: str | None = None  # the pod is marked with an instance of a provider that nobody can be asked
    was_lost: bool = False  # this process has seen an instance of the pod vanish
    released: frozenset[str] = (
        frozenset()
    )  # instances whose marks this process took off the pod, seen by the cache or not


class Leave(Struct, frozen=True):
    """Nothing to do."""


class Wait(Struct, frozen=True, kw_only=True):
    """Not enough is known; the next list or the next contact brings it on."""

    reason: SpillReason | None = None  # shown to people if it concerns a pod that wants to run
    detail: str = ""


class Defer(Struct, frozen=True, kw_only=True):
    """It gets no instance now. Tried again with growing pauses, never given up."""

    reason: SpillReason
    detail: str
    tried: tuple[str, ...] = ()


class Acquire(Struct, frozen=True, kw_only=True):
    """It should get an instance that fits the wish."""

    wish: Wish


class End(Struct, frozen=True, kw_only=True):
    """Terminate these instances. With `release` the pod keeps waiting for another one."""

    targets: tuple[Sighting, ...]
    end: InstanceEnd
    release: bool = False


class Keep(Struct, frozen=True, kw_only=True):
    """It has its instance: write down whose and how it is. `desired` None: the state says nothing new."""

    sighting: Sighting
    desired: Desired | None


class Conclude(Struct, frozen=True, kw_only=True):
    """It is over for the pod: write the last status. `sighting` None: the instance is not even known any more."""

    desired: Desired
    end: InstanceEnd
    sighting: Sighting | None = None


class Finish(Struct, frozen=True):
    """Nothing of it is left outside: the API object of a pod being deleted may go."""


Decision: TypeAlias = Leave | Wait | Defer | Acquire | End | Keep | Conclude | Finish
Rule: TypeAlias = Callable[[Case, Rules], Decision | None]

ENDED = frozenset({InstanceState.EXITED, InstanceState.FAILED, InstanceState.PREEMPTED})


def decide(case: Case, rules: Rules) -> Decision:
    """The first rule that speaks wins."""
    for rule in RULES:
        decision = rule(case, rules)
        if decision is not None:
            return decision
    return Leave()


def keeper(case: Case, rules: Rules) -> Sighting | None:
    """The instance that is the pod's: among living ones the one that runs, then the oldest, then by name.

    Instances that we are ending count only when there is no other; the choice is the same in every process.
    """
    present = [s for s in case.sightings if not s.is_gone(now=case.moment, list_lag=rules.list_lag) or is_untold(s)]

    def rank(sighting: Sighting) -> tuple[bool, bool, bool, datetime, str, str]:
        instance = sighting.instance
        return (
            sighting.ending is not None,
            not instance.is_living,
            instance.state is not InstanceState.RUNNING,
            instance.created_at,
            sighting.provider,
            instance.id,
        )

    return min(present, key=rank, default=None)


def is_untold(sighting: Sighting) -> bool:
    """Whether it ended by itself and we did not answer with a termination: how it ended is still to be written down."""
    return sighting.instance.state in ENDED and sighting.ending is None


def to_end(
    sightings: tuple[Sighting, ...], rules: Rules, *, moment: float, spare: Sighting | None = None
) -> tuple[Sighting, ...]:
    """Instances to terminate now: all that are there but `spare`; those already ending only after a long while."""
    return tuple(
        sighting
        for sighting in sightings
        if sighting != spare
        and not sighting.is_gone(now=moment, list_lag=rules.list_lag)
        and (sighting.ended_at is None or moment - sighting.ended_at >= rules.terminate_again)
    )


def may_end(end: InstanceEnd, live: Pod | None, *, uid: str) -> bool:
    """Whether the pod, as just read live (None: there is none of its name), still justifies ending its instance."""
    if live is None or live.metadata.uid != uid:
        return True
    match end:
        case InstanceEnd.POD_GONE | InstanceEnd.ORPHAN:
            return False
        case InstanceEnd.POD_DELETED:
            return live.metadata.deletion_timestamp is not None
        case InstanceEnd.DUPLICATE:
            return True
        case InstanceEnd.START_DEADLINE:
            return not podstatus.is_started(live)
        case _:
            return live.status.phase in podstatus.TERMINAL


def _duplicates(case: Case, rules: Rules) -> Decision | None:
    """More than one instance: all but the pod's own go."""
    kept = keeper(case, rules)
    extras = tuple(s for s in to_end(case.sightings, rules, moment=case.moment, spare=kept) if s.ending is None)
    return End(targets=extras, end=InstanceEnd.DUPLICATE) if kept is not None and extras else None


def _deleted(case: Case, rules: Rules) -> Decision | None:
    """A pod being deleted leaves the API only when nothing of it is left outside."""
    if case.pod.metadata.deletion_timestamp is None:
        return None
    if targets := to_end(case.sightings, rules, moment=case.moment):
        return End(targets=targets, end=InstanceEnd.POD_DELETED)
    if keeper(case, rules) is not None or case.flight is not None:
        return Wait()
    # The label may have been taken off since the pod got its instance.
    may_have_one = is_opted_in(case.pod) or _had_one(case) or case.missing_provider is not None
    return (_unsure(case) if may_have_one else None) or Finish()


def _terminal(case: Case, rules: Rules) -> Decision | None:
    """Terminal is terminal: the status is never touched again, and no instance outlives it."""
    if case.pod.status.phase not in podstatus.TERMINAL:
        return None
    targets = to_end(case.sightings, rules, moment=case.moment)
    return End(targets=targets, end=_end_of_finished(case)) if targets else Leave()


def _end_of_finished(case: Case) -> InstanceEnd:
    if case.pod.status.reason == podstatus.REASON_DEADLINE:
        return InstanceEnd.POD_DEADLINE
    ended = next((s.instance for s in case.sightings if s.instance.state in ENDED), None)
    return InstanceEnd.POD_FINISHED if ended is None else podstatus.end_of(ended)


def _deadline(case: Case, _: Rules) -> Decision | None:
    """activeDeadlineSeconds, counted as the kubelet does: from the pod's start."""
    limit, start = case.pod.spec.active_deadline_seconds, case.pod.status.start_time
    if limit is None or start is None or case.now < start + timedelta(seconds=limit):
        return None
    message = f"Pod was active on the node longer than the specified deadline ({limit} s)"
    desired = podstatus.failed(case.pod, reason=podstatus.REASON_DEADLINE, message=message, now=case.now)
    return Conclude(desired=desired, end=InstanceEnd.POD_DEADLINE)


def _present(case: Case, rules: Rules) -> Decision | None:
    """It has an instance, living or ended."""
    kept = keeper(case, rules)
    if kept is None:
        return None
    instance = kept.instance
    if kept.ending is not None:
        return Wait()
    if instance.state in ENDED:
        desired = podstatus.concluded(case.pod, provider=kept.provider, instance=instance, now=case.now)
        return Conclude(desired=desired, end=podstatus.end_of(instance), sighting=kept)
    if instance.state is InstanceState.RUNNING:
        desired = podstatus.running(case.pod, provider=kept.provider, instance=instance, now=case.now)
        return Keep(sighting=kept, desired=desired)
    if instance.state in (InstanceState.UNKNOWN, InstanceState.STOPPING) or podstatus.is_started(case.pod):
        return Keep(sighting=kept, desired=None)
    # Counted on our own clock, since a provider's may be wrong; under a new leader anew, never too short.
    if case.moment - kept.noted_at >= rules.start_deadline:
        return End(targets=(kept,), end=InstanceEnd.START_DEADLINE, release=True)
    # A pod that nobody has written a status for is left alone: the next thing to say is that it runs.
    written = bool(case.pod.status.container_statuses)
    return Keep(sighting=kept, desired=podstatus.starting(case.pod, instance) if written else None)


def _lost(case: Case, _: Rules) -> Decision | None:
    """It had an instance, and complete lists prove that there is none: it fails, and its owner makes another pod.

    Never a second instance under the same pod: the first may have done its work.
    """
    if not _had_one(case) or case.flight is not None:
        return None
    if (wait := _unsure(case)) is not None:
        return wait
    marked = case.pod.metadata.annotations.get(INSTANCE_ANNOTATION)
    message = f"instance {marked or '(unknown)'} is not at the provider any more"
    desired = podstatus.failed(case.pod, reason=podstatus.REASON_LOST, message=message, now=case.now)
    return Conclude(desired=desired, end=InstanceEnd.LOST)


def _had_one(case: Case) -> bool:
    """Whether the pod or this process tells of an instance."""
    marked = case.pod.metadata.annotations.get(INSTANCE_ANNOTATION)
    return case.was_lost or podstatus.is_started(case.pod) or (marked is not None and marked not in case.released)


def _unsure(case: Case) -> Wait | None:
    """Why an instance that we do not see cannot be ruled out. The lists of other providers prove nothing about it."""
    if case.missing_provider is not None:
        detail = f"provider {case.missing_provider} is not configured; its instance cannot be looked for"
        return Wait(reason=SpillReason.PROVIDER_DOWN, detail=detail)
    if not case.knows_enough:
        reason = SpillReason.PROVIDER_DOWN if case.provider_is_down else None
        return Wait(reason=reason, detail="no complete list of every provider yet")
    return None


def _unwilling(case: Case, _: Rules) -> Decision | None:
    """Only opted-in pods are run."""
    if is_opted_in(case.pod):
        return None
    return Defer(reason=SpillReason.NOT_OPTED_IN, detail="the pod is not labelled to run outside; it stays Pending")


def _in_flight(case: Case, _: Rules) -> Decision | None:
    """A create without a clear answer: look before asking again."""
    if case.flight is None:
        return None
    detail = f"{case.flight.provider} did not say whether {case.flight.offering} was created; looking for it"
    return Wait(reason=SpillReason.AMBIGUOUS, detail=detail)


def _unknown(case: Case, _: Rules) -> Decision | None:
    """Nothing is created on stale or partial knowledge."""
    wait = _unsure(case)
    return Wait() if wait is None and not case.api_is_fresh else wait


def _paused(case: Case, _: Rules) -> Decision | None:
    """An operator's pause keeps what runs and starts nothing."""
    return None if case.paused is None else Defer(reason=SpillReason.PAUSED, detail=case.paused)


def _impossible(case: Case, _: Rules) -> Decision | None:
    """What cannot leave the cluster is said before money is spent."""
    found = unsupported(case.pod)
    return Defer(reason=SpillReason.UNSUPPORTED, detail="; ".join(found)) if found else None


def _wanted(case: Case, rules: Rules) -> Decision | None:
    """It needs an instance."""
    wish = wish_of(case.pod, resource=rules.resource)
    if isinstance(wish, Problem):
        return Defer(reason=wish.reason, detail=wish.detail)
    return Acquire(wish=wish)


RULES: tuple[Rule, ...] = (
    _duplicates,
    _deleted,
    _terminal,
    _deadline,
    _present,
    _lost,
    _unwilling,
    _in_flight,
    _unknown,
    _paused,
    _impossible,
    _wanted,
)
