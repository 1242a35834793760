"""What is admitted, in which order, and why the rest waits."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from overspill_admitter.memory import Given, OpenReturn
from overspill_admitter.policy import Defer, Rules
from overspill_capacity.room import Reservation
from overspill_events.catalog import OwnerRef, PodRef, QuotaUse, ReturnIntended
from overspill_events.envelope import Envelope
from overspill_events.reasons import DeferReason
from overspill_objects.scheduling import PriorityClass
from tests.unit.overspill_admitter.queues import (
    GPU,
    START,
    admitted,
    cluster_queue,
    flavor,
    home,
    job,
    local_queue,
    plan,
    pod,
    view,
)


def only(result: Any) -> Defer:
    assert result.admits == ()
    (defer,) = result.defers
    return defer


def test_a_job_with_quota_and_room_is_admitted_with_its_numbers() -> None:
    """Quota before it is charged, room before it is taken."""
    (one,) = plan(job("train", gpus=2), job("running", gpus=3, suspend=False)).admits
    assert one.workload.ref.name == "train"
    assert one.quota == (QuotaUse(flavor="home", resource=GPU, nominal=8, used=3, asked=2),)
    assert (one.cluster_queue, one.flavors, one.home_room) == ("training", {GPU: "home"}, 5)


def test_a_gated_pod_is_a_workload_too() -> None:
    """Pods with the queue's label: gated ones wait, others are charged, also those of Deployments."""
    result = plan(pod("waits", gated=True, gpus=4), pod("runs", node="home-1", gpus=5, owner=("ReplicaSet", "rs")))
    assert only(result).reason is DeferReason.NO_QUOTA
    assert admitted(plan(pod("waits", gated=True, gpus=3), pod("runs", node="home-1", gpus=5))) == ["waits"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_two_billion_pods_at_once_are_counted_without_asking_for_each(gpus: int) -> None:
    """A Job may ask for that many (int32); those that find no node count as GPUs under way."""
    result = plan(job("vast", gpus=gpus, suspend=False, parallelism=2**31 - 1), job("train", queue="other"),
                  local_queue(), local_queue("other", cluster_queue="roomy"),
                  cluster_queue(), cluster_queue("roomy"))  # fmt: skip
    assert only(result).reason is DeferReason.NO_HOME_ROOM


@pytest.mark.parametrize(
    ("reason", "objects"),
    [
        (DeferReason.NO_LOCAL_QUEUE, [job("train", queue="nowhere")]),
        (DeferReason.NO_CLUSTER_QUEUE, [job("train"), local_queue(cluster_queue="nowhere")]),
        (DeferReason.QUEUE_STOPPED, [job("train"), local_queue(stopPolicy="Hold")]),
        (DeferReason.QUEUE_STOPPED, [job("train"), cluster_queue(stopPolicy="HoldAndDrain")]),
        (DeferReason.BAD_QUEUE, [job("train"), cluster_queue(namespaceSelector=None)]),
        (DeferReason.BAD_QUEUE, [job("train"), cluster_queue(namespaceSelector={"matchLabels": {"a": "b"}})]),
        (DeferReason.BAD_QUEUE, [job("train"), cluster_queue(quota={"gone": 8})]),
        (DeferReason.BAD_QUEUE, [job("train"), cluster_queue(quota={"home": "many"})]),
        (DeferReason.NO_QUOTA, [job("train", gpus=2), job("runs", gpus=7, suspend=False)]),
        (DeferReason.NEVER_FITS, [job("train", gpus=5, parallelism=2), home(), home("home-2")]),
        (DeferReason.RESOURCE_NOT_COVERED, [job("train"), cluster_queue(resource="google.com/tpu")]),
        (DeferReason.NO_HOME_ROOM, [job("train", gpus=5), home(gpus=4)]),
        (DeferReason.ROOM_UNKNOWN, [job("train", schedulerName="other")]),
    ],
)
def test_every_reason_to_wait(reason: DeferReason, objects: list[Any]) -> None:
    """The rule that speaks first names itself."""
    result = plan(*objects)
    assert only(result).reason is reason


def test_unknown_home_admits_nothing_at_home_and_everything_else() -> None:
    """No number is not zero and not plenty; a virtual flavor does not need home."""
    queues = [cluster_queue(), cluster_queue("vk", quota={"virtual": 100})]
    locals_ = [local_queue(), local_queue("inference", cluster_queue="vk")]
    unreadable = home("home-2")
    unreadable.status.allocatable[GPU] = "many"
    result = plan(job("train"), job("serve", queue="inference"), *queues, *locals_, home(), unreadable)
    assert admitted(result) == ["serve"]
    (defer,) = result.defers
    assert (defer.reason, defer.home_room) == (DeferReason.ROOM_UNKNOWN, None)
    assert "home-2" in defer.detail


def test_order_is_priority_then_age_then_uid() -> None:
    """Whatever the order of the list; a lower one behind may use what is left (BestEffortFIFO)."""
    high = view(PriorityClass, {"metadata": {"name": "high"}, "value": 10})
    jobs = [
        job("b", created=1, gpus=2),
        job("a", created=1, gpus=2),
        job("old", created=0, gpus=2),
        job("high", created=9, gpus=2, priority_class="high"),
        job("too-big", created=0, gpus=3, priority_class="high"),
    ]
    for objects in (jobs, jobs[::-1]):
        assert admitted(plan(*objects, high)) == ["too-big", "high", "old"]


def test_the_default_priority_class_counts() -> None:
    """As the API server would compute it."""
    default = view(PriorityClass, {"metadata": {"name": "normal"}, "value": 5, "globalDefault": True})
    low = view(PriorityClass, {"metadata": {"name": "low"}, "value": 1})
    result = plan(job("low", gpus=8, priority_class="low"), job("default", gpus=8, created=5), default, low)
    assert admitted(result) == ["default"]


def test_strict_fifo_waits_behind_its_head() -> None:
    """The head names itself to those behind; other queues go on."""
    strict = cluster_queue(queueingStrategy="StrictFIFO")
    other = cluster_queue("other", quota={"home": 8})
    objects = [
        job("head", gpus=7), job("behind", gpus=1, created=1), job("runs", gpus=2, suspend=False),
        job("elsewhere", queue="b", created=2), strict, other, local_queue(), local_queue("b", cluster_queue="other"),
    ]  # fmt: skip
    result = plan(*objects)
    assert admitted(result) == ["elsewhere"]
    behind = next(one for one in result.defers if one.workload.ref.name == "behind")
    assert (behind.reason, behind.detail) == (DeferReason.BEHIND_HEAD, "Job team/head is first")


def test_best_effort_lets_smaller_ones_pass() -> None:
    """An impossible head blocks nobody."""
    assert admitted(plan(job("head", gpus=7), job("small", created=1), job("runs", gpus=2, suspend=False))) == ["small"]


def test_flavors_are_tried_in_order_and_a_full_home_overflows() -> None:
    """Quota short or room short in the first: the next one."""
    queue = cluster_queue(quota={"home": 4, "virtual": 100})
    result = plan(job("a", gpus=3), job("b", gpus=3, created=1), queue)
    assert [one.flavors for one in result.admits] == [{GPU: "home"}, {GPU: "virtual"}]
    result = plan(job("a", gpus=3), queue, home(gpus=2))
    assert [(one.flavors, one.home_room) for one in result.admits] == [({GPU: "virtual"}, None)]


def test_a_flavors_taint_must_be_tolerated() -> None:
    """By the pod or by the flavor itself, as in Kueue."""
    taint = {"key": "gpu", "value": "h200", "effect": "NoSchedule"}
    result = plan(job("a"), flavor(nodeTaints=[taint]))
    assert only(result).detail == "untolerated taint {gpu h200 NoSchedule <nil>} in flavor home"
    tolerated = flavor(nodeTaints=[taint], tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert admitted(plan(job("a"), tolerated)) == ["a"]


def test_room_is_counted_by_nodes_not_only_by_sum() -> None:
    """Four free on each of two nodes: no room for a pod of five, room for two of four."""
    queue = cluster_queue(quota={"home": 100})
    nodes = [home("home-1", gpus=4), home("home-2", gpus=4)]
    defer = only(plan(job("big", gpus=5), queue, *nodes))
    assert (defer.reason, defer.home_room) == (DeferReason.NO_HOME_ROOM, 8)
    assert "largest block 4" in defer.detail
    assert admitted(plan(job("two", gpus=4, parallelism=2), queue, *nodes)) == ["two"]
    assert only(plan(job("gang", gpus=3, parallelism=3), queue, *nodes)).detail.startswith("9 GPUs asked, 8 free")
    assert only(plan(job("gang", gpus=3, parallelism=2), queue, nodes[0], home("home-2", gpus=2))).reason is DeferReason.NO_HOME_ROOM  # fmt: skip


def test_a_workload_that_is_not_admitted_after_all_takes_no_room() -> None:
    """Its GPUs found a place, its memory found no quota: the place is for the next."""
    gpus = {"coveredResources": [GPU], "flavors": [{"name": "home", "resources": [{"name": GPU, "nominalQuota": 100}]}]}
    memory = {
        "coveredResources": ["memory"],
        "flavors": [{"name": "virtual", "resources": [{"name": "memory", "nominalQuota": "1Gi"}]}],
    }
    queue = cluster_queue(resourceGroups=[gpus, memory])
    container = {"name": "c", "resources": {"requests": {GPU: "8", "memory": "2Gi"}}}
    result = plan(job("hungry", containers=[container]), job("modest", gpus=8, created=1), queue)
    assert admitted(result) == ["modest"]
    assert result.defers[0].reason is DeferReason.NEVER_FITS


def test_room_is_less_what_others_hold_and_what_is_booked_for_returns() -> None:
    """Pods outside the queues, bound or about to be; a line in the evictor's book."""
    queue = cluster_queue(quota={"home": 100})
    stranger = pod("stranger", queue=None, node="home-1", gpus=3)
    coming = pod("coming", queue=None, gpus=2)
    booked = Reservation(
        key="return/x", node="home-1", requests={GPU: Decimal(2)}, expires_at=START + timedelta(hours=1)
    )
    one = only(plan(job("a", gpus=2), queue, stranger, coming, reservations=[booked]))
    assert (one.reason, one.home_room) == (DeferReason.NO_HOME_ROOM, 1)
    assert admitted(plan(job("a", gpus=1), queue, stranger, coming, reservations=[booked])) == ["a"]


def test_what_was_admitted_and_is_not_bound_holds_its_room() -> None:
    """A Job let go whose pods are not there yet; a Job whose pods are there is counted once."""
    queue = cluster_queue(quota={"home": 100})
    assert only(plan(job("a", gpus=3), job("fresh", gpus=6, suspend=False), queue)).home_room == 2
    bound = pod("fresh-1", queue=None, node="home-1", gpus=6, owner=("Job", "j-fresh"))
    assert only(plan(job("a", gpus=3), job("fresh", gpus=6, suspend=False), bound, queue)).home_room == 2
    pending = pod("fresh-1", queue=None, gpus=6, owner=("Job", "j-fresh"))
    assert only(plan(job("a", gpus=3), job("fresh", gpus=6, suspend=False), pending, queue)).home_room == 2


def test_admitted_work_that_finds_no_node_keeps_its_claim() -> None:
    """An admitted 8-GPU pod waits for a whole node: what is free is not given to the next."""
    queue = cluster_queue(quota={"home": 100})
    stranger = pod("stranger", queue=None, node="home-1", gpus=1)
    result = plan(job("small", gpus=1), job("big", gpus=8, suspend=False), stranger, queue)
    assert only(result).home_room == 0


def test_pods_of_a_virtual_flavor_take_home_room_only_where_they_fit() -> None:
    """They may overflow: one that finds room at home takes it first, one that does not costs nothing."""
    queues = [cluster_queue(quota={"home": 100}), cluster_queue("vk", quota={"virtual": 100})]
    locals_ = [local_queue(), local_queue("inference", cluster_queue="vk")]
    fitting = pod("i", queue="inference", gpus=6)
    assert only(plan(job("a", gpus=3), fitting, *queues, *locals_)).home_room == 2
    too_big = pod("i", queue="inference", gpus=9)
    assert admitted(plan(job("a", gpus=8), too_big, *queues, *locals_)) == ["a"]


def test_expected_workloads_are_charged_though_they_still_look_suspended() -> None:
    """Our own admission, not yet visible: quota and room are taken, and it is not judged again."""
    result = plan(job("a", gpus=5), job("b", gpus=5), expected=frozenset({"j-a"}))
    assert admitted(result) == []
    assert [one.workload.ref.name for one in result.defers] == ["b"]
    assert result.defers[0].quota[0].used == 5


def test_finished_and_reclaimed_pods_are_not_charged() -> None:
    """A finished Job frees its quota; of a running one only the pods still to come count."""
    done = job("done", gpus=8, suspend=False, status={"conditions": [{"type": "Complete", "status": "True"}]})
    nearly = job("nearly", gpus=2, suspend=False, parallelism=4, completions=6, status={"succeeded": 5})
    (one,) = plan(job("a", gpus=6), done, nearly).admits
    assert one.quota[0].used == 2


def test_a_job_suspended_again_is_charged_until_its_pods_are_gone() -> None:
    """Its GPUs are not free yet."""
    stopping = job("stopping", gpus=5, status={"active": 1})
    assert only(plan(job("a", gpus=5), stopping)).quota[0].used == 5


def test_a_workload_keeps_the_flavor_it_was_given() -> None:
    """Charged where the event said, not where it would go today."""
    queue = cluster_queue(quota={"home": 4, "virtual": 4})
    given = {"j-runs": Given(cluster_queue="training", flavors={GPU: "virtual"}, requests={GPU: Decimal(4)})}
    (one,) = plan(job("a", gpus=4), job("runs", gpus=4, suspend=False), queue, given=given).admits
    assert one.flavors == {GPU: "home"}


@pytest.mark.parametrize(
    "now", [[], [local_queue(cluster_queue="roomy")], [local_queue(cluster_queue="gone")]], ids=["deleted", "elsewhere", "nowhere"]
)  # fmt: skip
def test_what_runs_keeps_its_quota_whatever_becomes_of_its_local_queue(now: list[Any]) -> None:
    """Six of eight are in use: the queue's owner cannot free them by deleting or redirecting the LocalQueue."""
    queues = [cluster_queue(), cluster_queue("roomy"), local_queue("other"), home(), home("home-2")]
    given = {"j-runs": Given(cluster_queue="training", flavors={GPU: "home"}, requests={GPU: Decimal(6)})}
    result = plan(job("runs", gpus=6, suspend=False), job("a", gpus=6, queue="other"), *queues, *now, given=given)
    assert only(result).reason is DeferReason.NO_QUOTA
    assert result.usage["roomy"].charged == {}


@pytest.mark.parametrize("missing", ["LocalQueue", "ClusterQueue"])
def test_room_of_what_was_admitted_is_taken_without_its_queues(missing: str) -> None:
    """Its pods are on their way to a node; the queue objects are not what brings them there."""
    given = {"j-runs": Given(cluster_queue="training", flavors={GPU: "home"}, requests={GPU: Decimal(6)})}
    queues = [cluster_queue("other", quota={"home": 100}), local_queue("other", cluster_queue="other")]
    queues += [cluster_queue()] if missing == "LocalQueue" else [local_queue()]
    result = plan(job("runs", gpus=6, suspend=False), job("a", gpus=6, queue="other"), *queues, given=given)
    assert only(result).reason is DeferReason.NO_HOME_ROOM


def test_home_flavors_may_be_named() -> None:
    """A setting makes a flavor home whatever its labels say."""
    queue = cluster_queue(quota={"virtual": 100})
    assert admitted(plan(job("a", gpus=9), queue)) == ["a"]
    named = plan(job("a", gpus=9), queue, rules=Rules(home_flavors=("virtual",)))
    assert only(named).reason is DeferReason.NO_HOME_ROOM


def test_a_queue_named_by_an_annotation_counts() -> None:
    """Old manifests: accepted, and marked for a warning."""
    old = job("old", queue=None, annotations={"kueue.x-k8s.io/queue-name": "research"})
    (one,) = plan(old, job("none", queue=None), job("empty", queue="")).admits
    assert one.workload.named_by_annotation


def test_pods_quota_is_counted_when_it_is_covered() -> None:
    """One per pod."""
    queue = cluster_queue(resource="pods", quota={"home": 3})
    result = plan(job("a", gpus=0, parallelism=2), job("b", gpus=0, parallelism=2, created=1), queue)
    assert admitted(result) == ["a"]
    assert result.defers[0].quota[0].asked == 2


def open_return(name: str, *, owner: str = "rs", evicted: bool = True, seconds: float = 10) -> OpenReturn:
    intent = ReturnIntended(
        pod=PodRef(namespace="team", name=name, uid=f"p-{name}"),
        owner=OwnerRef(kind="ReplicaSet", name=owner, uid=owner),
        node="virtual-1", home_node="home-1", gpus=4, expires_at=START + timedelta(hours=1),
    )  # fmt: skip
    envelope = Envelope(
        id=f"i-{name}", type=intent.spec.type, source="s", time=START + timedelta(seconds=seconds, milliseconds=600), subject="s",
        epoch="1-a", sequence=1, correlation_id="c",
    )  # fmt: skip
    return OpenReturn(intent=intent, envelope=envelope, is_evicted=evicted)


RS = ("ReplicaSet", "rs")


def test_a_successor_inherits_the_quota_of_the_pod_that_returns() -> None:
    """Full queue, full home: the successor is admitted in its place, at once, and nobody else is."""
    leaving = pod("old", node="virtual-1", gpus=8, owner=RS, leaving=True)
    heir = pod("new", gated=True, gpus=8, owner=RS, created=10)
    result = plan(heir, leaving, job("other", gpus=1), returns=(open_return("old"),))
    assert admitted(result) == ["new"]
    (one,) = result.admits
    assert one.inherited is not None
    assert one.inherited.intent.pod.name == "old"
    assert one.quota == (QuotaUse(flavor="home", resource=GPU, nominal=8, used=8, asked=8),)
    assert result.defers[0].reason is DeferReason.NO_QUOTA


def test_the_pair_is_charged_once_after_the_heir_was_admitted() -> None:
    """While the old pod still ends, both are there and one quota is used."""
    leaving = pod("old", node="virtual-1", gpus=4, owner=RS, leaving=True)
    heir = pod("new", gpus=4, owner=RS, created=10, node="home-1")
    objects = [leaving, heir, job("other", gpus=4)]
    (one,) = plan(*objects, heirs={"p-new": "p-old"}).admits
    assert one.quota[0].used == 4
    assert only(plan(*objects)).reason is DeferReason.NO_QUOTA


def test_the_quota_of_a_pod_that_is_gone_waits_for_its_successor() -> None:
    """Between the end of the one and the birth of the other nobody takes it."""
    given = {"p-old": Given(cluster_queue="training", flavors={GPU: "home"}, requests={GPU: Decimal(8)})}
    returns = (open_return("old"),)
    assert only(plan(job("other"), returns=returns, given=given)).reason is DeferReason.NO_QUOTA
    heir = pod("new", gated=True, gpus=8, owner=RS, created=10)
    assert admitted(plan(job("other"), heir, returns=returns, given=given)) == ["new"]


@pytest.mark.parametrize("is_gone", [False, True])
def test_quota_of_one_queue_is_not_inherited_in_another(is_gone: bool) -> None:
    """The LocalQueue points elsewhere since: the successor asks there like everybody else."""
    given = {"p-old": Given(cluster_queue="training", flavors={GPU: "home"}, requests={GPU: Decimal(8)})}
    leaving = [] if is_gone else [pod("old", node="virtual-1", gpus=8, owner=RS, leaving=True)]
    heir = pod("new", gated=True, gpus=8, owner=RS, created=10)
    full = job("full", gpus=8, suspend=False, queue="other")
    queues = [cluster_queue(), cluster_queue("roomy"), local_queue(cluster_queue="roomy"), local_queue("other", cluster_queue="roomy")]  # fmt: skip
    result = plan(heir, full, *leaving, *queues, returns=(open_return("old"),), given=given)
    assert only(result).reason is DeferReason.NO_QUOTA
    assert result.usage["training"].charged == {("home", GPU): 8}


def test_no_successor_without_a_charge_to_take_over() -> None:
    """Nobody knows what the old pod had: the new one is admitted like everybody else."""
    heir = pod("new", gated=True, gpus=8, owner=RS, created=10)
    full = job("full", gpus=8, suspend=False)
    assert only(plan(heir, full, returns=(open_return("old"),))).reason is DeferReason.NO_QUOTA


@pytest.mark.parametrize(
    "stranger",
    [
        pod("new", gated=True, gpus=8, owner=("ReplicaSet", "other"), created=10),
        pod("new", gated=True, gpus=8, owner=RS, created=9),
        pod("new", gated=True, gpus=8),
    ],
    ids=["another owner", "born before the intent", "no owner"],
)
def test_who_is_no_successor(stranger: Any) -> None:
    """Same owner and younger than the intent, to the second."""
    leaving = pod("old", node="virtual-1", gpus=8, owner=RS, leaving=True)
    assert only(plan(stranger, leaving, returns=(open_return("old"),))).reason is DeferReason.NO_QUOTA


def test_one_return_has_one_successor() -> None:
    """Two new pods of the owner: the older one inherits."""
    leaving = pod("old", node="virtual-1", gpus=8, owner=RS, leaving=True)
    heirs = [pod("b", gated=True, gpus=8, owner=RS, created=11), pod("a", gated=True, gpus=8, owner=RS, created=12)]
    assert admitted(plan(*heirs, leaving, returns=(open_return("old"),))) == ["b"]


def test_nothing_is_inherited_before_the_eviction() -> None:
    """An intent alone frees nothing: the pod may stay."""
    staying = pod("old", node="virtual-1", gpus=8, owner=RS)
    heir = pod("new", gated=True, gpus=8, owner=RS, created=10)
    assert only(plan(heir, staying, returns=(open_return("old", evicted=False),))).reason is DeferReason.NO_QUOTA


def test_four_hundred_jobs_are_judged_in_one_plan() -> None:
    """A burst: all that fit, in order, none beyond."""
    queue = cluster_queue(quota={"home": 1000})
    nodes = [home(f"home-{n:02}", gpus=5) for n in range(60)]
    result = plan(*[job(f"j{n:03}", created=n) for n in range(400)], queue, *nodes)
    assert admitted(result) == [f"j{n:03}" for n in range(300)]
    assert {one.reason for one in result.defers} == {DeferReason.NO_HOME_ROOM}
