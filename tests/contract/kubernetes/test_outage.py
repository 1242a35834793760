"""A node whose kubelet (or bridge) is down: what becomes of it and of its pods, and that a long toleration saves them.

The waiting times of a real cluster (50 s until a node is missed, 300 s that pods are given then) are shortened on both
sides: 8 s, enough for a machine that stands still for a while, and what each pod here tolerates. One other node always
goes on renewing its lease: where every node of a cluster is silent, the real controller holds still, since then it is
more likely deaf itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.controlplane.start import control_plane
from tests.contract.kubernetes.client import QUIET_S, STRATEGIC_PATCH, Api, Endpoint, Object, endpoint_of
from tests.contract.kubernetes.conftest import lab
from tests.contract.kubernetes.objects import LEASES, NODES, PODS, READY, bind, pod, run

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
BEAT_S = 0.5
REAL = ("--node-monitor-grace-period=8s", "--node-monitor-period=1s", "--node-eviction-rate=10")
LAB = ("--node-grace-seconds", "8")
pytestmark = pytest.mark.timeout(180)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[pytest.param("real", marks=pytest.mark.cluster), "lab"]
)
async def endpoint(request: pytest.FixtureRequest) -> AsyncIterator[Endpoint]:
    """A server of its own, whose controllers miss a node soon."""
    if request.param == "real":
        async with control_plane(scheduler=True, controller_flags=REAL) as plane:
            yield endpoint_of(plane.kubeconfig)
    else:
        async with lab(*LAB) as target:
            yield target


class Bridge:
    """Renews the lease of a node, until it is stopped."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node
        self._path = f"{LEASES.format('kube-node-lease')}/{node}"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Report the node ready and go on renewing its lease."""
        status = {"status": {"conditions": [READY]}}
        (await self._api.patch(f"{NODES}/{self._node}/status", status, STRATEGIC_PATCH)).ok()
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        """Fall silent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _beat(self) -> None:
        while True:
            now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": self._node, "leaseDurationSeconds": 40, "renewTime": now}
            reply = await self._api.patch(self._path, {"spec": spec})
            if reply.status == 404:
                body = {"metadata": {"name": self._node}, "spec": spec}
                (await self._api.post(self._path.rpartition("/")[0], body)).ok()
            await asyncio.sleep(BEAT_S)


@pytest_asyncio.fixture
async def bridges(api: Api, nodes: Any) -> AsyncIterator[list[Bridge]]:
    """The bridge of a node that will fail, and of another that will not."""
    made = [Bridge(api, await nodes.add()) for _ in range(2)]
    (await api.get("/api/v1/namespaces/kube-node-lease")).ok()
    for bridge in made:
        await bridge.start()
    yield made
    for bridge in made:
        await bridge.stop()


def _tolerates(seconds: int) -> list[Object]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in (NOT_READY, UNREACHABLE)
    ]


async def _running(api: Api, namespace: str, node: str, name: str, seconds: int) -> str:
    (await api.post(PODS.format(namespace), pod(name, tolerations=_tolerates(seconds)))).ok()
    await run(api, namespace, name, node)
    return f"{PODS.format(namespace)}/{name}"


async def _missed(api: Api, node: str) -> Object:
    return await api.eventually(
        f"{NODES}/{node}",
        lambda seen: (
            {(each["key"], each["effect"]) for each in seen["spec"].get("taints", [])}
            == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
        ),
        f"{node} is tainted as unreachable",
    )


async def _leaves(api: Api, path: str) -> Object:
    return await api.eventually(path, lambda seen: "deletionTimestamp" in seen["metadata"], f"{path} has to go")


async def _stays(api: Api, path: str) -> None:
    assert "deletionTimestamp" not in (await api.get(path)).ok()["metadata"]


async def test_a_silent_node_is_unknown_and_its_pods_unready(api: Api, namespace: str, nodes, bridges) -> None:
    path = await _running(api, namespace, nodes.names[0], "patient", 3600)
    await bridges[0].stop()
    seen = await _missed(api, nodes.names[0])
    ready = next(each for each in seen["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    seen = await api.eventually(
        path,
        lambda each: each["status"]["conditions"] and _condition(each, "Ready")["status"] == "False",
        "the pod is unready",
    )
    assert seen["status"]["phase"] == "Running"
    other = (await api.get(f"{NODES}/{nodes.names[1]}")).ok()
    assert not other["spec"].get("taints")


def _condition(seen: Object, kind: str) -> Object:
    return next((each for each in seen["status"]["conditions"] if each["type"] == kind), {"status": None})


async def test_pods_go_when_their_patience_is_over_and_say_why(api: Api, namespace: str, nodes, bridges) -> None:
    short = await _running(api, namespace, nodes.names[0], "short", 1)
    patient = await _running(api, namespace, nodes.names[0], "patient", 3600)
    await bridges[0].stop()
    seen = await _leaves(api, short)
    target = _condition(seen, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
    await _stays(api, patient)


async def test_a_pod_that_was_made_patient_once_it_was_bound_outlives_the_outage(
    api: Api, namespace: str, nodes, bridges
) -> None:
    """What the bridge does with every pod of its node: only the number of its tolerations changes."""
    witness = await _running(api, namespace, nodes.names[0], "witness", 2)
    path = f"{PODS.format(namespace)}/patient"
    (await api.post(PODS.format(namespace), pod("patient", tolerations=_tolerates(1)))).ok()
    await bind(api, namespace, "patient", nodes.names[0])
    (await api.patch(path, {"spec": {"tolerations": _tolerates(3600)}})).ok()
    await run(api, namespace, "patient")

    await bridges[0].stop()
    await _leaves(api, witness)
    await _stays(api, path)
    await bridges[0].start()
    await api.eventually(f"{NODES}/{nodes.names[0]}", lambda seen: not seen["spec"].get("taints"), "the node is back")
    await run(api, namespace, "patient")
    await _stays(api, path)


async def test_patience_that_is_given_during_the_outage_comes_too_late(
    api: Api, namespace: str, nodes, bridges
) -> None:
    """A countdown that runs is not changed by another number: who wants to save a pod must do so when it is bound."""
    path = await _running(api, namespace, nodes.names[0], "late", 8)
    witness = await _running(api, namespace, nodes.names[0], "witness", 1)
    await bridges[0].stop()
    await _leaves(api, witness)  # so the other's countdown runs, too; the node's taints alone do not tell
    (await api.patch(path, {"spec": {"tolerations": _tolerates(3600)}})).ok()
    await _leaves(api, path)


async def test_patience_without_end_stops_the_countdown(api: Api, namespace: str, nodes, bridges) -> None:
    path = await _running(api, namespace, nodes.names[0], "endless", 12)
    await bridges[0].stop()
    await _missed(api, nodes.names[0])
    endless = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in (NOT_READY, UNREACHABLE)]
    (await api.patch(path, {"spec": {"tolerations": endless}})).ok()
    await _leaves(api, await _running(api, namespace, nodes.names[0], "witness", 13))
    await _stays(api, path)


async def test_an_outage_that_ends_in_time_costs_nobody(api: Api, namespace: str, nodes, bridges) -> None:
    path = await _running(api, namespace, nodes.names[0], "lucky", 12)
    await bridges[0].stop()
    await _missed(api, nodes.names[0])
    await bridges[0].start()
    await api.eventually(f"{NODES}/{nodes.names[0]}", lambda seen: not seen["spec"].get("taints"), "the node is back")
    await bridges[0].stop()
    await _missed(api, nodes.names[0])  # a second outage starts to count anew
    # When the witness goes, more than its patience has passed since the first outage, and far less since the second.
    await _leaves(api, await _running(api, namespace, nodes.names[0], "witness", 5))
    await _stays(api, path)


async def test_a_pod_that_tolerates_everything_stays(api: Api, namespace: str, nodes, bridges) -> None:
    """A DaemonSet's pod: no outage takes it."""
    (await api.post(PODS.format(namespace), pod("agent", tolerations=[{"operator": "Exists"}]))).ok()
    await run(api, namespace, "agent", nodes.names[0])
    witness = await _running(api, namespace, nodes.names[0], "witness", 1)
    await bridges[0].stop()
    await _leaves(api, witness)
    await _stays(api, f"{PODS.format(namespace)}/agent")


async def test_a_deleted_pod_waits_for_a_kubelet_that_is_out(api: Api, namespace: str, nodes, bridges) -> None:
    path = await _running(api, namespace, nodes.names[0], "held", 3600)
    await bridges[0].stop()
    await _missed(api, nodes.names[0])
    (await api.delete(path)).ok()
    await _leaves(api, path)
    await bridges[0].start()
    await api.eventually(f"{NODES}/{nodes.names[0]}", lambda seen: not seen["spec"].get("taints"), "the node is back")
    (await api.delete(path, gracePeriodSeconds="0")).ok()
    await api.gone(path)


async def test_where_every_node_is_silent_no_pod_has_to_go(api: Api, namespace: str, nodes, bridges) -> None:
    """Then it is more likely the controller that hears nothing: nodes are marked, and nobody is sent away.

    It looks once a second, so that one node may be missed a look before the other: the pod's countdown then runs until
    both are. Its patience is longer than that, and shorter than the test waits. The real controller may have a mark for
    the eviction of pods under way while it thinks better of it, and then leaves it on the node (seen on 1.37.2): such an
    outage is ended, and another one begun.
    """
    patience_s = 8
    for attempt in range(3):
        path = await _running(api, namespace, nodes.names[0], f"short-{attempt}", patience_s)
        for bridge in bridges:
            await bridge.stop()
        if await _closed_and_nothing_else(api, nodes.names):
            await asyncio.sleep(patience_s + 2 * QUIET_S)
            if await _closed_and_nothing_else(api, nodes.names):
                break
        for bridge, name in zip(bridges, nodes.names, strict=True):
            await bridge.start()
            await api.eventually(f"{NODES}/{name}", lambda seen: not seen["spec"].get("taints"), f"{name} is back")
    else:
        pytest.fail("nodes were marked for the eviction of their pods each time")
    await _stays(api, path)

    await bridges[1].start()  # one is heard again: now the other is really missed
    await _leaves(api, path)


async def _closed_and_nothing_else(api: Api, names: list[str]) -> bool:
    """Whether all these nodes come to take nobody new, and send nobody away."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            for name in names:
                await api.eventually(
                    f"{NODES}/{name}",
                    lambda seen: (
                        _condition(seen, "Ready")["status"] == "Unknown"
                        and [(each["key"], each["effect"]) for each in seen["spec"].get("taints", [])]
                        == [(UNREACHABLE, "NoSchedule")]
                    ),
                    f"{name} takes nobody new",
                )
            return True
    return False
