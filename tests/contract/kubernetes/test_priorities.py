"""Priority admission: where a pod's priority comes from, and that nobody names it for themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.kubernetes.client import Api, Object, Reply, eventually
from tests.contract.kubernetes.objects import PODS, pod, replica_set, unique

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

Maker = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture
async def make(api: Api) -> AsyncIterator[Maker]:
    """Makes priority classes of the test's own; the name."""
    made: list[str] = []

    async def make(**members: Any) -> str:
        made.append(unique("class"))
        (await api.post(CLASSES, {"metadata": {"name": made[-1]}, **members})).ok()
        return made[-1]

    yield make
    for name in made:
        await api.delete(f"{CLASSES}/{name}")


async def _submit(api: Api, namespace: str, until: Callable[[Object], Any], **spec: Any) -> Object:
    """What the server makes of such a pod, once it knows the classes: it looks them up in a cache of its own."""

    async def try_it() -> Reply:
        return await api.post(PODS.format(namespace), pod("p", **spec), dryRun="All")

    reply = await eventually(try_it, lambda each: each.status == 201 and until(each.body["spec"]), "as expected")
    return reply.body["spec"]


async def test_a_pod_without_a_class_has_priority_zero(api: Api, namespace: str) -> None:
    spec = (await api.post(PODS.format(namespace), pod("p"))).ok()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


async def test_a_class_gives_its_value_and_its_policy(api: Api, namespace: str, make: Maker) -> None:
    polite, bold = await make(value=-10, preemptionPolicy="Never"), await make(value=7)
    spec = await _submit(api, namespace, bool, priorityClassName=polite)
    assert (spec["priority"], spec["preemptionPolicy"]) == (-10, "Never")
    spec = await _submit(api, namespace, bool, priorityClassName=bold)
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "PreemptLowerPriority")


async def test_the_default_class_is_for_pods_that_name_none(api: Api, namespace: str, make: Maker) -> None:
    name = await make(value=42, globalDefault=True, preemptionPolicy="Never")
    try:
        spec = await _submit(api, namespace, lambda each: each["priority"] == 42)
        assert (spec["priorityClassName"], spec["preemptionPolicy"]) == (name, "Never")
        named = await make(value=3)
        assert (await _submit(api, namespace, bool, priorityClassName=named))["priority"] == 3
    finally:
        await api.delete(f"{CLASSES}/{name}")
    spec = await _submit(api, namespace, lambda each: each["priority"] == 0)
    assert "priorityClassName" not in spec


async def test_there_is_one_default_class(api: Api, namespace: str, make: Maker) -> None:
    first = await make(value=42, globalDefault=True)
    try:
        second = {"metadata": {"name": unique("class")}, "value": 43, "globalDefault": True}
        reply = await eventually(lambda: api.post(CLASSES, second, dryRun="All"), lambda each: each.status != 201, "no")
        assert first in reply.refused(403, "Forbidden")["message"]
    finally:
        await api.delete(f"{CLASSES}/{first}")
    await _submit(api, namespace, lambda each: each["priority"] == 0)


async def test_an_unknown_class_is_refused(api: Api, namespace: str) -> None:
    reply = await api.post(PODS.format(namespace), pod("p", priorityClassName="no-such-class"))
    assert "no PriorityClass with name no-such-class was found" in reply.refused(403, "Forbidden")["message"]


async def test_a_priority_of_ones_own_is_refused(api: Api, namespace: str) -> None:
    reply = await api.post(PODS.format(namespace), pod("p", priority=5))
    assert "the integer value of priority (5) must not be provided" in reply.refused(403, "Forbidden")["message"]


async def test_a_policy_of_ones_own_must_be_the_classes(api: Api, namespace: str) -> None:
    reply = await api.post(PODS.format(namespace), pod("p", preemptionPolicy="Never"))
    reply.refused(403, "Forbidden")


@pytest.mark.parametrize(
    ("name", "value"), [("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)]
)
async def test_the_systems_own_classes_are_there(api: Api, namespace: str, name: str, value: int) -> None:
    assert (await api.get(f"{CLASSES}/{name}")).ok()["value"] == value
    spec = await _submit(api, namespace, bool, priorityClassName=name)
    assert spec["priority"] == value


@pytest.mark.parametrize(
    ("members", "field"),
    [({"value": 1_000_000_001}, "value"), ({"value": 1, "preemptionPolicy": "Sometimes"}, "preemptionPolicy")],
)
async def test_an_impossible_class_is_refused_by_field(api: Api, members: Object, field: str) -> None:
    reply = await api.post(CLASSES, {"metadata": {"name": unique("class")}, **members})
    status = reply.refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]


async def test_a_class_keeps_its_value(api: Api, make: Maker) -> None:
    name = await make(value=7)
    for change in ({"value": 8}, {"preemptionPolicy": "Never"}):
        (await api.patch(f"{CLASSES}/{name}", change)).refused(422, "Invalid")
    (await api.patch(f"{CLASSES}/{name}", {"description": "may change"})).ok()


async def test_a_pod_keeps_the_priority_it_was_made_with(api: Api, namespace: str, make: Maker) -> None:
    name = await make(value=9)
    await _submit(api, namespace, bool, priorityClassName=name)
    path = f"{PODS.format(namespace)}/p"
    (await api.post(PODS.format(namespace), pod("p", priorityClassName=name))).ok()
    (await api.delete(f"{CLASSES}/{name}")).ok()
    (await api.patch(path, {"metadata": {"labels": {"still": "here"}}})).ok()
    assert (await api.get(path)).ok()["spec"]["priority"] == 9
    (await api.patch(path, {"spec": {"priority": 10}})).refused(422, "Invalid")


async def test_the_pods_of_a_replica_set_are_admitted_like_others(api: Api, namespace: str, make: Maker) -> None:
    name = await make(value=9)
    await _submit(api, namespace, bool, priorityClassName=name)
    body = replica_set("ranked", 1, priorityClassName=name)
    (await api.post(f"/apis/apps/v1/namespaces/{namespace}/replicasets", body)).ok()
    seen = await eventually(
        lambda: api.get(PODS.format(namespace), labelSelector="app=ranked"),
        lambda reply: reply.body["items"],
        "the pod is made",
    )
    assert seen.body["items"][0]["spec"]["priority"] == 9
