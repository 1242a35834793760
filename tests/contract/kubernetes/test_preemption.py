"""kube-scheduler's preemption: who must go for a more important pod, who may stay, and what the important pod does
meanwhile. Overspill's placeholders at home and its hold on cloud capacity both stand on these rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import BUDGETS, NODES, PODS, budget, kill, pod, report, run, unique

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

# Priority (and "Never" for a pod that does not preempt) → the name of a class that the server's admission knows.
ClassOf = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture
async def class_of(api: Api, namespace: str) -> AsyncIterator[ClassOf]:
    """Makes priority classes of the test's own."""
    made: dict[tuple[int, str], str] = {}

    async def known(value: int, policy: str = "PreemptLowerPriority") -> str:
        if (value, policy) not in made:
            name = made[value, policy] = unique("class")
            (await api.post(CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy})).ok()
            probe = pod("probe", priorityClassName=name)
            # Admission looks classes up in a cache of its own.
            await eventually(
                lambda: api.post(PODS.format(namespace), probe, dryRun="All"),
                lambda reply: reply.status == 201,
                "the class is known",
            )
        return made[value, policy]

    yield known
    for name in made.values():
        await api.delete(f"{CLASSES}/{name}")


async def _submit(
    api: Api, namespace: str, nodes: Any, name: str, priority_class: str, *, gpus: int, **more: Any
) -> str:
    """Give the scheduler a pod that only this test's nodes may take; its path."""
    await nodes.known(namespace)
    labels = more.pop("labels", None)
    spec = {"schedulerName": "default-scheduler", "nodeSelector": nodes.label, "priorityClassName": priority_class}
    (await api.post(PODS.format(namespace), pod(name, labels=labels, gpus=gpus, **spec, **more))).ok()
    return f"{PODS.format(namespace)}/{name}"


async def _resident(
    api: Api, namespace: str, nodes: Any, name: str, priority_class: str, *, gpus: int, **more: Any
) -> str:
    """A pod that runs already, on the node that has room for it."""
    path = await _submit(api, namespace, nodes, name, priority_class, gpus=gpus, **more)
    await _placed(api, path)
    await run(api, namespace, name)
    return path


async def _placed(api: Api, path: str) -> str:
    seen = await api.eventually(path, lambda each: each["spec"].get("nodeName"), f"{path} is bound")
    return seen["spec"]["nodeName"]


async def _nominated(api: Api, path: str) -> str:
    seen = await api.eventually(path, lambda each: each["status"].get("nominatedNodeName"), f"{path} is nominated")
    assert "nodeName" not in seen["spec"]
    return seen["status"]["nominatedNodeName"]


async def _refused(api: Api, path: str) -> str:
    """The scheduler's explanation of why the pod fits nowhere."""
    seen = await api.eventually(path, _verdict, f"{path} is judged")
    condition = _verdict(seen)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable"), seen
    return condition["message"]


def _verdict(seen: Object) -> Object | None:
    conditions = seen["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), None)


async def _going(api: Api, namespace: str) -> set[str]:
    """The names of the pods that have been told to go."""
    items = (await api.get(PODS.format(namespace))).ok()["items"]
    return {each["metadata"]["name"] for each in items if "deletionTimestamp" in each["metadata"]}


async def _some_go(api: Api, namespace: str, count: int) -> set[str]:
    return await eventually(lambda: _going(api, namespace), lambda names: len(names) >= count, f"{count} must go")


async def test_the_fewest_that_make_room_go_and_are_told_why(api: Api, namespace: str, nodes, class_of) -> None:
    """The most important are spared first, so a small pod may stay where a bigger one of more importance goes."""
    node = await nodes.add(gpus=4)
    await _resident(api, namespace, nodes, "small", await class_of(10), gpus=1)
    big = await _resident(api, namespace, nodes, "big", await class_of(20), gpus=2)
    await _resident(api, namespace, nodes, "equal", await class_of(1000), gpus=1)
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=2)

    assert await _nominated(api, urgent) == node
    assert await _some_go(api, namespace, 1) == {"big"}
    conditions = (await api.get(big)).ok()["status"]["conditions"]
    target = next(each for each in conditions if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")

    await kill(api, big)
    assert await _placed(api, urgent) == node
    assert await _going(api, namespace) == set()


async def test_a_bound_preemptor_is_nominated_no_longer(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    low = await _resident(api, namespace, nodes, "low", await class_of(10), gpus=1)
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1)
    await _nominated(api, urgent)
    assert await _some_go(api, namespace, 1) == {"low"}
    await kill(api, low)
    await _placed(api, urgent)
    seen = (await api.get(urgent)).ok()
    assert "nominatedNodeName" not in seen["status"]


async def test_a_pod_that_never_preempts_waits(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    low = await _resident(api, namespace, nodes, "low", await class_of(10), gpus=1)
    polite = await _submit(api, namespace, nodes, "polite", await class_of(1000, "Never"), gpus=1)
    assert "Insufficient nvidia.com/gpu" in await _refused(api, polite)
    # The scheduler has decided; somebody behind in the queue is judged after it.
    await _refused(api, await _submit(api, namespace, nodes, "later", await class_of(5, "Never"), gpus=1))
    assert await _going(api, namespace) == set()
    assert "nominatedNodeName" not in (await api.get(polite)).ok()["status"]
    await kill(api, low)
    await _placed(api, polite)


async def test_nobody_goes_for_a_pod_of_the_same_importance(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "first", await class_of(10), gpus=1)
    second = await _submit(api, namespace, nodes, "second", await class_of(10), gpus=1)
    assert "No preemption victims found" in await _refused(api, second)
    assert await _going(api, namespace) == set()


async def test_nobody_goes_when_that_would_not_be_enough(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=2)
    await _resident(api, namespace, nodes, "low", await class_of(10), gpus=1)
    await _resident(api, namespace, nodes, "high", await class_of(2000), gpus=1)
    await _refused(api, await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=2))
    assert await _going(api, namespace) == set()


async def test_nobody_goes_from_a_node_that_would_not_do_anyway(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "low", await class_of(10), gpus=1)
    path = f"{PODS.format(namespace)}/urgent"
    selector = {**nodes.label, "contract.test/nowhere": "yes"}
    body = pod("urgent", gpus=1, schedulerName="default-scheduler", nodeSelector=selector)
    body["spec"]["priorityClassName"] = await class_of(1000)
    (await api.post(PODS.format(namespace), body)).ok()
    assert "Preemption is not helpful for scheduling" in await _refused(api, path)
    assert await _going(api, namespace) == set()


async def test_the_node_with_the_least_important_victim_is_chosen(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "mid", await class_of(20), gpus=1)
    await nodes.add(gpus=2)
    await _resident(api, namespace, nodes, "low-1", await class_of(10), gpus=1)
    await _resident(api, namespace, nodes, "low-2", await class_of(10), gpus=1)
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1)
    assert await _nominated(api, urgent) == nodes.names[1]
    assert len(await _some_go(api, namespace, 1) & {"low-1", "low-2"}) == 1


async def test_of_equal_pods_the_one_that_started_last_goes(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=2)
    for name, started in (("young", "2026-11-30T07:00:00Z"), ("old", "2026-11-30T06:00:00Z")):
        await _resident(api, namespace, nodes, name, await class_of(10), gpus=1)
        await report(api, namespace, name, startTime=started)
    # Whoever is judged after the reports has a scheduler that has seen them.
    await _refused(api, await _submit(api, namespace, nodes, "later", await class_of(5), gpus=1))
    await _nominated(api, await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1))
    assert await _some_go(api, namespace, 1) == {"young"}


async def test_a_budget_is_kept_where_there_is_a_choice(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "guarded", await class_of(10), gpus=1, labels={"app": "guarded"})
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "free", await class_of(20), gpus=1)
    (await api.post(BUDGETS.format(namespace), budget("keep", {"app": "guarded"}, minAvailable=1))).ok()
    await api.eventually(
        f"{BUDGETS.format(namespace)}/keep",
        lambda seen: seen["status"].get("currentHealthy") == 1,
        "the budget counts the pod",
    )
    # Somebody who is judged after the budget was made has a scheduler that has probably seen it, and waits for good.
    await _refused(api, await _submit(api, namespace, nodes, "later", await class_of(5), gpus=1))
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1)
    assert await _nominated(api, urgent) == nodes.names[1]
    assert await _some_go(api, namespace, 1) == {"free"}


async def test_a_budget_is_broken_where_there_is_none(api: Api, namespace: str, nodes, class_of) -> None:
    """Victims are deleted, not evicted."""
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "guarded", await class_of(10), gpus=1, labels={"app": "guarded"})
    (await api.post(BUDGETS.format(namespace), budget("keep", {"app": "guarded"}, minAvailable=1))).ok()
    await _nominated(api, await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1))
    assert await _some_go(api, namespace, 1) == {"guarded"}


async def test_a_preemptor_waits_for_its_victims_and_takes_no_others(api: Api, namespace: str, nodes, class_of) -> None:
    """The room that comes piece by piece is its own: no lesser pod may slip in."""
    node = await nodes.add(gpus=2)
    one = await _resident(api, namespace, nodes, "one", await class_of(10), gpus=1)
    two = await _resident(api, namespace, nodes, "two", await class_of(10), gpus=1)
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=2)
    await _nominated(api, urgent)
    assert await _some_go(api, namespace, 2) == {"one", "two"}
    other = await nodes.add(gpus=1)  # makes the scheduler look again
    await _resident(api, namespace, nodes, "elsewhere", await class_of(10), gpus=1)

    await kill(api, one)
    lesser = await _submit(api, namespace, nodes, "lesser", await class_of(5), gpus=1)
    await _refused(api, lesser)
    assert await _going(api, namespace) == {"two"}
    await kill(api, two)
    assert await _placed(api, urgent) == node
    assert "nodeName" not in (await api.get(lesser)).ok()["spec"]
    assert await _going(api, namespace) == set()
    assert other in nodes.names


async def test_a_nomination_is_a_hint_and_other_room_is_taken(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=1)
    await _resident(api, namespace, nodes, "low", await class_of(10), gpus=1)
    urgent = await _submit(api, namespace, nodes, "urgent", await class_of(1000), gpus=1)
    await _nominated(api, urgent)
    assert await _some_go(api, namespace, 1) == {"low"}
    other = await nodes.add(gpus=1)

    async def looked_again() -> Object:
        # A scheduler that is still busy with the preemption when a node comes does not hear of it (seen on 1.37.2), and
        # would look again after five minutes; a change of the node makes it look.
        (await api.patch(f"{NODES}/{other}", {"metadata": {"labels": {"contract.test/look": unique("look")}}})).ok()
        return (await api.get(urgent)).ok()

    seen = await eventually(looked_again, lambda each: "nodeName" in each["spec"], f"{urgent} is bound")
    assert seen["spec"]["nodeName"] == other


async def test_two_preemptors_take_different_victims(api: Api, namespace: str, nodes, class_of) -> None:
    await nodes.add(gpus=2)
    for name in ("one", "two"):
        await _resident(api, namespace, nodes, name, await class_of(10), gpus=1)
    urgent = [await _submit(api, namespace, nodes, f"urgent-{at}", await class_of(1000), gpus=1) for at in range(2)]
    assert await _some_go(api, namespace, 2) == {"one", "two"}
    for name in ("one", "two"):
        await kill(api, f"{PODS.format(namespace)}/{name}")
    for path in urgent:
        await _placed(api, path)


async def test_a_placeholder_gives_way_at_once(api: Api, namespace: str, nodes, class_of) -> None:
    """The way to keep room at home: a pod below everybody, which has no grace and preempts nobody."""
    node = await nodes.add(gpus=2)
    filler = await class_of(-10, "Never")
    spec = {"terminationGracePeriodSeconds": 0}
    for name in ("filler-1", "filler-2"):
        await _resident(api, namespace, nodes, name, filler, gpus=1, **spec)
    returning = await _submit(api, namespace, nodes, "returning", await class_of(0), gpus=1)
    assert await _placed(api, returning) == node
    left = {each["metadata"]["name"] for each in (await api.get(PODS.format(namespace))).ok()["items"]}
    assert len(left & {"filler-1", "filler-2"}) == 1
