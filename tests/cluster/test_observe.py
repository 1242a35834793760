"""Observe mode on an installation: every service decides and says so, and nothing is written.

The judge is the audit log of a real API server, and what the provider and the objects outside look like before and
after. A first day without anything outside; then work overflows, and all are made to observe what each would act upon;
in the end they act, which shows that there was something to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest
import yaml

from overspill_bus import BusSettings
from overspill_bus import connect as connect_bus
from overspill_bus.permissions import AUDITOR
from overspill_demo import objects
from overspill_demo.arrangement import VIRTUAL_NODE
from overspill_demo.provider import ProviderBooks
from overspill_demo.scenario import Scenario
from overspill_demo.story import Story
from overspill_demo.watching import Watch
from overspill_events import names
from overspill_events.catalog import (
    AdmissionDeferred,
    EvictionRefused,
    GateDecided,
    NodeRegistered,
    OrphanFound,
    ProviderSampled,
    SpillDeferred,
    TerminationDeferred,
)
from overspill_events.reasons import DeferReason, GateReason, InstanceEnd, RefusalReason, SpillReason, Verdict
from overspill_kube.client import PatchKind, connect
from overspill_kube.resources import JOBS, NAMESPACES, NODES, PODS
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import CLUSTER, PROVIDER, Cluster, Lab
from overspill_runtime.clock import SystemClock
from tests.cluster.controlplane.start import control_plane
from tests.contract.kubernetes.client import Api, endpoint_of
from tests.contract.kubernetes.objects import scheduler_knows
from tests.support.cloud import FAST, Cloud
from tests.support.installed import install, installed_nats
from tests.support.kube_place import done
from tests.support.observing import QUEUED, Site
from tests.support.rights_story import settings as settings_of
from tests.support.rights_story import until
from tests.support.stories import SHAPE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

MANUAL: Final = Path(__file__).parents[2] / "docs" / "install.md"
# An observing bridge does not keep its node; what its silence leads to is for `test_reinstall`. Here nobody but the
# services may be seen to act.
PATIENT: Final = ("--node-monitor-grace-period=1h",)
FULL: Final = 0.1
BOUND: Final = "bound"
ORPHAN: Final = "00000000-0000-4000-8000-000000000001"  # UID of a pod that never was


def scenario() -> Scenario:
    """Research that holds seven of home's eight GPUs for ever, and six replicas of which five overflow."""
    return msgspec.convert(
        {
            "name": "observed",
            "source": "made for the tests",
            "licence": "Apache-2.0",
            "cut": "none",
            "nodes": [
                {"name": f"home-{number}", "cpu_milli": 32000, "memory_mib": 131072, "gpus": 4, "model": "G"}
                for number in range(2)
            ],
            "research": [{"name": f"research-{number}", "shape": SHAPE, "run_seconds": 36000} for number in range(7)],
            "inference": [
                {
                    "name": "serve",
                    "shape": SHAPE,
                    "scalings": [{"at": 0, "replicas": 1}, {"at": 1, "replicas": 6}],
                    "max_unavailable": 2,
                }
            ],
            "research_at": 0,
            "queue_opens_at": 0.5,
        },
        Scenario,
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(scheduler=True, audit=True, controller_flags=PATIENT))
        kube = KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="overspill-test")
        admin = await stack.enter_async_context(connect(kube))
        nats = await stack.enter_async_context(installed_nats(cluster=CLUSTER))
        installation = await install(plane, admin, tmp_path)
        lab = Lab(
            tmp_path / "lab",
            nodes=objects.home_nodes(scenario()),
            service_settings={},
            services=(),
            cluster=Cluster(kubeconfig=plane.kubeconfig),
            cloud_arguments=FAST,
        )
        await stack.enter_async_context(lab)
        auditor = BusSettings(cluster=CLUSTER, service=AUDITOR, nats_url=nats.url(AUDITOR), makes_streams=False)
        bus = await stack.enter_async_context(connect_bus(auditor, clock=SystemClock(), wait=True))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {lab.cloud_token}"})
        )
        assert plane.audit_log is not None
        yield Site(
            admin=admin,
            lab=lab,
            cloud=Cloud(lab.cloud_url, lab.cloud_token, session),
            bus=bus,
            installation=installation,
            settings=settings_of(installation, nats),
            audit_log=plane.audit_log,
        )


async def test_observing_says_every_decision_and_writes_nothing(site: Site, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        books = ProviderBooks(site.lab.cloud_url, site.lab.cloud_token, session)
        watch = Watch(scenario(), kube=site.admin, bus=site.bus, books=books)
        await stack.enter_async_context(watch.running())
        story = Story(scenario(), site.admin, home_is_full=lambda: watch.free_share() <= FULL, note=lambda _: None)
        await story.prepare()
        playing = asyncio.create_task(story.play())
        stack.push_async_callback(_cancelled, playing)

        await _first_day(site)
        async with site.services("act"):
            await _overflow(site)
        await playing
        await _new_situation(site)
        before = await site.picture()
        await _observed(site)
        for what, now in (await site.picture()).items():
            assert now == before[what], f"{what} changed while everybody observed"
        async with site.services("act"):
            await _done_at_last(site)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# --- the first day ------------------------------------------------------------------------------------------------------


async def _first_day(site: Site) -> None:
    """Nothing of ours is in the cluster, and the node that the manual says to make is the only gate."""
    async with site.observing() as witness:

        async def deferred() -> bool:
            would = [
                one for one in await witness.heard(AdmissionDeferred) if one.detail == "would be admitted: observing"
            ]
            return len({one.workload.uid for one in would}) == len(scenario().research)

        await witness.until("every job would be admitted", deferred)
        await witness.until("the provider is sampled", lambda: witness.heard(ProviderSampled))
        assert await site.admin.get(NODES, VIRTUAL_NODE) is None
        assert await witness.heard(GateDecided) == []
        done(await site.admin.create(NODES, _node_of_the_manual()))

        async def decided() -> bool:
            last = (await witness.heard(GateDecided))[-1:]
            return [(one.node, one.verdict, one.reason) for one in last] == [
                (VIRTUAL_NODE, Verdict.CLOSED, GateReason.ALREADY)
            ]

        await witness.until("the decider judges the gate of a node that was made by hand", decided)
        assert await witness.heard(NodeRegistered) == []
    assert {taint.key for taint in (await site.node()).spec.taints} >= {names.BASE_TAINT, names.SWITCH_TAINT}
    assert (await site.cloud.audit())["instances"] == []


def _node_of_the_manual() -> dict[str, Any]:
    """The manifest in install.md, under the name that the story's virtual node has."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)]
    (node,) = [block for block in blocks if block.get("kind") == "Node"]
    return {"metadata": node["metadata"] | {"name": VIRTUAL_NODE}, "spec": node["spec"]}


# --- work is outside, and everything has changed ------------------------------------------------------------------------


async def _overflow(site: Site) -> None:
    """They act: the node is theirs, home is full, five replicas run outside."""

    async def outside() -> bool:
        pods = (await site.outside()).values()
        return [pod.status.phase for pod in pods] == ["Running"] * 5 and all(
            names.INSTANCE_ANNOTATION in pod.metadata.annotations for pod in pods
        )

    await until("five replicas run outside", outside)


async def _new_situation(site: Site) -> None:
    """Nobody of ours is there. Each will find something that it would do."""
    admin, pods = site.admin, sorted((await site.outside()).values(), key=lambda pod: pod.metadata.name)
    # For the decider: the gate is closed by hand, and home is full. For the bridge: a permanent taint is gone.
    taints = [{"key": names.SWITCH_TAINT, "value": "true", "effect": names.NO_SCHEDULE}]
    done(await admin.patch(NODES, VIRTUAL_NODE, {"spec": {"taints": taints}}, kind=PatchKind.MERGE))
    # What takes the place of the pod that is deleted next must find it closed.
    async with Api(endpoint_of(site.lab.kubeconfig)) as api:
        await scheduler_knows(api, objects.INFERENCE_NAMESPACE, VIRTUAL_NODE)
    # For the bridge: a pod to end, one whose instance has ended, one without an instance, and an instance without a pod.
    done(await admin.delete(PODS, pods[0].metadata.name, objects.INFERENCE_NAMESPACE))
    await site.cloud.end(pods[1].metadata.annotations[names.INSTANCE_ANNOTATION], "preempted")
    done(await admin.create(PODS, _bound_pod(), objects.INFERENCE_NAMESPACE))
    cluster = await admin.get(NAMESPACES, "kube-system")
    assert cluster is not None
    tags = {names.CLUSTER_TAG: cluster.metadata.uid, names.NODE_TAG: VIRTUAL_NODE, names.POD_UID_TAG: ORPHAN}
    await site.cloud.rent("orphan", tags=tags | {names.POD_TAG: f"{objects.INFERENCE_NAMESPACE}/never-was"})
    # For the admitter, as soon as there is room: one more job. For the evictor, then: three replicas that could return.
    job = objects.job(msgspec.structs.replace(scenario().research[0], name=QUEUED))
    done(await admin.create(JOBS, job, objects.RESEARCH_NAMESPACE))


def _bound_pod() -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m"}, "limits": {names.GPU_RESOURCE: "1"}}
    return {
        "metadata": {"name": BOUND, "labels": {names.SPILLABLE_LABEL: "true"}},
        "spec": {
            "nodeName": VIRTUAL_NODE,
            "containers": [{"name": "serve", "image": "example.invalid/serve:1", "resources": resources}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        },
    }


async def _observed(site: Site) -> None:
    """First while home is full, then with room at home."""
    async with site.observing() as witness:

        async def would_open() -> bool:
            told = [(one.verdict, one.reason) for one in await witness.heard(GateDecided)]
            return (Verdict.OPEN, GateReason.HOME_FULL) in told

        async def would_create() -> bool:
            told = [one for one in await witness.heard(SpillDeferred) if one.reason is SpillReason.OBSERVING]
            return [(one.pod.name, one.detail.partition("/")[0]) for one in told] == [
                (BOUND, f"would create {PROVIDER}")
            ]

        async def found_the_orphan() -> bool:
            return [one.pod.uid for one in await witness.heard(OrphanFound)] == [ORPHAN]

        async def would_end() -> bool:
            ends = {one.end for one in await witness.heard(TerminationDeferred)}
            return ends >= {InstanceEnd.POD_DELETED, InstanceEnd.ORPHAN}

        async def waits() -> bool:
            told = [one for one in await witness.heard(AdmissionDeferred) if one.workload.name == QUEUED]
            return [one.reason for one in told] == [DeferReason.NO_QUOTA]

        await witness.until("the decider would open the gate", would_open)
        await witness.until("the bridge would create an instance", would_create)
        await witness.until("the bridge has found the orphan", found_the_orphan)
        await witness.until("the bridge would end what nobody needs", would_end)
        await witness.until("the admitter has no quota left", waits)
        await _research_ends(site)

        async def would_return() -> bool:
            told = [one for one in await witness.heard(EvictionRefused) if one.reason is RefusalReason.OBSERVING]
            return bool(told) and all("would evict" in one.message for one in told)

        async def would_admit() -> bool:
            told = [one for one in await witness.heard(AdmissionDeferred) if one.workload.name == QUEUED]
            return told[-1].detail == "would be admitted: observing"

        async def would_close() -> bool:
            last = (await witness.heard(GateDecided))[-1]
            return (last.verdict, last.reason) == (Verdict.CLOSED, GateReason.ALREADY)

        await witness.until("the evictor would bring somebody home", would_return)
        await witness.until("the admitter would admit the job", would_admit)
        await witness.until("the decider would leave the gate closed", would_close)


async def _research_ends(site: Site) -> None:
    for research in scenario().research:
        done(await site.admin.delete(JOBS, research.name, objects.RESEARCH_NAMESPACE, propagation="Background"))


async def _done_at_last(site: Site) -> None:
    """All of it was to be done."""

    async def repaired() -> bool:
        return {taint.key for taint in (await site.node()).spec.taints} >= {names.BASE_TAINT, names.PREFERENCE_TAINT}

    async def admitted() -> bool:
        job = await site.admin.get(JOBS, QUEUED, objects.RESEARCH_NAMESPACE)
        return job is not None and not job.spec.suspend

    async def only_the_bound_pod_is_outside() -> bool:
        living = {one["podUid"] for one in await site.cloud.living()}
        active = {name: pod for name, pod in (await site.outside()).items() if pod.status.phase != "Failed"}
        bound = active.get(BOUND)
        return active.keys() == {BOUND} and bound is not None and living == {bound.metadata.uid}

    await until("the bridge repairs its node", repaired)
    await until("the admitter admits the job", admitted)
    await until("all else has come home, or to its end", only_the_bound_pod_is_outside)
