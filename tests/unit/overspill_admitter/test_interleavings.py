"""Reserved never exceeds quota, whatever happens in between: lag, lost answers, restarts, other queues, in any order."""

from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from overspill_admitter.expectations import ANSWER_WITHIN, Expectations
from overspill_admitter.memory import Given
from overspill_admitter.policy import Admit, Rules, Snapshot, decide
from overspill_admitter.workload import State, read_workloads
from tests.unit.overspill_admitter.queues import cluster_queue, home, job, local_queue, snapshot

QUOTA = 10
ROOM = (4, 4, 4)


class World:
    """The API server's truth, the admitter's lagging copy of it, and answers that are late or lost."""

    def __init__(self) -> None:
        self.truth: dict[str, dict[str, Any]] = {}
        self.copy: dict[str, dict[str, Any]] = {}
        self.on_the_way: dict[str, float] = {}  # since when; releases that take effect later, unheard
        self.expectations = Expectations()
        self.given: dict[str, Given] = {}  # the record outlives every process
        self.points_to = "training"  # the LocalQueue of every second Job; "": it is deleted
        self.version = 0
        self.now = 0.0
        self.heard = 0.0  # until when the copy shows everything

    def write(self, name: str, **changes: Any) -> int:
        self.version += 1
        self.truth[name] = {"gpus": 1, "suspend": True, "done": False} | self.truth.get(name, {}) | changes
        self.truth[name]["version"] = self.version
        return self.version

    def jobs(self, state: dict[str, dict[str, Any]]) -> list[Any]:
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        return [
            job(
                name, gpus=j["gpus"], suspend=j["suspend"], version=j["version"], status=done if j["done"] else None,
                queue="moving" if name in NAMES[::2] else "staying",
            )
            for name, j in state.items()
        ]  # fmt: skip

    def running(self, queue: str) -> int:
        return sum(
            j["gpus"]
            for name, j in self.truth.items()
            if not j["suspend"] and not j["done"] and self.given[f"j-{name}"].cluster_queue == queue
        )

    def snapshot(self, jobs: list[Any]) -> Snapshot:
        nodes = [home(f"h{n}", gpus=gpus) for n, gpus in enumerate(ROOM)]
        queues = [cluster_queue(name, quota={"home": QUOTA}) for name in QUEUES]
        locals_ = [local_queue("staying")]
        if self.points_to:
            locals_.append(local_queue("moving", cluster_queue=self.points_to))
        return snapshot(*jobs, *nodes, *queues, *locals_, expected=self.expectations.uids, given=dict(self.given))

    def decide(self, answers: list[str]) -> None:
        jobs = self.jobs(self.copy)
        self.expectations.observe(read_workloads(jobs, [], []), self.heard)
        for number, admit in enumerate(decide(self.snapshot(jobs), Rules()).admits):
            self.release(admit, answers[number % len(answers)] if answers else "done")

    def release(self, admit: Admit, answer: str) -> None:
        name, uid = admit.workload.ref.name, admit.workload.ref.uid
        self.expectations.begin(uid)
        asked = {use.resource: Decimal(use.asked) for use in admit.quota}
        self.given[uid] = Given(cluster_queue=admit.cluster_queue, flavors=admit.flavors, requests=asked)
        if answer == "refused" or name not in self.truth:
            self.expectations.failed(uid)
        elif answer == "done":
            self.expectations.written(uid, str(self.write(name, suspend=False)))
        else:
            self.expectations.unanswered(uid, self.now)
            if answer == "late":
                self.on_the_way[name] = self.now
            elif answer == "lost-but-done":
                self.write(name, suspend=False)

    def arrive(self) -> None:
        for name in self.on_the_way.keys() & self.truth.keys():
            if self.truth[name]["suspend"] and not self.truth[name]["done"]:
                self.write(name, suspend=False)
        self.on_the_way.clear()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if any(self.now - since >= ANSWER_WITHIN for since in self.on_the_way.values()):
            self.arrive()  # no request is on its way that long

    def restart(self) -> None:
        """A new process lists the truth; the old one's requests are over (its connections died with it)."""
        self.arrive()
        self.expectations = Expectations()
        self.catch_up()

    def catch_up(self) -> None:
        self.copy = {name: dict(j) for name, j in self.truth.items()}
        self.heard = self.now


NAMES = [f"j{n}" for n in range(6)]
QUEUES = ["training", "other"]
ANSWERS = st.lists(st.sampled_from(["done", "done", "refused", "late", "lost-but-done", "lost"]), max_size=4)
CREATE = st.tuples(st.just("create"), st.sampled_from(NAMES), st.integers(2, 4))
DECIDE = st.tuples(st.just("decide"), ANSWERS)
STEPS = st.one_of(
    *(CREATE, CREATE, CREATE, DECIDE, DECIDE, DECIDE),  # as often as all the rest
    st.tuples(st.just("finish"), st.sampled_from(NAMES)),
    st.tuples(st.just("show"), st.sampled_from(NAMES)),
    st.tuples(st.just("suspend"), st.sampled_from(NAMES)),
    st.tuples(st.just("point"), st.sampled_from([*QUEUES, ""])),
    st.tuples(st.just("arrive")),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 30.0, 61.0])),
    st.tuples(st.just("catch-up")),
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
            world.on_the_way.pop(name, None)
            world.write(name, suspend=True)
        case ("show", name) if name in world.truth:
            world.copy[name] = dict(world.truth[name])
        case ("decide", answers):
            world.decide(answers)
        case ("point", queue):
            world.points_to = queue
        case ("arrive",):
            world.arrive()
        case ("wait", seconds):
            world.pass_time(seconds)
        case ("catch-up",):
            world.catch_up()
        case ("restart",):
            world.restart()


FULL = [("create", "j5", 4), ("create", "j4", 4)]
FIRST_IN_LINE = ("create", "j1", 4)  # sorted before those that were released and still look suspended


@settings(max_examples=150, deadline=None)
@example([*FULL, ("decide", []), FIRST_IN_LINE, ("decide", [])])
@example([*FULL, ("decide", ["late"]), ("wait", 30.0), FIRST_IN_LINE, ("decide", []), ("arrive",)])
@example([*FULL, ("decide", ["lost-but-done"]), FIRST_IN_LINE, ("decide", [])])
@example([*FULL, ("decide", ["late"]), ("wait", 61.0), FIRST_IN_LINE, ("decide", [])])
@example([*FULL, ("decide", []), ("restart",), ("point", ""), FIRST_IN_LINE, ("decide", [])])
@given(st.lists(STEPS, max_size=40))
def test_what_runs_never_exceeds_the_quota(steps: list[tuple[Any, ...]]) -> None:
    """At every moment, by the truth and not by what the admitter believes."""
    world = World()
    for what in steps:
        step(world, what)
        assert all(world.running(queue) <= QUOTA for queue in QUEUES)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_in_the_end_everybody_who_fits_is_admitted_and_then_nothing_changes(steps: list[tuple[Any, ...]]) -> None:
    """Quiet, synced, answers in time: the quota is used as far as anybody waiting fits, and a second look does nothing."""
    world = World()
    for what in steps:
        step(world, what)
    world.points_to = "training"
    world.pass_time(ANSWER_WITHIN + 1)
    for _ in range(2):
        world.catch_up()
        world.decide(["done"])
    world.catch_up()
    before = world.version
    world.decide(["done"])
    assert world.version == before
    free = QUOTA - world.running("training")
    waiting = [one for one in read_workloads(world.jobs(world.truth), [], []) if one.state is State.WAITING]
    assert all(one.requests["nvidia.com/gpu"] > min(free, 4) or _no_room(world) for one in waiting)


def _no_room(world: World) -> bool:
    """Fragmented: the rest of the quota is there, but no node has that many GPUs left together."""
    return not decide(world.snapshot(world.jobs(world.truth)), Rules()).admits
