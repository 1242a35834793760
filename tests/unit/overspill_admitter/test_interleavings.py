"""Reserved never exceeds quota, whatever happens in between: lag, lost answers, restarts, in any order."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from overspill_admitter.expectations import ANSWER_WITHIN, Expectations
from overspill_admitter.policy import Rules, decide
from overspill_admitter.workload import State, read_workloads
from tests.unit.overspill_admitter.queues import cluster_queue, home, job, snapshot

QUOTA = 10
ROOM = (4, 4, 4)


class World:
    """The API server's truth, the admitter's lagging copy of it, and answers that are late or lost."""

    def __init__(self) -> None:
        self.truth: dict[str, dict[str, Any]] = {}
        self.copy: dict[str, dict[str, Any]] = {}
        self.on_the_way: set[str] = set()  # releases that take effect later, nobody waits for their answer
        self.expectations = Expectations()
        self.version = 0
        self.now = 0.0

    def write(self, name: str, **changes: Any) -> int:
        self.version += 1
        self.truth[name] = {"gpus": 1, "suspend": True, "done": False} | self.truth.get(name, {}) | changes
        self.truth[name]["version"] = self.version
        return self.version

    def jobs(self, state: dict[str, dict[str, Any]]) -> list[Any]:
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        return [
            job(name, gpus=j["gpus"], suspend=j["suspend"], version=j["version"], status=done if j["done"] else None)
            for name, j in state.items()
        ]

    def running(self) -> int:
        return sum(j["gpus"] for j in self.truth.values() if not j["suspend"] and not j["done"])

    def decide(self, answers: list[str]) -> None:
        jobs = self.jobs(self.copy)
        self.expectations.observe(read_workloads(jobs, [], []), self.now)
        nodes = [home(f"h{n}", gpus=gpus) for n, gpus in enumerate(ROOM)]
        state = snapshot(*jobs, *nodes, cluster_queue(quota={"home": QUOTA}), expected=self.expectations.uids)
        for number, admit in enumerate(decide(state, Rules()).admits):
            self.release(admit.workload.ref.name, answers[number % len(answers)] if answers else "done")

    def release(self, name: str, answer: str) -> None:
        uid = f"j-{name}"
        self.expectations.begin(uid)
        if answer == "refused" or name not in self.truth:
            self.expectations.failed(uid)
        elif answer == "done":
            self.expectations.written(uid, str(self.write(name, suspend=False)))
        else:
            self.expectations.unanswered(uid, self.now)
            if answer == "late":
                self.on_the_way.add(name)
            elif answer == "lost-but-done":
                self.write(name, suspend=False)

    def arrive(self) -> None:
        for name in self.on_the_way & self.truth.keys():
            if self.truth[name]["suspend"] and not self.truth[name]["done"]:
                self.write(name, suspend=False)
        self.on_the_way.clear()

    def pass_time(self, seconds: float) -> None:
        if seconds >= ANSWER_WITHIN:  # no request is on its way that long
            self.arrive()
        self.now += seconds

    def restart(self) -> None:
        """A new process lists the truth; the old one's requests are over (its connections died with it)."""
        self.arrive()
        self.expectations = Expectations()
        self.copy = {name: dict(j) for name, j in self.truth.items()}


NAMES = [f"j{n}" for n in range(6)]
ANSWERS = st.lists(st.sampled_from(["done", "done", "refused", "late", "lost-but-done", "lost"]), max_size=4)
CREATE = st.tuples(st.just("create"), st.sampled_from(NAMES), st.integers(2, 4))
DECIDE = st.tuples(st.just("decide"), ANSWERS)
STEPS = st.one_of(
    *(CREATE, CREATE, CREATE, DECIDE, DECIDE, DECIDE),  # as often as all the rest
    st.tuples(st.just("finish"), st.sampled_from(NAMES)),
    st.tuples(st.just("show"), st.sampled_from(NAMES)),
    st.tuples(st.just("suspend"), st.sampled_from(NAMES)),
    st.tuples(st.just("arrive")),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 30.0, 61.0])),
    st.tuples(st.just("restart")),
)


def step(world: World, what: tuple[Any, ...]) -> None:
    match what:
        case ("create", name, gpus) if name not in world.truth:
            world.write(name, gpus=gpus)
            world.copy[name] = dict(world.truth[name])
        case ("finish", name) if name in world.truth and not world.truth[name]["suspend"]:
            world.write(name, done=True)
        case ("suspend", name) if name in world.truth and not world.truth[name]["done"]:
            world.on_the_way.discard(name)
            world.write(name, suspend=True)
        case ("show", name) if name in world.truth:
            world.copy[name] = dict(world.truth[name])
        case ("decide", answers):
            world.decide(answers)
        case ("arrive",):
            world.arrive()
        case ("wait", seconds):
            world.pass_time(seconds)
        case ("restart",):
            world.restart()


FULL = [("create", "j5", 4), ("create", "j4", 4)]
FIRST_IN_LINE = ("create", "j1", 4)  # sorted before those that were released and still look suspended


@settings(max_examples=150, deadline=None)
@example([*FULL, ("decide", []), FIRST_IN_LINE, ("decide", [])])
@example([*FULL, ("decide", ["late"]), ("wait", 30.0), FIRST_IN_LINE, ("decide", []), ("arrive",)])
@example([*FULL, ("decide", ["lost-but-done"]), FIRST_IN_LINE, ("decide", [])])
@given(st.lists(STEPS, max_size=40))
def test_what_runs_never_exceeds_the_quota(steps: list[tuple[Any, ...]]) -> None:
    """At every moment, by the truth and not by what the admitter believes."""
    world = World()
    for what in steps:
        step(world, what)
        assert world.running() <= QUOTA


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_in_the_end_everybody_who_fits_is_admitted_and_then_nothing_changes(steps: list[tuple[Any, ...]]) -> None:
    """Quiet, synced, answers in time: the quota is used as far as anybody waiting fits, and a second look does nothing."""
    world = World()
    for what in steps:
        step(world, what)
    world.pass_time(ANSWER_WITHIN + 1)
    for _ in range(2):
        world.copy = {name: dict(j) for name, j in world.truth.items()}
        world.decide(["done"])
    world.copy = {name: dict(j) for name, j in world.truth.items()}
    before = world.version
    world.decide(["done"])
    assert world.version == before
    free = QUOTA - world.running()
    waiting = [one for one in read_workloads(world.jobs(world.truth), [], []) if one.state is State.WAITING]
    assert all(one.requests["nvidia.com/gpu"] > min(free, 4) or _no_room(world) for one in waiting)


def _no_room(world: World) -> bool:
    """Fragmented: the rest of the quota is there, but no node has that many GPUs left together."""
    nodes = [home(f"h{n}", gpus=gpus) for n, gpus in enumerate(ROOM)]
    state = snapshot(*world.jobs(world.truth), *nodes, cluster_queue(quota={"home": QUOTA}))
    return not decide(state, Rules()).admits
