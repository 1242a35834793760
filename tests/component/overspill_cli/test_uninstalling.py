"""Leaving a cluster: nothing is taken away while an instance lives, and then everything is."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from overspill_events.names import (
    ADMISSION_GATE,
    BASE_TAINT,
    CLUSTER_TAG,
    CONTROL_CONFIG_MAP,
    NO_SCHEDULE,
    QUEUE_LABEL,
    SWITCH_TAINT,
    SYSTEM_NAMESPACE,
    VIRTUAL_LABEL,
)
from overspill_kube.client import PatchKind
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PODS
from overspill_objects.core import Taint
from tests.component.overspill_evictor.home import HOME, VIRTUAL, Home
from tests.support.bridge_place import NODE, Place, bridge_place
from tests.support.cloud import cloud
from tests.support.commands import overspill
from tests.support.house import house

pytestmark = pytest.mark.timeout(240)  # a decider and leases that nobody gives back are waited for


async def uninstall(place: Place, *arguments: str) -> tuple[int, str, str]:
    return await overspill("uninstall", *arguments, env=env_of(place))


def env_of(place: Place, *, list_lag: float = 0.0) -> dict[str, str]:
    return {
        "OVERSPILL_KUBECONFIG": str(place.kubeconfig),
        "OVERSPILL_BRIDGE_PROVIDERS": place.cloud.setting,
        "OVERSPILL_BRIDGE_LIST_LAG": str(list_lag),
    }


async def made(doing) -> None:
    outcome = await doing
    assert isinstance(outcome, Done), outcome


async def queue_something(place: Place) -> None:
    """A Job and a pod that wait for a queue, a Job that its owner has suspended, a home node with a taint of ours."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    labels = {QUEUE_LABEL: "research"}
    for name, meta in (("queued", {"labels": labels}), ("own", {})):
        spec = {"suspend": True, "template": {"spec": pod}}
        await made(place.client.create(JOBS, {"metadata": {"name": name, **meta}, "spec": spec}, "default"))
    gated = {
        "metadata": {"name": "gated", "labels": labels},
        "spec": pod | {"schedulingGates": [{"name": "other/gate"}]},
    }
    await made(place.client.create(PODS, gated, "default"))
    await made(place.client.create(NODES, {"metadata": {"name": "home"}}))
    node = await place.client.get(NODES, "home")
    assert node is not None
    await set_taints(
        place.client, "home", add=[Taint(key=BASE_TAINT, effect=NO_SCHEDULE)], expect_uid=node.metadata.uid
    )


async def gates(place: Place) -> list[str]:
    pod = await place.get("gated")
    assert pod is not None
    return [gate.name for gate in pod.spec.scheduling_gates]


async def suspended(place: Place) -> set[str]:
    return {one.metadata.name for one in (await place.client.list(JOBS)).items if one.spec.suspend}


async def test_it_refuses_while_an_instance_lives_and_then_leaves_nothing(tmp_path: Path) -> None:
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        await place.pod("web")
        await place.phase("web", "Running")
        await queue_something(place)
        node = await place.client.get(NODES, NODE)
        assert node is not None
        # Nobody decides here: the gate is open, and no decider will close it.
        await set_taints(
            place.client, NODE, remove=[Taint(key=SWITCH_TAINT, effect=NO_SCHEDULE)], expect_uid=node.metadata.uid
        )
        await the_plan_is_told(place)

        code, out, err = await uninstall(place, "--yes", "--timeout", "25s")
        assert code == 1, (out, err)
        assert "1 pods outside, coming home as room allows (--now evicts them at once): default/web" in err
        assert "no decider closed overspill" in err
        assert f"taken back by: overspill gate auto {NODE}; overspill resume\n" in err
        await nothing_was_taken_away(place)
        assert len(await place.cloud.living()) == 1

        await place.kill_bridge()
        code, _, err = await uninstall(place, "--yes", "--now", "--timeout", "3s")
        assert code == 1
        assert "default/web" in err
        await nothing_was_taken_away(place)

        await place.start_bridge()
        code, out, err = await uninstall(place, "--yes", "--now")
        assert code == 1, (out, err)
        assert "still running, stop them and run this again: bridge-under-test" in err
        assert "has left" not in out
        assert not await place.cloud.living()
        assert await gates(place) == ["other/gate"]
        assert await suspended(place) == {"own"}
        home = await place.client.get(NODES, "home")
        assert home is not None
        assert BASE_TAINT not in {taint.key for taint in home.spec.taints}
        await stays_away(place)

        await place.stop_bridge()
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, (out, err)
        assert "has left this cluster" in out
        assert await place.client.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None
        assert not (await place.client.list(LEASES, namespace=SYSTEM_NAMESPACE)).items
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, err
        assert out.startswith("nothing of Overspill is left in this cluster or at its providers but"), out


@contextlib.asynccontextmanager
async def renewed(place: Place, name: str, moment: datetime) -> AsyncIterator[None]:
    """A lease, renewed as by somebody whose clock shows this moment now."""

    def spec() -> dict[str, object]:
        nonlocal moment
        moment += timedelta(seconds=0.2)
        renewal = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": "pod-1", "leaseDurationSeconds": 5, "renewTime": renewal}

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.2)
            patch = {"spec": spec()}
            await made(place.client.patch(LEASES, name, patch, kind=PatchKind.MERGE, namespace=SYSTEM_NAMESPACE))

    await made(place.client.create(LEASES, {"metadata": {"name": name}, "spec": spec()}, SYSTEM_NAMESPACE))
    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


@pytest.mark.parametrize("ahead", [timedelta(days=-1), timedelta(days=1)])
async def test_whose_lease_is_renewed_leads_by_whatever_clock(tmp_path: Path, ahead: timedelta) -> None:
    async with bridge_place(tmp_path) as place:
        async with renewed(place, "overspill-bridge-north", datetime.now(UTC) + ahead):
            code, out, err = await uninstall(place, "--yes")
            assert code == 1, (out, err)
            assert "still running, stop them and run this again: pod-1" in err
            assert (await place.client.list(LEASES, namespace=SYSTEM_NAMESPACE)).items
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, (out, err)
        assert not (await place.client.list(LEASES, namespace=SYSTEM_NAMESPACE)).items


async def test_an_instance_that_the_lists_lacked_is_waited_for(tmp_path: Path) -> None:
    """A bridge was killed right after a create, and its pod deleted: nothing tells of the instance but a later list."""
    async with bridge_place(tmp_path) as place:
        system = await place.client.get(NAMESPACES, "kube-system")
        assert system is not None
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OVERSPILL_", "KUBECONFIG"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "overspill_cli", "uninstall", "--yes", env=env | env_of(place, list_lag=15),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        assert b"a list may lack a new one for 15 s" in await process.stderr.readline()
        await asyncio.sleep(3)
        late = await place.cloud.rent("late", tags={CLUSTER_TAG: system.metadata.uid})
        assert f"1 instances live: {late} at fake".encode() in await process.stderr.readline()
        await place.cloud.end(late, "gone")
        out, err = await process.communicate()
        assert (process.returncode, b"nothing of Overspill is left" in out) == (0, True), (out, err)


async def test_it_refuses_while_a_provider_is_in_use_that_it_cannot_ask(tmp_path: Path) -> None:
    async with bridge_place(tmp_path) as place:
        condition = {"type": "overspill.dev/provider-other", "status": "True"}
        node = {"metadata": {"name": NODE, "labels": {VIRTUAL_LABEL: "true"}}, "status": {"conditions": [condition]}}
        await made(place.client.create(NODES, node))
        code, out, err = await uninstall(place, "--yes")
        assert (code, out) == (2, "")
        assert f"were not given: other (by node {NODE})" in err
        assert await place.client.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None, "nothing was changed"
        assert await place.client.get(NODES, NODE) is not None


async def the_plan_is_told(place: Place) -> None:
    """By a dry run, and where --yes is missing; neither changes anything."""
    code, plan, err = await uninstall(place, "--dry-run")
    assert code == 0, err
    for line in (
        f"close the gate of {NODE}\n", "bring pod default/web away", "remove the gate of pod default/gated",
        "unsuspend job default/queued", "remove our taints from node home", f"delete virtual node {NODE}",
        "delete lease overspill-system/overspill-bridge-overspill", "wait for the end of instance",
    ):  # fmt: skip
        assert line in plan, (line, plan)
    assert "default/own" not in plan
    code, again, err = await uninstall(place)
    assert code == 2
    assert "--yes" in err
    assert again == plan
    assert await place.client.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None, "nothing was changed"


async def nothing_was_taken_away(place: Place) -> None:
    node = await place.client.get(NODES, NODE)
    assert node is not None
    assert SWITCH_TAINT in {taint.key for taint in node.spec.taints}
    assert ADMISSION_GATE in await gates(place)
    assert await suspended(place) == {"queued", "own"}


async def stays_away(place: Place) -> None:
    """The bridge has looked at its pods again since (a foreign pod that it cannot run is told so) and made no node."""
    assert await place.client.get(NODES, NODE) is None
    await place.pod("late")

    async def waits() -> bool:
        pod = await place.get("late")
        return pod is not None and any("paused" in str(one) for one in pod.status.container_statuses)

    await place.eventually(waits)
    assert await place.client.get(NODES, NODE) is None
    assert not await place.cloud.living()
    await place.client.delete(PODS, "late", "default", grace_seconds=0)


async def test_an_orphan_that_nobody_ends_is_named(tmp_path: Path) -> None:
    """No node, no pod, no bridge: an instance of this cluster is enough to refuse; another cluster's is not ours."""
    async with bridge_place(tmp_path) as place:
        system = await place.client.get(NAMESPACES, "kube-system")
        assert system is not None
        await place.cloud.rent("other", tags={CLUSTER_TAG: "another-cluster"})
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, (out, err)
        orphan = await place.cloud.rent("orphan", tags={CLUSTER_TAG: system.metadata.uid})
        code, out, err = await uninstall(place, "--yes", "--timeout", "2s")
        assert code == 1
        assert f"1 instances live: {orphan} at fake" in err
        await place.cloud.faults(list_incomplete={"times": 1000})
        await place.cloud.end(orphan, "gone")
        code, _, err = await uninstall(place, "--yes", "--timeout", "2s")
        assert code == 1, "an incomplete list proves nothing"
        assert "not known: fake: its list was incomplete" in err
        await place.cloud.faults()
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, (out, err)


async def test_without_now_pods_leave_by_the_evictors_returns(tmp_path: Path) -> None:
    """A gate that is closed already; the evictor, paused before, brings the replicas home one after the other."""
    async with house(tmp_path) as built, cloud() as shop:
        home = Home(built)
        await home.build(replicas=2)
        for _ in range(2):
            await home.replica(on=VIRTUAL)
        env = built.env(OVERSPILL_BRIDGE_PROVIDERS=shop.setting, OVERSPILL_BRIDGE_LIST_LAG="0")
        code, out, err = await overspill("pause", "evictor", env=env)
        assert (code, "evictor: a pause is written" in out) == (1, True), err  # nobody leads yet
        async with home.evictor(), home.kept(2):
            code, out, err = await overspill("uninstall", "--yes", "--timeout", "60s", env=env)
            assert (code, "still running" in err) == (1, True), (out, err)  # the evictor is nobody's Deployment
            pods = await home.pods()
            assert {pod.spec.node_name for pod in pods.values() if pod.metadata.deletion_timestamp is None} == {HOME}
        nodes = (await built.kube.list(NODES)).items
        assert all(VIRTUAL_LABEL not in node.metadata.labels for node in nodes)


async def test_services_in_the_cluster_are_stopped_first(tmp_path: Path) -> None:
    """Our Deployments are scaled to zero; nobody else's is."""
    async with bridge_place(tmp_path, controllers=True) as place:
        for name, part in (("overspill-decider", "overspill"), ("other", "else")):
            labels = {"app.kubernetes.io/part-of": part, "app.kubernetes.io/component": "decider"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
            body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
            await made(place.client.create(DEPLOYMENTS, body, SYSTEM_NAMESPACE))
        code, out, err = await uninstall(place, "--yes")
        assert code == 0, (out, err)
        replicas = {one.metadata.name: one.spec.replicas for one in (await place.client.list(DEPLOYMENTS)).items}
        assert replicas == {"overspill-decider": 0, "other": 1}
