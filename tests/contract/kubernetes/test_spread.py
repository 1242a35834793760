"""Topology spread as kube-scheduler has it, and what it means beside a virtual node: one that lacks the labels takes no
such pod and holds nobody up, one that has them counts as an empty place however closed it is.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import PODS, kill, pod, scheduler_knows

ZONE = "contract.test/zone"
HOST = "kubernetes.io/hostname"
LABELS = {"app": "spread"}
VIRTUAL = {"key": "contract.test/virtual", "effect": "NoSchedule"}


def _evenly(key: str, *, when: str = "DoNotSchedule", skew: int = 1, **more: Any) -> Object:
    selector = {"matchLabels": LABELS}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector, **more}


async def _submit(api: Api, namespace: str, nodes: Any, name: str, *constraints: Object, **spec: Any) -> str:
    """Give the scheduler a pod that only this test's nodes may take; its path."""
    await nodes.known(namespace)
    spec = {"schedulerName": "default-scheduler", "nodeSelector": nodes.label, **spec}
    if constraints:
        spec["topologySpreadConstraints"] = list(constraints)
    (await api.post(PODS.format(namespace), pod(name, labels=LABELS, **spec))).ok()
    return f"{PODS.format(namespace)}/{name}"


async def _placed(api: Api, path: str) -> str:
    seen = await api.eventually(path, lambda each: each["spec"].get("nodeName"), f"{path} is bound")
    return seen["spec"]["nodeName"]


async def _refused(api: Api, path: str) -> str:
    seen = await api.eventually(path, lambda each: each["status"].get("conditions"), f"{path} is judged")
    (condition,) = seen["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    return condition["message"]


async def test_pods_are_spread_over_zones(api: Api, namespace: str, nodes) -> None:
    big = {await nodes.add(labels={ZONE: "a"}, cpu="1000"), await nodes.add(labels={ZONE: "a"}, cpu="1000")}
    small = await nodes.add(labels={ZONE: "b"}, cpu="8")
    places = [await _placed(api, await _submit(api, namespace, nodes, f"p{at}", _evenly(ZONE))) for at in range(6)]
    assert sum(place in big for place in places) == 3
    assert places.count(small) == 3


async def test_a_pod_waits_rather_than_make_it_uneven(api: Api, namespace: str, nodes) -> None:
    await nodes.add(labels={ZONE: "a"})
    await nodes.add(labels={ZONE: "b"}, cpu="10m")
    first, second = [
        await _placed(api, await _submit(api, namespace, nodes, f"p{at}", _evenly(ZONE))) for at in range(2)
    ]
    assert {first, second} == set(nodes.names)
    third = await _submit(api, namespace, nodes, "p2", _evenly(ZONE))
    assert await _placed(api, third) == nodes.names[0]
    message = await _refused(api, await _submit(api, namespace, nodes, "p3", _evenly(ZONE)))
    assert "1 node(s) didn't match pod topology spread constraints" in message
    assert "1 Insufficient cpu" in message

    await kill(api, third)
    assert await _placed(api, f"{PODS.format(namespace)}/p3") == nodes.names[0]


async def test_a_greater_skew_allows_more(api: Api, namespace: str, nodes) -> None:
    roomy = await nodes.add(labels={ZONE: "a"})
    await nodes.add(labels={ZONE: "b"}, cpu="1m")
    for at in range(2):
        assert await _placed(api, await _submit(api, namespace, nodes, f"p{at}", _evenly(ZONE, skew=2))) == roomy
    await _refused(api, await _submit(api, namespace, nodes, "p2", _evenly(ZONE, skew=2)))


async def test_a_virtual_node_without_the_label_neither_takes_nor_holds_up(api: Api, namespace: str, nodes) -> None:
    home = {await nodes.add(labels={ZONE: zone}) for zone in ("a", "b")}
    await nodes.add(cpu="100000", taints=[VIRTUAL])
    tolerant = {"tolerations": [{"key": VIRTUAL["key"], "operator": "Exists"}]}
    paths = [await _submit(api, namespace, nodes, f"p{at}", _evenly(ZONE), **tolerant) for at in range(4)]
    assert {await _placed(api, path) for path in paths} == home


async def test_pods_that_only_the_virtual_node_could_take_wait(api: Api, namespace: str, nodes) -> None:
    await nodes.add(cpu="100000")
    message = await _refused(api, await _submit(api, namespace, nodes, "p0", _evenly(ZONE)))
    assert "1 node(s) didn't match pod topology spread constraints (missing required label)" in message


async def test_a_closed_node_with_the_label_is_an_empty_domain(api: Api, namespace: str, nodes) -> None:
    """Why a virtual node must not carry zone labels: home would stall at maxSkew while it is closed."""
    home = await nodes.add(labels={ZONE: "a"})
    await nodes.add(labels={ZONE: "cloud"}, taints=[VIRTUAL])
    assert await _placed(api, await _submit(api, namespace, nodes, "p0", _evenly(ZONE))) == home
    message = await _refused(api, await _submit(api, namespace, nodes, "p1", _evenly(ZONE)))
    assert "1 node(s) didn't match pod topology spread constraints" in message


async def test_a_node_that_the_pod_does_not_select_is_no_domain(api: Api, namespace: str, nodes) -> None:
    home = await nodes.add(labels={ZONE: "a", "contract.test/home": "yes"})
    await nodes.add(labels={ZONE: "b"})
    selector = {**nodes.label, "contract.test/home": "yes"}
    for at in range(3):
        path = await _submit(api, namespace, nodes, f"p{at}", _evenly(ZONE), nodeSelector=selector)
        assert await _placed(api, path) == home


async def test_only_pods_of_the_kind_in_the_namespace_count(api: Api, namespace: str, nodes) -> None:
    first = await nodes.add(labels={ZONE: "a"})
    (await api.post(PODS.format(namespace), pod("stranger", labels={"app": "other"}))).ok()
    for at in range(2):
        body = pod(f"other-{at}", labels={"app": "other"}, schedulerName="default-scheduler", nodeSelector=nodes.label)
        (await api.post(PODS.format(namespace), body)).ok()
        assert await _placed(api, f"{PODS.format(namespace)}/other-{at}") == first
    await nodes.add(labels={ZONE: "b"}, cpu="1m")
    assert await _placed(api, await _submit(api, namespace, nodes, "p0", _evenly(ZONE))) == first


async def test_a_pod_that_leaves_counts_no_more(api: Api, namespace: str, nodes) -> None:
    roomy = await nodes.add(labels={ZONE: "a"})
    await nodes.add(labels={ZONE: "b"}, cpu="1m")
    first = await _submit(api, namespace, nodes, "p0", _evenly(ZONE))
    assert await _placed(api, first) == roomy
    waiting = await _submit(api, namespace, nodes, "p1", _evenly(ZONE))
    await _refused(api, waiting)
    (await api.delete(first)).ok()
    await scheduler_knows(api, namespace, roomy)  # and with it, that the first has to go

    # The domain is empty now: for who waits, or for who comes next, if the scheduler does not look at the former again.
    paths = [waiting, await _submit(api, namespace, nodes, "p2", _evenly(ZONE))]

    async def bound() -> list[str]:
        return [(await api.get(path)).ok()["spec"].get("nodeName") for path in paths]

    assert sorted(filter(None, await eventually(bound, any, "one of them is bound"))) == [roomy]


async def test_hosts_are_domains_too(api: Api, namespace: str, nodes) -> None:
    hosts = [await nodes.add(labels={HOST: name}, cpu=cpu) for name, cpu in (("h1", "1000"), ("h2", "8"), ("h3", "8"))]
    places = [await _placed(api, await _submit(api, namespace, nodes, f"p{at}", _evenly(HOST))) for at in range(6)]
    assert sorted(places) == sorted(hosts * 2)


async def test_fewer_domains_than_wanted_count_as_an_empty_one(api: Api, namespace: str, nodes) -> None:
    only = await nodes.add(labels={ZONE: "a"})
    wanted = _evenly(ZONE, minDomains=2)
    assert await _placed(api, await _submit(api, namespace, nodes, "p0", wanted)) == only
    await _refused(api, await _submit(api, namespace, nodes, "p1", wanted))


async def test_a_wish_for_evenness_is_granted_and_keeps_nobody_waiting(api: Api, namespace: str, nodes) -> None:
    first, second = await nodes.add(labels={ZONE: "a"}), await nodes.add(labels={ZONE: "b"})
    soft = _evenly(ZONE, when="ScheduleAnyway")
    places = [await _placed(api, await _submit(api, namespace, nodes, f"p{at}", soft)) for at in range(6)]
    assert (places.count(first), places.count(second)) == (3, 3)
    nowhere = await nodes.add()
    lost = await _submit(api, namespace, nodes, "p6", soft, nodeSelector={**nodes.label, "contract.test/name": "x"})
    await _refused(api, lost)
    assert nowhere not in places


async def test_a_wish_for_evenness_goes_without_where_only_a_node_without_the_label_is_left(
    api: Api, namespace: str, nodes
) -> None:
    only = await nodes.add()
    assert await _placed(api, await _submit(api, namespace, nodes, "p0", _evenly(ZONE, when="ScheduleAnyway"))) == only


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"maxSkew": 0}, "maxSkew"),
        ({"topologyKey": ""}, "topologyKey"),
        ({"whenUnsatisfiable": "Perhaps"}, "whenUnsatisfiable"),
        ({"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}, "minDomains"),
        ({"minDomains": 0}, "minDomains"),
    ],
)
async def test_an_impossible_constraint_is_refused_by_field(
    api: Api, namespace: str, change: Object, field: str
) -> None:
    body = pod("impossible", topologySpreadConstraints=[{**_evenly(ZONE), **change}])
    status = (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")
    assert f"spec.topologySpreadConstraints[0].{field}" in [cause["field"] for cause in status["details"]["causes"]]


async def test_a_pair_of_key_and_kind_is_given_once(api: Api, namespace: str) -> None:
    body = pod("twice", topologySpreadConstraints=[_evenly(ZONE), _evenly(ZONE, skew=2)])
    (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")
