"""Floor, room and limits hold whatever happens between decision and effect: lag, refusals, slow successors, restarts."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overspill_events.catalog import Event, EvictionRefused, PodEvicted, ReturnIntended
from overspill_events.envelope import Envelope
from overspill_events.reasons import RefusalReason
from overspill_evictor.live import Seen, objection
from overspill_evictor.memory import Memory
from overspill_evictor.policy import Hold, Return, decide
from overspill_evictor.settling import Settlement, not_evicted, pod_ref, rests_on_absence, settle, successors
from overspill_evictor.snapshot import Snapshot
from tests.unit.overspill_evictor.cluster import NOW, RULES, home, pod, replica_set, virtual

OWNERS = {"a": 3, "b": 3, "c": 1, "d": 2}  # replicas; of a and b one is at home already
CAREFUL = msgspec.structs.replace(
    RULES, gate_settle=0, min_pod_age=0, max_per_cycle=2, refusal_retry=5, backoff=10, backoff_max=40,
)  # fmt: skip


@dataclass
class World:
    """Truth, a lagging copy, a stream and the memory folded from it."""

    gpus: int = 4  # at home
    max_in_flight: int = 9
    per_owner: int = 1
    truth: dict[str, dict[str, Any]] = field(default_factory=dict)
    copy: dict[str, dict[str, Any]] = field(default_factory=dict)
    stream: list[tuple[Event, Envelope]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    seconds: float = 0.0
    born: int = 0

    def __post_init__(self) -> None:
        self.nodes = (home(gpus=self.gpus), virtual())
        self.rules = msgspec.structs.replace(
            CAREFUL, max_in_flight=self.max_in_flight, max_in_flight_per_owner=self.per_owner
        )
        for owner, replicas in OWNERS.items():
            for number in range(replicas):
                self.create(owner, node="home-1" if owner in "ab" and number == 0 else "virtual-1")
        self.sync()

    def now(self) -> Any:
        return NOW + timedelta(seconds=self.seconds)

    def create(self, owner: str, *, node: str) -> None:
        self.born += 1
        self.seconds += 1
        age = -self.seconds  # created now: `pod` counts back from NOW
        self.truth[f"{owner}{self.born}"] = {"owner": owner, "node": node, "leaving": False, "age": age, "ready": True}

    def sync(self) -> None:
        self.copy = {name: dict(state) for name, state in self.truth.items()}

    def pods(self, states: dict[str, dict[str, Any]]) -> tuple[Any, ...]:
        return tuple(
            pod(
                name, owner=s["owner"], node=s["node"], leaving=s["leaving"], age=s["age"], ready=s["ready"],
                phase="Running" if s["node"] else "Pending",
            )
            for name, s in states.items()
        )  # fmt: skip

    def tell(self, event: Event) -> None:
        number = len(self.stream) + 1
        envelope = Envelope(
            id=str(number), type=event.spec.type, source="s", time=self.now(), subject="s", epoch="1-a", sequence=number,
            correlation_id="c",
        )  # fmt: skip
        self.stream.append((event, envelope))
        self.memory.record(event, envelope)

    def snapshot(self) -> Snapshot:
        memory = self.memory
        return Snapshot(
            nodes=self.nodes,
            pods=self.pods(self.copy),
            replica_sets={f"rs-{o}": replica_set(o, replicas=n) for o, n in OWNERS.items()},
            gate_closed_for={"virtual-1": self.seconds},
            open_returns=tuple(memory.open.values()),
            heirs=dict(memory.heirs),
            failures=dict(memory.failures),
            refusals=dict(memory.refusals),
        )

    def cycle(self, answers: list[str]) -> None:
        returns = decide(self.snapshot(), self.now(), self.rules).returns
        assert len(returns) <= self.rules.max_per_cycle
        together = frozenset(one.pod.metadata.uid for one in returns)
        for number, planned in enumerate(returns):
            self.carry_out(planned, answers[number % len(answers)] if answers else "evicted", together)

    def carry_out(self, planned: Return, answer: str, together: frozenset[str]) -> None:
        """As the shell does: judged anew, last look at the truth, intent, eviction, result."""
        judged = decide(self.snapshot(), self.now(), self.rules).about(planned.pod)
        if isinstance(judged, Hold):
            return
        planned = judged
        uid, name = planned.pod.metadata.uid, planned.pod.metadata.name
        leaving = (together - {uid}) | {one.uid for one in self.memory.open_of(planned.owner.uid)}
        owned = tuple(one for one in self.pods(self.truth) if one.metadata.owner_references[0].uid == planned.owner.uid)
        look = Seen(
            pods=owned, owner=replica_set(planned.owner.name), virtual_node=self.nodes[1], home_node=self.nodes[0]
        )
        if objection(planned, look, leaving=leaving, default_floor=1) is not None:
            return
        intent = ReturnIntended(
            pod=pod_ref(planned.pod), owner=planned.owner, node="virtual-1", home_node=planned.home_node, gpus=1,
            expires_at=self.now() + timedelta(seconds=30),
        )  # fmt: skip
        siblings = {f"p-{n}" for n, s in self.copy.items() if s["owner"] == planned.owner.name}
        self.memory.expect(uid, siblings)
        self.tell(intent)
        if answer == "refused":
            self.tell(EvictionRefused(pod=intent.pod, node="virtual-1", reason=RefusalReason.PDB))
            self.tell(not_evicted(self.memory.open[uid], detail=""))
            return
        self.truth[name]["leaving"] = True
        if answer == "evicted":
            self.tell(PodEvicted(pod=intent.pod, node="virtual-1", home_node="home-1", gpus=1))

    def find_out(self) -> None:
        """Dangling intents: the truth tells."""
        for one in list(self.memory.open.values()):
            if one.evicted_at is None:
                state = self.truth.get(one.intent.pod.name)
                if state is not None and not state["leaving"]:
                    self.tell(not_evicted(one, detail=""))
                else:
                    self.tell(PodEvicted(pod=one.intent.pod, node="virtual-1", home_node="home-1", gpus=1))

    def settle(self) -> None:
        ends = self.ends(self.copy)
        if rests_on_absence(ends):  # as the shell: absence is believed only when a live list says so, too
            live = self.ends(self.truth)
            ends = tuple(end for end in ends if end in live)
        for end in ends:
            self.tell(end.event)

    def ends(self, seen: Any) -> tuple[Settlement, ...]:
        opened = tuple(self.memory.open.values())
        return settle(opened, successors(opened, self.pods(seen), taken=self.memory.heirs), self.nodes, now=self.now())

    def replace(self, node: str) -> None:
        """Controller: a pod for each that is missing, Pending at first; then the scheduler binds."""
        for owner, replicas in OWNERS.items():
            living = [s for s in self.truth.values() if s["owner"] == owner and not s["leaving"]]
            for _ in range(replicas - len(living)):
                self.create(owner, node="")
        used = sum(1 for s in self.truth.values() if s["node"] == "home-1")
        for state in self.truth.values():
            if not state["node"] and node:
                state["node"] = node if node == "virtual-1" or used < self.gpus else "virtual-1"
                used += state["node"] == "home-1"
                state["age"] = -self.seconds
        opened = tuple(self.memory.open.values())
        heirs = successors(opened, self.pods(self.truth), taken=self.memory.heirs).values()
        booked = {one.metadata.name for one in heirs}
        if any(s["node"] and name not in self.copy and name not in booked for name, s in self.truth.items()):
            self.sync()  # a stranger, come after its return had expired: no book knows it, only the copy can

    def end_leaving(self) -> None:
        self.truth = {name: state for name, state in self.truth.items() if not state["leaving"]}

    def restart(self) -> None:
        self.sync()
        self.memory = Memory()
        for event, envelope in self.stream:
            self.memory.record(event, envelope)
        self.find_out()

    def check(self) -> None:
        evicted = [e for e, _ in self.stream if isinstance(e, PodEvicted)]
        assert len({e.pod.uid for e in evicted}) == len(evicted), "evicted twice"
        assert len(self.memory.open) <= self.rules.max_in_flight
        homes = sum(1 for s in self.truth.values() if s["node"] == "home-1")
        heirs = successors(tuple(self.memory.open.values()), self.pods(self.truth), taken=self.memory.heirs)
        booked = sum(1 for o in self.memory.open.values() if not (h := heirs.get(o.uid)) or not h.spec.node_name)
        assert homes + booked <= self.gpus, "more booked than there is room"
        for owner, replicas in OWNERS.items():
            serving = [s for s in self.truth.values() if s["owner"] == owner and s["node"] and not s["leaving"]]
            assert len(serving) >= 1 or replicas == 0, f"{owner} has no replica left"


WORLDS = st.builds(
    World, gpus=st.sampled_from([3, 4, 5]), max_in_flight=st.sampled_from([2, 9]), per_owner=st.sampled_from([1, 2])
)
STEPS = st.one_of(
    st.tuples(st.just("cycle"), st.lists(st.sampled_from(["evicted", "evicted", "refused", "lost"]), max_size=3)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("replace"), st.sampled_from(["home-1", "home-1", "virtual-1", ""])),
    st.tuples(st.just("end")),
    st.tuples(st.just("find-out")),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 6.0, 31.0])),
    st.tuples(st.just("restart")),
)


def step(world: World, what: tuple[Any, ...]) -> None:
    world.seconds += 1  # creation times are whole seconds: what happens later is seen to be later
    match what:
        case ("cycle", answers):
            world.cycle(answers)
        case ("sync",):
            world.sync()
        case ("settle",):
            world.settle()
        case ("replace", node):
            world.replace(node)
        case ("end",):
            world.end_leaving()
        case ("find-out",):
            world.find_out()
        case ("wait", seconds):
            world.seconds += seconds
        case ("restart",):
            world.restart()


@settings(max_examples=150, deadline=None)
@example(
    World(gpus=3, max_in_flight=2),
    [("cycle", []), ("sync",), ("replace", "home-1"), ("wait", 31.0), ("settle",), ("cycle", [])],
)
@given(WORLDS, st.lists(STEPS, max_size=40))
def test_floor_room_and_limits_hold_at_every_moment(world: World, steps: list[tuple[Any, ...]]) -> None:
    """Nobody is evicted twice, no owner loses its last replica, no more is booked than home has."""
    for what in steps:
        step(world, what)
        world.check()


@settings(max_examples=60, deadline=None)
@given(WORLDS, st.lists(STEPS, max_size=25))
def test_in_the_end_home_is_full_and_nothing_moves(world: World, steps: list[tuple[Any, ...]]) -> None:
    """From anywhere: quiet rounds bring home what fits and may leave; then further rounds change nothing."""
    for what in steps:
        step(world, what)
    for _ in range(12):
        quiet_round(world)
    homes = [s for s in world.truth.values() if s["node"] == "home-1"]
    assert len(homes) == world.gpus
    before = len(world.stream)
    quiet_round(world)
    assert len(world.stream) == before


def quiet_round(world: World) -> None:
    world.seconds += 41  # past every backoff and expiry
    world.find_out()
    world.end_leaving()
    world.replace("home-1")
    world.sync()
    world.settle()
    world.cycle([])
