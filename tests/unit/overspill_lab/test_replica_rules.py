"""Which pods of a ReplicaSet go first, and what its status says."""

from collections.abc import Callable
from typing import Any

import pytest

from overspill_lab.controllers.replica_rules import is_active, replica_set_status, surplus
from overspill_objects.core import Pod
from tests.support.lab_cases import NOW, pod, running

COST = "controller.kubernetes.io/pod-deletion-cost"


def _with(**more: Any) -> Callable[[str], Pod]:
    return lambda name: running(name, **more)


def _restarted(name: str) -> Pod:
    return running(name, status={"containerStatuses": [{"name": "c", "restartCount": 3}]})


# Each line: who goes before whom, all else equal.
ORDER = {
    "unassigned before assigned": (pod, lambda name: pod(name, spec={"nodeName": "n"})),
    "pending before running": (lambda name: pod(name, spec={"nodeName": "n"}), _with()),
    "unready before ready": (_with(status={"conditions": [{"type": "Ready", "status": "False"}]}), _with()),
    "cheap before dear": (_with(metadata={"annotations": {COST: "-100"}}), _with()),
    "dear after free": (_with(), _with(metadata={"annotations": {COST: "5"}})),
    "an unreadable cost is none": (_with(), _with(metadata={"annotations": {COST: "5"}})),
    "ready for a shorter time first": (_with(ready_for=10), _with(ready_for=4000)),
    "more restarts first": (_restarted, _with()),
}


@pytest.mark.parametrize("rule", ORDER)
def test_who_goes_first(rule: str) -> None:
    first, second = ORDER[rule]
    # Whatever the uids and the order of listing.
    for names in (("a", "b"), ("b", "a")):
        goes, stays = first(names[0]), second(names[1])
        for listed in ([goes, stays], [stays, goes]):
            assert surplus(listed, listed, count=1, now=NOW) == [goes]


def test_the_node_that_holds_more_of_the_family_gives_first() -> None:
    mine = [running("a", spec={"nodeName": "crowded"}), running("b", spec={"nodeName": "alone"})]
    cousin = running("cousin", spec={"nodeName": "crowded"})
    assert surplus(mine, [*mine, cousin], count=1, now=NOW) == [mine[0]]
    ended = running("ended", spec={"nodeName": "alone"}, status={"phase": "Failed"})
    assert surplus(mine, [*mine, cousin, ended, ended], count=1, now=NOW) == [mine[0]]


def test_deletion_cost_comes_before_crowding_and_age() -> None:
    """What the bridge relies on: the paid replicas go first."""
    external = running("external", ready_for=9000, metadata={"annotations": {COST: "-100"}})
    home = [running(f"home-{at}", ready_for=1) for at in range(3)]
    assert surplus([*home, external], [*home, external], count=1, now=NOW) == [external]


@pytest.mark.parametrize(
    ("made", "counts"),
    [
        (running(), True),
        (pod(), True),
        (running(status={"phase": "Failed"}), False),
        (running(status={"phase": "Succeeded"}), False),
        (running(metadata={"deletionTimestamp": "2026-11-30T12:00:00Z"}), False),
    ],
)
def test_what_counts_as_a_replica(made: Pod, *, counts: bool) -> None:
    assert is_active(made) is counts


def test_the_status_counts() -> None:
    spec = {"replicas": 3, "minReadySeconds": 30, "template": {"metadata": {"labels": {"a": "b"}}}}
    pods = [
        running("old", ready_for=60, metadata={"labels": {"a": "b"}}),
        running("new", ready_for=10, metadata={"labels": {"a": "b"}}),
        pod("pending"),
    ]
    status = replica_set_status(spec, generation=4, active=pods, terminating=2, failure=None, now=NOW)
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 2, 1)
    assert (status["fullyLabeledReplicas"], status["terminatingReplicas"], status["observedGeneration"]) == (2, 2, 4)
    assert status["conditions"] is None


def test_the_status_says_why_pods_could_not_be_created() -> None:
    spec: dict[str, Any] = {"replicas": 1, "template": {}}
    status = replica_set_status(spec, generation=1, active=[], terminating=0, failure="quota", now=NOW)
    assert status["conditions"] == [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    ]
