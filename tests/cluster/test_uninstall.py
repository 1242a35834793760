"""Leaving a real cluster: a Deployment has overflowed, a Job and a pod wait for a queue, our own Deployment runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from overspill_bus.testing import nats_server
from overspill_events.names import (
    ADMISSION_GATE,
    BASE_TAINT,
    CONTROL_CONFIG_MAP,
    GPU_RESOURCE,
    PART_OF,
    PART_OF_LABEL,
    QUEUE_LABEL,
    SPILLABLE_LABEL,
    SWITCH_TAINT,
    SYSTEM_NAMESPACE,
)
from overspill_kube.client import connect
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PODS
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Taint
from tests.cluster.controlplane.start import control_plane
from tests.support.bridge_place import NAMESPACE, NODE, Place
from tests.support.cloud import cloud
from tests.support.commands import overspill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
REPLICAS = 2


def deployment(name: str, labels: dict[str, str], *, replicas: int, gpus: int) -> dict[str, object]:
    resources = {"limits": {GPU_RESOURCE: str(gpus)}} if gpus else {}
    spec = {
        "containers": [{"name": "main", "image": "none", "resources": resources}],
        "tolerations": [{"key": BASE_TAINT, "operator": "Exists"}] if gpus else [],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    meta = {"name": name, "labels": labels}
    return {"metadata": meta, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


async def fill(place: Place) -> None:
    """Everything that uninstall has to deal with."""
    client = place.client
    ours = {PART_OF_LABEL: PART_OF, "app.kubernetes.io/component": "sampler"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    queued = {"name": "queued", "labels": {QUEUE_LABEL: "research"}}
    gates = [{"name": ADMISSION_GATE}, {"name": "example.com/other"}]
    web = deployment("web", {"app": "web", SPILLABLE_LABEL: "true"}, replicas=REPLICAS, gpus=1)
    for doing in (
        client.create(DEPLOYMENTS, web, NAMESPACE),
        client.create(DEPLOYMENTS, deployment("overspill-sampler", ours, replicas=1, gpus=0), SYSTEM_NAMESPACE),
        client.create(JOBS, {"metadata": queued, "spec": {"suspend": True, "template": {"spec": pod}}}, NAMESPACE),
        client.create(PODS, {"metadata": queued, "spec": pod | {"schedulingGates": gates}}, NAMESPACE),
    ):
        outcome = await doing
        assert isinstance(outcome, Done), outcome


async def test_nothing_of_ours_is_left(tmp_path: Path) -> None:
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
        await fill(place)
        # No home node has GPUs and nobody decides: the gate is opened by hand.
        switch = Taint(key=SWITCH_TAINT, effect="NoSchedule")
        await set_taints(client, NODE, remove=[switch], expect_uid=node.metadata.uid)

        async def running() -> bool:
            return len([pod for pod in await place.pods() if pod.status.phase == "Running"]) == REPLICAS

        await place.eventually(running)
        env = {
            "OVERSPILL_KUBECONFIG": str(plane.kubeconfig),
            "OVERSPILL_BRIDGE_PROVIDERS": clouds.setting,
            "OVERSPILL_BRIDGE_LIST_LAG": "0.5",  # the bridge's here
        }
        code, out, err = await overspill("uninstall", "--yes", env=env | {"OVERSPILL_NAMESPACE": "elsewhere"})
        assert (code, out) == (2, "")
        assert f"runs in the namespace {SYSTEM_NAMESPACE}, not in elsewhere: set OVERSPILL_NAMESPACE" in err
        code, out, err = await overspill("uninstall", "--yes", "--now", "--timeout", "2m", env=env)
        assert code == 1, (out, err, place.log())
        assert "still running, stop them and run this again" in err  # the bridge is a process of the test's
        assert not await clouds.living()
        assert await client.get(NODES, NODE) is None
        job, pod = await client.get(JOBS, "queued", NAMESPACE), await client.get(PODS, "queued", NAMESPACE)
        assert job is not None
        assert not job.spec.suspend
        assert pod is not None
        assert [gate.name for gate in pod.spec.scheduling_gates] == ["example.com/other"]
        assert {pod.spec.node_name for pod in await place.pods() if "app" in pod.metadata.labels} == {""}
        sampler = await client.get(DEPLOYMENTS, "overspill-sampler", SYSTEM_NAMESPACE)
        assert sampler is not None
        assert sampler.spec.replicas == 0
        await place.stop_bridge()
        code, out, err = await overspill("uninstall", "--yes", env=env)
        assert code == 0, (out, err)
        assert "has left this cluster" in out
        assert await client.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None
        assert (await client.list(LEASES, namespace=SYSTEM_NAMESPACE)).items == ()
        code, out, _ = await overspill("uninstall", "--yes", env=env)
        assert code == 0
        assert out.startswith("nothing of Overspill is left in this cluster or at its providers but"), out
