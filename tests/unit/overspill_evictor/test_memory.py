"""What the evictor remembers from the stream."""

from datetime import datetime, timedelta

import pytest

from overspill_events.catalog import (
    Event,
    EvictionRefused,
    GateClosed,
    GateOpened,
    OwnerRef,
    PodEvicted,
    PodHeld,
    PodRef,
    ReturnIntended,
    ReturnSettled,
)
from overspill_events.envelope import Envelope
from overspill_events.reasons import GateReason, HoldReason, Place, RefusalReason
from overspill_evictor.memory import Memory
from tests.unit.overspill_evictor.cluster import NOW


def ref(name: str) -> PodRef:
    return PodRef(namespace="team", name=name, uid=name)


def intended(name: str, *, owner: str = "web") -> ReturnIntended:
    owner_ref = OwnerRef(kind="ReplicaSet", name=owner, uid=owner)
    expires = NOW + timedelta(seconds=60)
    return ReturnIntended(
        pod=ref(name), owner=owner_ref, node="virtual-1", home_node="home-1", gpus=1, expires_at=expires
    )


def evicted(name: str) -> PodEvicted:
    return PodEvicted(pod=ref(name), node="virtual-1", home_node="home-1", gpus=1)


def settled(name: str, place: Place, successor: str | None = None) -> ReturnSettled:
    return ReturnSettled(pod=ref(name), place=place, successor=ref(successor) if successor else None)


class Stream:
    """Numbers events like the bus would."""

    def __init__(self, *memories: Memory) -> None:
        self.memories = memories
        self.number = 0
        self.log: list[tuple[Event, Envelope]] = []

    def publish(self, event: Event, *, at: datetime | None = None) -> None:
        self.number += 1
        envelope = Envelope(
            id=str(self.number), type=event.spec.type, source="s", time=at or NOW + timedelta(seconds=self.number),
            subject="s", epoch="1-a", sequence=self.number, correlation_id="c",
        )  # fmt: skip
        self.log.append((event, envelope))
        for memory in self.memories:
            memory.record(event, envelope)


def test_a_return_is_open_from_intent_to_settlement() -> None:
    """Evicted in between; its owner is known by it."""
    memory = Memory()
    stream = Stream(memory)
    stream.publish(intended("a"))
    assert memory.open["a"].evicted_at is None
    stream.publish(evicted("a"))
    assert memory.open["a"].evicted_at == NOW + timedelta(seconds=2)
    assert [one.uid for one in memory.open_of("web")] == ["a"]
    stream.publish(settled("a", Place.HOME, "b"))
    assert memory.open == {}
    assert memory.heirs == {"b": "a"}


def test_siblings_are_known_whoever_tells_of_the_intent_first() -> None:
    """The stream may hand our own intent back before its publication returns to us."""
    memory = Memory()
    memory.expect("a", {"a", "b"})
    stream = Stream(memory)
    stream.publish(intended("a"))
    for event, envelope in stream.log:
        memory.record(event, envelope)
    assert memory.open["a"].siblings == {"a", "b"}
    stream.publish(intended("of-a-predecessor"))
    assert memory.open["of-a-predecessor"].siblings is None


@pytest.mark.parametrize(
    ("places", "failures"),
    [
        ([Place.HOME], 0),
        ([Place.VIRTUAL], 1),
        ([Place.PENDING, Place.EXPIRED, Place.VIRTUAL], 3),
        ([Place.VIRTUAL, Place.VIRTUAL, Place.HOME], 0),
        ([Place.VIRTUAL, Place.NOT_EVICTED], 1),
        ([Place.NOT_EVICTED, Place.UNKNOWN], 0),
    ],
)
def test_failed_returns_are_counted_per_owner_until_one_succeeds(places: list[Place], failures: int) -> None:
    """An intent that came to nothing is nobody's failure."""
    memory = Memory()
    stream = Stream(memory)
    for number, place in enumerate(places):
        stream.publish(intended(f"p{number}"))
        stream.publish(settled(f"p{number}", place))
    found = memory.failures.get("web")
    assert (found.count if found else 0) == failures


def test_recording_twice_changes_nothing() -> None:
    """What a process published itself comes back from the stream."""
    memory = Memory()
    stream = Stream(memory)
    for event in (intended("a"), settled("a", Place.VIRTUAL), intended("b"), evicted("b")):
        stream.publish(event)
    for event, envelope in stream.log:
        memory.record(event, envelope)
    assert memory.failures["web"].count == 1
    assert list(memory.open) == ["b"]


def test_a_restarted_evictor_knows_what_its_predecessor_knew() -> None:
    """The same stream gives the same memory."""
    before = Memory()
    stream = Stream(before)
    refused = EvictionRefused(pod=ref("c"), node="virtual-1", reason=RefusalReason.PDB, pdb="team/web")
    held = PodHeld(pod=ref("d"), node="virtual-1", reason=HoldReason.AT_FLOOR)
    for event in (
        intended("a"), evicted("a"), settled("a", Place.PENDING), intended("b"), evicted("b"), refused, held,
        GateOpened(node="virtual-1", reason=GateReason.HOME_FULL), GateClosed(node="virtual-1", reason=GateReason.HOME_HAS_ROOM),
    ):  # fmt: skip
        stream.publish(event)
    after = Memory()
    for event, envelope in stream.log:
        after.record(event, envelope)
    for part in ("open", "failures", "refusals", "told", "gate_closed_at", "heirs"):
        assert getattr(after, part) == getattr(before, part), part
    assert after.gate_closed_at == {"virtual-1": NOW + timedelta(seconds=9)}
    assert after.told == {"d": HoldReason.AT_FLOOR}


def test_an_opened_gate_is_no_longer_closed() -> None:
    """Its settling time starts anew at the next closing."""
    memory = Memory()
    stream = Stream(memory)
    stream.publish(GateClosed(node="virtual-1", reason=GateReason.HOME_HAS_ROOM))
    stream.publish(GateOpened(node="virtual-1", reason=GateReason.HOME_FULL))
    assert memory.gate_closed_at == {}


def test_a_repeated_refusal_only_moves_its_time() -> None:
    """The next try waits anew."""
    memory = Memory()
    stream = Stream(memory)
    stream.publish(EvictionRefused(pod=ref("a"), node="virtual-1", reason=RefusalReason.PDB))
    memory.refused_again("a", NOW + timedelta(seconds=99))
    memory.refused_again("unknown", NOW)
    assert memory.refusals["a"].at == NOW + timedelta(seconds=99)
    assert list(memory.refusals) == ["a"]


def test_what_is_gone_is_forgotten_except_open_returns() -> None:
    """Memory does not grow with every pod that ever lived."""
    memory = Memory()
    stream = Stream(memory)
    stream.publish(intended("open", owner="gone-owner"))
    for name in ("here", "gone"):
        stream.publish(EvictionRefused(pod=ref(name), node="virtual-1", reason=RefusalReason.PDB))
        stream.publish(PodHeld(pod=ref(name), node="virtual-1", reason=HoldReason.PDB))
    stream.publish(intended("x", owner="old-owner"))
    stream.publish(settled("x", Place.VIRTUAL, "gone-heir"))
    memory.forget(pods={"here"}, owners={"web"})
    assert set(memory.refusals) == set(memory.told) == {"here"}
    assert (memory.heirs, memory.failures) == ({}, {})
    assert list(memory.open) == ["open"]
