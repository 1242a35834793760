"""kube-scheduler's rules that Overspill stands on: what keeps a pod off a node, and what makes it prefer one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import NODES, PODS, pod, report, scheduler_knows

POOL = "contract.test/pool"
VIRTUAL = "contract.test/virtual"
BASE = {"key": VIRTUAL, "effect": "NoSchedule"}
PREFERENCE = {"key": "contract.test/last", "effect": "PreferNoSchedule"}
SWITCH = {"key": "contract.test/closed", "effect": "NoSchedule"}
OPTED_IN = [{"key": VIRTUAL, "operator": "Exists", "effect": "NoSchedule"}]
PREFERS_HOME = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": VIRTUAL, "operator": "DoesNotExist"}]}}
        ]
    }
}


async def _submit(api: Api, namespace: str, nodes: Any, name: str, **spec: Any) -> str:
    """Give the scheduler a pod that only this test's nodes may take; its path."""
    await nodes.known(namespace)
    spec = {"schedulerName": "default-scheduler", "nodeSelector": nodes.label, **spec}
    (await api.post(PODS.format(namespace), pod(name, **spec))).ok()
    return f"{PODS.format(namespace)}/{name}"


async def _placed(api: Api, path: str) -> str:
    """The node that the pod was bound to."""
    seen = await api.eventually(path, lambda each: each["spec"].get("nodeName"), f"{path} is bound")
    return seen["spec"]["nodeName"]


async def _refused(api: Api, path: str) -> str:
    """The scheduler's explanation of why the pod fits nowhere."""

    def verdict(seen: Object) -> Object | None:
        conditions = seen["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)

    seen = await api.eventually(path, verdict, f"{path} is judged")
    condition = verdict(seen)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable"), seen
    assert "nodeName" not in seen["spec"]
    return condition["message"]


async def test_a_pod_is_bound_to_a_node_that_fits(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add(gpus=8)
    path = await _submit(api, namespace, nodes, "fits", gpus=2)
    assert await _placed(api, path) == node
    conditions = {each["type"]: each["status"] for each in (await api.get(path)).ok()["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


@pytest.mark.parametrize(("spec", "resource"), [({"gpus": 4}, "nvidia.com/gpu"), ({"cpu": "9"}, "cpu")])
async def test_a_pod_that_asks_for_too_much_waits(api: Api, namespace: str, nodes, spec: dict, resource: str) -> None:
    await nodes.add(gpus=3, cpu="8")
    message = await _refused(api, await _submit(api, namespace, nodes, "big", **spec))
    assert "0/" in message
    assert f"Insufficient {resource}" in message


async def test_a_waiting_pod_is_placed_when_room_comes(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add(gpus=2)
    first = await _submit(api, namespace, nodes, "first", gpus=2)
    await _placed(api, first)
    second = await _submit(api, namespace, nodes, "second", gpus=1)
    await _refused(api, second)

    await report(api, namespace, "first", phase="Succeeded")  # a finished pod holds nothing
    assert await _placed(api, second) == node


async def test_a_pod_that_is_going_holds_its_room_until_it_is_gone(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add(gpus=2)
    first = await _submit(api, namespace, nodes, "first", gpus=2)
    await _placed(api, first)
    (await api.delete(first)).ok()
    second = await _submit(api, namespace, nodes, "second", gpus=2)
    await _refused(api, second)

    (await api.delete(first, gracePeriodSeconds="0")).ok()
    assert await _placed(api, second) == node


async def test_only_pods_that_tolerate_it_pass_a_taint(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add(taints=[BASE])
    assert "untolerated taint" in await _refused(api, await _submit(api, namespace, nodes, "stranger"))
    path = await _submit(api, namespace, nodes, "guest", tolerations=OPTED_IN)
    assert await _placed(api, path) == node


async def test_taking_the_taint_away_opens_the_node(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add(taints=[BASE, SWITCH])
    path = await _submit(api, namespace, nodes, "waiting", tolerations=OPTED_IN)
    await _refused(api, path)
    (await api.patch(f"{NODES}/{node}", {"spec": {"taints": [BASE]}})).ok()
    assert await _placed(api, path) == node


async def test_a_soft_taint_is_avoided_while_another_node_has_room(api: Api, namespace: str, nodes) -> None:
    soft, plain = await nodes.add(gpus=100, taints=[PREFERENCE]), await nodes.add(gpus=1)
    paths = []
    for name in ("first", "second"):
        paths.append(await _submit(api, namespace, nodes, name, gpus=1))
        await _placed(api, paths[-1])
    assert [await _placed(api, path) for path in paths] == [plain, soft]


async def test_an_unschedulable_node_takes_nothing(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add()
    (await api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})).ok()
    await scheduler_knows(api, namespace, node)
    path = await _submit(api, namespace, nodes, "waiting")
    await _refused(api, path)
    (await api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": None}})).ok()
    assert await _placed(api, path) == node


@pytest.mark.parametrize(
    ("expression", "speed"),
    [
        ({"key": "tier", "operator": "In", "values": ["gold", "silver"]}, "1"),
        ({"key": "tier", "operator": "NotIn", "values": ["iron"]}, "1"),
        ({"key": "good", "operator": "Exists"}, "1"),
        ({"key": "bad", "operator": "DoesNotExist"}, "1"),
        ({"key": "speed", "operator": "Gt", "values": ["5"]}, "1"),
        ({"key": "speed", "operator": "Lt", "values": ["11"]}, "20"),
    ],
)
async def test_required_affinity_filters(api: Api, namespace: str, nodes, expression: dict, speed: str) -> None:
    await nodes.add(labels={"tier": "iron", "bad": "", "speed": speed})
    good = await nodes.add(labels={"tier": "gold", "good": "", "speed": "10"})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for name in ("a", "b"):
        assert await _placed(api, await _submit(api, namespace, nodes, name, affinity=affinity)) == good


async def test_preferred_affinity_decides_between_nodes_that_fit(api: Api, namespace: str, nodes) -> None:
    await nodes.add(labels={VIRTUAL: "yes"})
    home = await nodes.add(cpu="2")
    for number in range(3):
        path = await _submit(api, namespace, nodes, f"p{number}", cpu="100m", affinity=PREFERS_HOME)
        assert await _placed(api, path) == home


async def test_a_node_selector_that_nothing_matches_says_so(api: Api, namespace: str, nodes) -> None:
    await nodes.add()
    path = await _submit(api, namespace, nodes, "nowhere", nodeSelector={POOL: "no-such-pool"})
    assert "didn't match Pod's node affinity/selector" in await _refused(api, path)


async def test_a_gated_pod_is_not_placed_until_its_gate_is_gone(api: Api, namespace: str, nodes) -> None:
    node = await nodes.add()
    path = await _submit(api, namespace, nodes, "gated", schedulingGates=[{"name": "overspill.dev/queue"}])
    later = await _submit(api, namespace, nodes, "later")
    assert await _placed(api, later) == node  # the scheduler has seen what came before
    seen = (await api.get(path)).ok()
    assert "nodeName" not in seen["spec"]
    assert [each["reason"] for each in seen["status"]["conditions"]] == ["SchedulingGated"]

    (await api.patch(path, {"spec": {"schedulingGates": []}})).ok()
    assert await _placed(api, path) == node


async def test_another_schedulers_pods_are_left_alone(api: Api, namespace: str, nodes) -> None:
    await nodes.add()
    path = await _submit(api, namespace, nodes, "foreign", schedulerName="somebody-else")
    await _placed(api, await _submit(api, namespace, nodes, "ours"))
    seen = (await api.get(path)).ok()
    assert "nodeName" not in seen["spec"]
    assert not seen["status"].get("conditions")


async def test_pods_stay_off_a_huge_virtual_node_while_home_has_room(api: Api, namespace: str, nodes) -> None:
    """The design's own assumption: preference taint and soft affinity outweigh the scorer's liking for an empty giant."""
    home = {await nodes.add(gpus=4), await nodes.add(gpus=4)}
    virtual = await nodes.add(
        gpus=10_000, cpu="100000", taints=[BASE, PREFERENCE], labels={VIRTUAL: "yes", "type": "virtual"}
    )
    paths = [
        await _submit(api, namespace, nodes, f"p{number}", gpus=1, tolerations=OPTED_IN, affinity=PREFERS_HOME)
        for number in range(11)
    ]
    places = [await _placed(api, path) for path in paths]
    assert sum(place in home for place in places) == 8
    assert places.count(virtual) == 3


async def test_a_closed_virtual_node_leaves_the_overflow_waiting(api: Api, namespace: str, nodes) -> None:
    await nodes.add(gpus=1)
    virtual = await nodes.add(gpus=10_000, taints=[BASE, PREFERENCE, SWITCH], labels={VIRTUAL: "yes"})
    paths = [
        await _submit(api, namespace, nodes, f"p{number}", gpus=1, tolerations=OPTED_IN, affinity=PREFERS_HOME)
        for number in range(2)
    ]

    async def waiting() -> list[str]:
        seen = [(await api.get(path)).ok() for path in paths]
        return [each["metadata"]["name"] for each in seen if "nodeName" not in each["spec"]]

    (left,) = await eventually(waiting, lambda names: len(names) == 1, "one is placed at home")
    await _refused(api, f"{PODS.format(namespace)}/{left}")
    (await api.patch(f"{NODES}/{virtual}", {"spec": {"taints": [BASE, PREFERENCE]}})).ok()
    assert await _placed(api, f"{PODS.format(namespace)}/{left}") == virtual


async def test_partly_full_home_nodes_are_filled_to_the_last_before_an_empty_giant(
    api: Api, namespace: str, nodes
) -> None:
    """Home nodes that are nearly full score worst of all by what is free; taint and affinity must outweigh that."""
    home = []
    for number, taken in enumerate((7, 5, 1)):
        home.append(await nodes.add(gpus=8, cpu="10", labels={"contract.test/home": str(number)}))
        own = {**nodes.label, "contract.test/home": str(number)}
        resident = await _submit(api, namespace, nodes, f"resident-{number}", gpus=taken, cpu="8", nodeSelector=own)
        assert await _placed(api, resident) == home[-1]
    virtual = await nodes.add(gpus=10_000, cpu="100000", taints=[BASE, PREFERENCE], labels={VIRTUAL: "yes"})
    paths = [
        await _submit(api, namespace, nodes, f"p{number}", gpus=1, tolerations=OPTED_IN, affinity=PREFERS_HOME)
        for number in range(17)
    ]
    places = [await _placed(api, path) for path in paths]
    assert [places.count(name) for name in home] == [1, 3, 7]
    assert places.count(virtual) == 6


async def test_either_preference_alone_keeps_pods_off_the_giant(api: Api, namespace: str, nodes) -> None:
    """A pod without the affinity, and a pod that tolerates every taint: each is still drawn home by the other rule."""
    home = await nodes.add(gpus=2, cpu="10")
    await nodes.add(gpus=10_000, cpu="100000", taints=[BASE, PREFERENCE], labels={VIRTUAL: "yes"})
    plain = await _submit(api, namespace, nodes, "plain", gpus=1, tolerations=OPTED_IN)
    careless = await _submit(
        api, namespace, nodes, "careless", gpus=1, tolerations=[{"operator": "Exists"}], affinity=PREFERS_HOME
    )
    assert [await _placed(api, path) for path in (plain, careless)] == [home, home]


async def test_who_tolerates_everything_is_bound_to_a_closed_node_and_then_only_waits(
    api: Api, namespace: str, nodes
) -> None:
    """What a DaemonSet's pod is: named to one node by affinity, and stopped by no taint. Nobody runs it there."""
    virtual = await nodes.add(gpus=10_000, taints=[BASE, PREFERENCE, SWITCH])
    (await api.patch(f"{NODES}/{virtual}", {"spec": {"unschedulable": True}})).ok()
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [virtual]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_name]}}}
    path = await _submit(
        api, namespace, nodes, "agent", cpu="10m", tolerations=[{"operator": "Exists"}], affinity=affinity
    )
    assert await _placed(api, path) == virtual
    seen = (await api.get(path)).ok()
    assert seen["status"]["phase"] == "Pending"
    assert "startTime" not in seen["status"]
