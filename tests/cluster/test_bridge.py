"""The bridge on the real control plane: a Deployment overflows, is hurt, heals and leaves nothing behind."""

import contextlib

import pytest

from overspill_bus.testing import nats_server
from overspill_events.names import BASE_TAINT, GPU_RESOURCE, SPILLABLE_LABEL, SWITCH_TAINT, SYSTEM_NAMESPACE
from overspill_kube.client import PatchKind, connect
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import DEPLOYMENTS, NAMESPACES, NODES
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Taint
from tests.cluster.controlplane.start import control_plane
from tests.support.bridge_place import NAMESPACE, NODE, Place
from tests.support.cloud import cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def deployment(replicas):
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU_RESOURCE: "1"}}}
    template = {
        "metadata": {"labels": {"app": "web", SPILLABLE_LABEL: "true"}},
        "spec": {"containers": [container], "tolerations": [{"key": BASE_TAINT, "operator": "Exists"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


async def running(place, count):
    async def reached():
        pods = [pod for pod in await place.pods() if pod.status.phase == "Running"]
        return pods if len(pods) == count else None

    return await place.eventually(reached)


async def test_a_deployment_overflows_heals_and_comes_to_nothing(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(scheduler=True, controllers=True))
        nats = await stack.enter_async_context(nats_server())
        clouds = await stack.enter_async_context(cloud())
        settings = KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="overspill-test")
        client = await stack.enter_async_context(connect(settings))
        place = Place(kubeconfig=plane.kubeconfig, nats_url=nats.url, clouds=clouds, client=client, folder=tmp_path)
        stack.push_async_callback(place.stop_bridge)
        assert isinstance(await client.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}}), Done)
        await place.start_bridge(max_external_gpus="16")
        node = await place.eventually(lambda: client.get(NODES, NODE))
        assert isinstance(await client.create(DEPLOYMENTS, deployment(3), NAMESPACE), Done)

        gate = [Taint(key=SWITCH_TAINT, effect="NoSchedule")]
        await set_taints(client, NODE, remove=gate, expect_uid=node.metadata.uid)
        pods = await running(place, 3)
        seconds = {t.key: t.toleration_seconds for t in pods[0].spec.tolerations if t.effect == "NoExecute"}
        assert set(seconds.values()) == {3600}

        async def available():
            one = await client.get(DEPLOYMENTS, "web", NAMESPACE)
            return one.status.available_replicas == 3

        await place.eventually(available)
        await clouds.end((await clouds.living())[0]["id"], "preempted")

        async def healed():
            pods = await place.pods()
            reasons = [pod.status.reason for pod in pods if pod.status.phase == "Failed"]
            return reasons == ["ProviderInstancePreempted"] and await running(place, 3)

        await place.eventually(healed)
        await place.kill_bridge()
        await place.start_bridge(max_external_gpus="16")
        scale = {"spec": {"replicas": 0}}
        await client.patch(DEPLOYMENTS, "web", scale, kind=PatchKind.MERGE, namespace=NAMESPACE)

        async def nothing_left():
            return not await clouds.living() and all(p.status.phase == "Failed" for p in await place.pods())

        await place.eventually(nothing_left)
        assert (await clouds.audit())["overlaps"] == []
