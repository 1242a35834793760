"""The manifests are deleted while work is outside, and applied again: nothing is paid for twice, nothing is forgotten.

`kubectl delete -k deploy/` without `overspill uninstall` takes the services, their rights, the policies and the bus with all
its streams. What is outside must survive that, and a new installation must find its way by tags and pods alone. Queues, which
are their owners', survive it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from overspill_bus import BusSettings, connect
from overspill_bus.permissions import AUDITOR
from overspill_events.catalog import (
    Event,
    InstanceAdopted,
    InstanceCreated,
    InstanceRequested,
    InstanceTerminated,
    InstanceTerminating,
    NodeRegistered,
    OrphanFound,
)
from overspill_events.names import INSTANCE_ANNOTATION, SWITCH_TAINT, SYSTEM_NAMESPACE
from overspill_events.reasons import InstanceEnd
from overspill_kube.client import Client, PatchKind
from overspill_kube.client import connect as connect_kube
from overspill_kube.effects import set_taints
from overspill_kube.errors import KubeError
from overspill_kube.resources import CLUSTER_QUEUES, DEPLOYMENTS, NAMESPACES, NODES, PODS
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Node, Pod, Taint
from overspill_runtime.clock import SystemClock
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.cluster.test_uninstall import deployment
from tests.support.bridge_place import NAMESPACE, NODE, Place
from tests.support.cloud import Cloud, cloud
from tests.support.deployed import kubectl
from tests.support.installed import Nats, install, installed_nats
from tests.support.kube_place import done
from tests.support.manifests import DEPLOY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

CLUSTER = "test"
REPLICAS = 4
QUEUE = "gpus"
NOT_FOUND = 404
COLLECTOR = {"gc_interval": "0.3", "gc_grace": "0.5"}
# The node's silence is noticed while nothing of ours is there; the bridge renews every two seconds.
LEASE_S = "8"
SILENCE = ("--node-monitor-grace-period=10s", "--node-monitor-period=1s", "--node-eviction-rate=10")
WORK = {"app": "web", "overspill.dev/spillable": "true"}

Kind = TypeVar("Kind", bound=Event)


class Site:
    """A cluster and a provider; installations come and go."""

    def __init__(self, plane: ControlPlane, client: Client, clouds: Cloud, folder: Path) -> None:
        self.plane, self.client, self.clouds, self._folder = plane, client, clouds, folder

    @contextlib.asynccontextmanager
    async def installation(self, name: str) -> AsyncIterator[tuple[Place, Nats]]:
        """deploy/ is applied, a bus of its own runs, and so does the bridge, as its ServiceAccount with a new token."""
        folder = self._folder / name
        folder.mkdir()
        await kubectl("apply", "--validate=strict", "-k", str(DEPLOY), kubeconfig=self.plane.kubeconfig)
        rights = await install(self.plane, self.client, folder)
        async with installed_nats(cluster=CLUSTER) as nats:
            place = Place(
                kubeconfig=rights.kubeconfig("bridge"),
                nats_url=nats.url("bridge"),
                clouds=self.clouds,
                client=self.client,
                folder=folder,
            )
            try:
                await place.start_bridge(lease_duration=LEASE_S, **COLLECTOR)
                yield place, nats
            finally:
                await place.stop_bridge()

    async def remove(self) -> None:
        """Nothing but this command; it ends when the last object is gone, which no finalizer may prevent."""
        await kubectl("delete", "-k", str(DEPLOY), "--timeout=150s", kubeconfig=self.plane.kubeconfig)

    async def node(self) -> Node:
        node = await self.client.get(NODES, NODE)
        assert node is not None
        return node

    async def outside(self) -> dict[str, Pod]:
        """The work's pods on the virtual node, by UID."""
        pods = (await self.client.list(PODS, namespace=NAMESPACE, fields=f"spec.nodeName={NODE}")).items
        return {pod.metadata.uid: pod for pod in pods}

    async def rented(self) -> list[dict[str, Any]]:
        """Every instance that there ever was, as the provider tells it."""
        instances: list[dict[str, Any]] = (await self.clouds.audit())["instances"]
        return instances

    async def untouched(self, instances: dict[str, str]) -> None:
        """These (by pod) are all there ever were, they live, and nobody has asked for their end."""
        rented = await self.rented()
        assert {one["podUid"]: one["id"] for one in rented} == instances
        assert len(rented) == len(instances)
        assert all(one["living"] and one["stopRequestedAt"] is None for one in rented), rented


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with (
        control_plane(scheduler=True, controllers=True, controller_flags=SILENCE) as plane,
        cloud() as clouds,
        connect_kube(KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="overspill-test")) as client,
    ):
        yield Site(plane, client, clouds, tmp_path)


async def test_a_new_installation_takes_over_what_the_deleted_one_left(site: Site) -> None:
    async with site.installation("first") as (place, _):
        await place.eventually(lambda: _queue_is_made(site))
        instances, node = await _overflow(site, place)
        # Harder than a kubelet, which would stop it: the bridge is left to find its account, rights and lease gone.
        await site.remove()

        async def stood_down() -> bool:
            return place.has_logged('"leadership-lost"')

        await place.eventually(stood_down)
        await site.untouched(instances)
    assert await site.client.get(NAMESPACES, SYSTEM_NAMESPACE) is None
    assert await site.client.get(CLUSTER_QUEUES, QUEUE) is not None, "its kind was deleted, and the queues with it"
    assert "overspill" not in await kubectl("get", "clusterroles,clusterrolebindings", kubeconfig=site.plane.kubeconfig)
    gone_quiet = await place.eventually(lambda: _ready_is(site, "Unknown"))
    assert gone_quiet.metadata.uid == node
    # Nobody vouches for the pods any more: only a bridge that has found their instances makes them available again.
    await place.eventually(lambda: _available_is(site, 0))
    left = await site.outside()
    assert left.keys() == instances.keys()
    assert {pod.status.phase for pod in left.values()} == {"Running"}
    assert not any(pod.metadata.deletion_timestamp for pod in left.values())
    orphan = min(instances)
    done(await site.client.delete(PODS, left[orphan].metadata.name, NAMESPACE, uid=orphan, grace_seconds=0))
    assert orphan not in await site.outside()
    await site.untouched(instances)

    async with site.installation("second") as (place, nats):
        await place.eventually(lambda: _ready_is(site, "True"))
        await place.eventually(lambda: _whole(site))
        newcomer = await _taken_over(site, instances, orphan=orphan, node=node)
        await _come_to_nothing(site, place)
        await place.stop_bridge()
        told = await _told(nats)
    audit = await site.clouds.audit()
    assert len(audit["instances"]) == REPLICAS + 1, audit
    assert audit["overlaps"] == []
    _judge(told, instances, orphan=orphan, newcomer=newcomer)
    (registered,) = _of(told, NodeRegistered)
    assert (registered.uid, registered.created) == (node, False)


async def _queue_is_made(site: Site) -> bool:
    """A new kind is served a moment after it was defined."""
    try:
        done(await site.client.create(CLUSTER_QUEUES, {"metadata": {"name": QUEUE}}))
    except KubeError as error:
        if error.status != NOT_FOUND:
            raise
        return False
    return True


async def _overflow(site: Site, place: Place) -> tuple[dict[str, str], str]:
    """The work runs outside; its instances by pod, and the virtual node's UID."""
    node = await place.eventually(lambda: site.client.get(NODES, NODE))
    # No home node has GPUs and nobody decides: the gate is opened by hand.
    switch = Taint(key=SWITCH_TAINT, effect="NoSchedule")
    await set_taints(site.client, NODE, remove=[switch], expect_uid=node.metadata.uid)
    done(await site.client.create(DEPLOYMENTS, deployment("web", WORK, replicas=REPLICAS, gpus=1), NAMESPACE))
    await place.eventually(lambda: _whole(site))
    pods = await site.outside()
    instances = {uid: pod.metadata.annotations[INSTANCE_ANNOTATION] for uid, pod in pods.items()}
    await site.untouched(instances)
    return instances, node.metadata.uid


async def _whole(site: Site) -> bool:
    """Every replica serves, and exactly as many instances live."""
    pods = await site.outside()
    return (
        await _available_is(site, REPLICAS)
        and len(pods) == len(await site.clouds.living()) == REPLICAS
        and all(INSTANCE_ANNOTATION in pod.metadata.annotations for pod in pods.values())
    )


async def _available_is(site: Site, wanted: int) -> bool:
    web = await site.client.get(DEPLOYMENTS, "web", NAMESPACE)
    return web is not None and (web.status.available_replicas or 0) == wanted


async def _ready_is(site: Site, wanted: str) -> Node | None:
    node = await site.node()
    return node if [one.status for one in node.status.conditions if one.type == "Ready"] == [wanted] else None


async def _taken_over(site: Site, instances: dict[str, str], *, orphan: str, node: str) -> str:
    """The same instances for the same pods, the orphan ended, one new one for the pod (returned) in the lost one's place."""
    survivors = {uid: instance for uid, instance in instances.items() if uid != orphan}
    pods = await site.outside()
    (newcomer,) = pods.keys() - survivors.keys()
    assert {uid: pods[uid].metadata.annotations[INSTANCE_ANNOTATION] for uid in survivors} == survivors
    rented = await site.rented()
    assert sorted(one["podUid"] for one in rented) == sorted([*instances, newcomer])  # none asked for twice
    assert {one["podUid"]: one["id"] for one in rented if one["podUid"] in instances} == instances
    assert [one["podUid"] for one in rented if one["stopRequestedAt"] is not None] == [orphan]
    now = await site.node()
    assert now.metadata.uid == node
    assert SWITCH_TAINT not in {taint.key for taint in now.spec.taints}, "the gate is not the bridge's to close"
    return newcomer


async def _come_to_nothing(site: Site, place: Place) -> None:
    """The new bridge ends what it adopted when the work ends, like its own."""
    nobody = {"spec": {"replicas": 0}}
    done(await site.client.patch(DEPLOYMENTS, "web", nobody, kind=PatchKind.MERGE, namespace=NAMESPACE))

    async def nothing_left() -> bool:
        return not await site.clouds.living() and not await site.outside()

    await place.eventually(nothing_left)


async def _told(nats: Nats) -> list[Event]:
    """What the bridge has said on this bus, in order."""
    settings = BusSettings(cluster=CLUSTER, service=AUDITOR, nats_url=nats.url(AUDITOR), makes_streams=False)
    async with connect(settings, clock=SystemClock(), wait=True) as bus:
        return [one.event async for one in bus.read([f"overspill.v1.{CLUSTER}.bridge.>"]) if one.event is not None]


def _judge(told: list[Event], instances: dict[str, str], *, orphan: str, newcomer: str) -> None:
    """The second bridge's whole life, on a bus that never heard of the first."""
    survivors = {uid: instance for uid, instance in instances.items() if uid != orphan}
    assert _pairs(told, InstanceAdopted) == sorted(survivors.items())
    assert [one.pod.uid for one in _of(told, InstanceRequested)] == [newcomer]
    (created,) = _of(told, InstanceCreated)
    assert created.pod.uid == newcomer
    (found,) = _of(told, OrphanFound)
    assert (found.pod.uid, found.instance) == (orphan, instances[orphan])
    assert found.age_seconds is not None
    assert found.age_seconds >= float(COLLECTOR["gc_grace"])
    ends = {one.instance: one.end for one in _of(told, InstanceTerminating)}
    assert ends.pop(instances[orphan]) is InstanceEnd.ORPHAN
    assert ends == dict.fromkeys((*survivors.values(), created.instance), InstanceEnd.POD_DELETED)
    first = next(one for one in told if isinstance(one, InstanceTerminating))
    assert told.index(found) < told.index(first)
    assert _pairs(told, InstanceTerminated) == sorted([*instances.items(), (newcomer, created.instance)])


def _of(told: list[Event], kind: type[Kind]) -> list[Kind]:
    return [one for one in told if isinstance(one, kind)]


def _pairs(told: list[Event], kind: type[InstanceAdopted | OrphanFound | InstanceTerminated]) -> list[tuple[str, str]]:
    """Pod and instance of each."""
    return sorted((one.pod.uid, one.instance) for one in _of(told, kind))
