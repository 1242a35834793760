"""The small story on an installation whose services have their own rights only, and what the story leaves out.

What happens rarely needs rights too: a restart in the middle, an operator's order and pause, an environment from a
ConfigMap and a Secret, instances that nobody asked for, a virtual node that somebody deletes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from overspill_bus import Bus, BusSettings
from overspill_bus import connect as connect_bus
from overspill_bus.permissions import AUDITOR
from overspill_demo import objects
from overspill_demo.arrangement import MAX_EXTERNAL_GPUS, VIRTUAL_NODE, arranged
from overspill_demo.invariants import judge
from overspill_demo.provider import ProviderBooks
from overspill_demo.scenario import Scenario
from overspill_demo.story import Story
from overspill_demo.watching import Watch
from overspill_events import names
from overspill_events.catalog import AdmissionDeferred
from overspill_events.names import SERVICES
from overspill_events.reasons import DeferReason
from overspill_events.subjects import STREAM_SUBJECTS
from overspill_kube.client import Client, PatchKind
from overspill_kube.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, SECRETS, Resource
from overspill_lab.lab import CLUSTER, PROVIDER, Cluster, Lab, clean_environment
from overspill_objects.core import Node
from overspill_runtime.clock import SystemClock
from overspill_service.control import Pause, entry_of
from tests.support.installed import Installation, Nats
from tests.support.kube_place import done
from tests.support.stories import SETTINGS, patient_scenario

WITHIN_S: Final = 150.0  # each step; the machine may be busy with others
FULL: Final = 0.1
WEB: Final = "environment"


async def perform(kubeconfig: Path, admin: Client, installation: Installation, nats: Nats, folder: Path) -> None:
    """The whole performance. Raises AssertionError for a promise that was broken or a step that did not come."""
    scenario = msgspec.convert(patient_scenario(), Scenario)
    async with contextlib.AsyncExitStack() as stack:
        lab = await stack.enter_async_context(
            Lab(
                folder,
                nodes=objects.home_nodes(scenario),
                service_settings=settings(installation, nats),
                cluster=Cluster(kubeconfig=kubeconfig),
            )
        )
        bus = await stack.enter_async_context(
            connect_bus(
                BusSettings(cluster=CLUSTER, service=AUDITOR, nats_url=nats.url(AUDITOR), makes_streams=False),
                clock=SystemClock(),
            )
        )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        books = ProviderBooks(lab.cloud_url, lab.cloud_token, session)
        watch = Watch(scenario, kube=admin, bus=bus, books=books)
        await stack.enter_async_context(watch.running())
        await _the_story(scenario, admin, lab, watch)
        epilogue = Epilogue(admin, lab, bus, watch, session)
        await epilogue.order_pause_and_environment()
        await epilogue.orphans()
        await _doctor_is_content(lab, nats)
        await epilogue.damaged_node()
        await epilogue.lost_node()


def settings(installation: Installation, nats: Nats) -> Mapping[str, Mapping[str, str]]:
    """The demo's arrangement, with each service's own credentials."""
    common = arranged(SETTINGS)
    return {
        service: {
            **common[service],
            "OVERSPILL_KUBECONFIG": str(installation.kubeconfig(service)),
            "OVERSPILL_NATS_URL": nats.url(service),
            "OVERSPILL_NATS_MAKES_STREAMS": "false",
        }
        for service in SERVICES
    }


async def until(what: str, holds: Callable[[], Awaitable[Any]]) -> Any:
    """What `holds` answers as soon as that is true. Raises AssertionError."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not (answer := await holds()):  # noqa: ASYNC110  other processes decide it
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WITHIN_S:g} s") from None
    return answer


# --- the story ----------------------------------------------------------------------------------------------------------


async def _the_story(scenario: Scenario, admin: Client, lab: Lab, watch: Watch) -> None:
    async def knows_the_gate() -> bool:
        return watch.recollection.gate_open is not None

    story = Story(scenario, admin, home_is_full=lambda: watch.free_share() <= FULL, note=lambda _: None)
    await until("the virtual node is there", knows_the_gate)
    await story.prepare()
    async with _side_by_side(story.play(), _thaw(story, watch), _kills(lab, watch)):
        await until("everybody is home and nothing lives outside", lambda: _is_over(story, watch))
    broken = [
        one for one in judge(await watch.observation(lab.ledger, max_external_gpus=MAX_EXTERNAL_GPUS)) if not one.ok
    ]
    assert not broken, "\n".join(f"{one.name}: {one.detail}" for one in broken)
    assert watch.recollection.spilled, "nothing overflowed"


@contextlib.asynccontextmanager
async def _side_by_side(*work: Any) -> AsyncIterator[None]:
    """Meanwhile; what it raises ends the block, and it must have ended with the block."""
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
        yield


async def _thaw(story: Story, watch: Watch) -> None:
    """The freeze lasts until it has held somebody: only then a budget is asked why."""

    async def refused() -> bool:
        return watch.stream.refused > 0

    await until("a budget refuses an eviction", refused)
    await story.lift_freeze()


async def _kills(lab: Lab, watch: Watch) -> None:
    """The bridge while it has pods, and the evictor between an intent and its end."""

    async def spilled() -> bool:
        return watch.figures().virtual > 1

    async def intended() -> bool:
        return bool(watch.stream.intents)

    await until("pods overflow", spilled)
    await lab.kill("bridge")
    await until("a return is intended", intended)
    await lab.kill("evictor")


async def _is_over(story: Story, watch: Watch) -> bool:
    if not story.all_submitted.is_set() or not watch.recollection.closings:
        return False
    if watch.recollection.gate_open or watch.spilled_left() or watch.short_deployments() or watch.totals.living:
        return False
    return not await watch.unfinished_jobs()


async def _doctor_is_content(lab: Lab, nats: Nats) -> None:
    """`overspill doctor` sees an installation that works, with the eyes of the user who only looks."""
    environment = {
        "OVERSPILL_CLUSTER": CLUSTER,
        "OVERSPILL_NATS_URL": nats.url(AUDITOR),
        "OVERSPILL_KUBECONFIG": str(lab.kubeconfig),
        "OVERSPILL_BRIDGE_PROVIDERS": f"{PROVIDER}={lab.cloud_url}?token={lab.cloud_token}",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "overspill_cli", "doctor", f"--ledger={lab.ledger}"),
        env={**clean_environment(), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    words, _ = await process.communicate()
    assert process.returncode == 0, words.decode()


# --- what the story leaves out --------------------------------------------------------------------------------------------


class Epilogue:
    """Steps of an operator, of users and of accidents, after the story."""

    def __init__(self, admin: Client, lab: Lab, bus: Bus, watch: Watch, session: aiohttp.ClientSession) -> None:
        self._admin = admin
        self._lab = lab
        self._bus = bus
        self._watch = watch
        self._session = session

    async def order_pause_and_environment(self) -> None:
        """A gate opened by order lets a pod out whose environment comes from a ConfigMap and a Secret; meanwhile the
        admitter is paused, and a pod waits in the queue. The order expires, and the decider takes it away.
        """
        await self._order({names.GATE_ANNOTATION: "open", names.GATE_BY_ANNOTATION: "the tests"})
        pause = {"admitter": entry_of(Pause(reason="looking around"))}
        await self._create(
            CONFIG_MAPS, {"metadata": {"name": names.CONTROL_CONFIG_MAP}, "data": pause}, names.SYSTEM_NAMESPACE
        )
        await self._create(CONFIG_MAPS, {"metadata": {"name": WEB}, "data": {"A": "1"}}, objects.INFERENCE_NAMESPACE)
        await self._create(SECRETS, {"metadata": {"name": WEB}, "stringData": {"B": "2"}}, objects.INFERENCE_NAMESPACE)
        await self._create(DEPLOYMENTS, _with_environment(), objects.INFERENCE_NAMESPACE)
        queued = await self._create(PODS, _queued_pod(), objects.RESEARCH_NAMESPACE)
        assert [gate.name for gate in queued.spec.scheduling_gates] == [names.ADMISSION_GATE]
        await until("the queued pod waits for the pause", lambda: self._was_deferred(queued.metadata.uid))
        done(await self._admin.delete(CONFIG_MAPS, names.CONTROL_CONFIG_MAP, names.SYSTEM_NAMESPACE))
        await until("the queued pod has run", lambda: self._phase_is("Succeeded", objects.RESEARCH_NAMESPACE, "queued"))
        await until("the pod runs outside", lambda: self._phase_is("Running", objects.INFERENCE_NAMESPACE, WEB))
        done(await self._admin.delete(DEPLOYMENTS, WEB, objects.INFERENCE_NAMESPACE, propagation="Background"))
        await until("nothing lives outside", self._nobody_lives)
        await self._order({names.GATE_ANNOTATION: "closed"})
        await until("the gate is closed by order", self._is_closed)
        await self._order({names.GATE_UNTIL_ANNOTATION: (datetime.now(UTC) + timedelta(seconds=1)).isoformat()})
        await until("the order has expired and is gone", self._is_without_order)

    async def orphans(self) -> None:
        """Instances with our tags whose pods do not exist, one of which does not say its pod's name."""
        cluster = await self._admin.get(NAMESPACES, "kube-system")
        assert cluster is not None
        tags = {names.CLUSTER_TAG: cluster.metadata.uid, names.NODE_TAG: VIRTUAL_NODE}
        pods = (
            {names.POD_UID_TAG: "00000000-0000-4000-8000-000000000001", names.POD_TAG: "inference/never-was"},
            {names.POD_UID_TAG: "00000000-0000-4000-8000-000000000002"},
        )
        for number, pod in enumerate(pods):
            body = {"name": f"orphan-{number}", "offering": "a100-1x-north", "image": "none", "tags": tags | pod}
            async with self._session.post(
                f"{self._lab.cloud_url}/v1/instances",
                json=body,
                headers={"Authorization": f"Bearer {self._lab.cloud_token}"},
            ) as answer:
                assert answer.status < 300, await answer.text()
        rented = self._watch.totals.instances + len(pods)

        async def ended() -> bool:
            return self._watch.totals.instances >= rented and not self._watch.totals.living

        await until("the orphans are ended", ended)

    async def damaged_node(self) -> None:
        """Somebody takes away the taints that keep other people's pods at home; the bridge puts them back."""
        taints = [{"key": names.SWITCH_TAINT, "effect": names.NO_SCHEDULE}]
        done(await self._admin.patch(NODES, VIRTUAL_NODE, {"spec": {"taints": taints}}, kind=PatchKind.MERGE))

        async def is_repaired() -> bool:
            node = await self._node()
            return node is not None and {names.BASE_TAINT, names.SWITCH_TAINT} <= {one.key for one in node.spec.taints}

        await until("the taints are back", is_repaired)

    async def lost_node(self) -> None:
        """Somebody deletes the virtual node; it comes back with its gate closed."""
        before = await self._node()
        assert before is not None
        done(await self._admin.delete(NODES, VIRTUAL_NODE))

        async def is_back() -> bool:
            node = await self._node()
            return node is not None and node.metadata.uid != before.metadata.uid and _is_closed(node)

        await until("the virtual node is back", is_back)

    async def _node(self) -> Node | None:
        return await self._admin.get(NODES, VIRTUAL_NODE)

    async def _order(self, annotations: Mapping[str, str]) -> None:
        body = {"metadata": {"annotations": annotations}}
        done(await self._admin.patch(NODES, VIRTUAL_NODE, body, kind=PatchKind.MERGE))

    async def _create(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str) -> Any:
        return done(await self._admin.create(resource, body, namespace))

    async def _was_deferred(self, uid: str) -> bool:
        return any(
            isinstance(event, AdmissionDeferred) and event.workload.uid == uid and event.reason is DeferReason.PAUSED
            for event in [recorded.event async for recorded in self._bus.read([STREAM_SUBJECTS])]
        )

    async def _phase_is(self, phase: str, namespace: str, app: str) -> bool:
        pods = (await self._admin.list(PODS, namespace=namespace, labels=f"app={app}")).items
        return [pod.status.phase for pod in pods] == [phase]

    async def _nobody_lives(self) -> bool:
        left = (await self._admin.list(PODS, labels=f"app={WEB}")).items
        return not left and not self._watch.totals.living

    async def _is_closed(self) -> bool:
        node = await self._node()
        return node is not None and _is_closed(node)

    async def _is_without_order(self) -> bool:
        node = await self._node()
        return node is not None and names.GATE_ANNOTATION not in node.metadata.annotations


def _is_closed(node: Node) -> bool:
    return any(taint.key == names.SWITCH_TAINT for taint in node.spec.taints)


def _container(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m"}, "limits": {names.GPU_RESOURCE: "1"}}
    return {"name": name, "image": "example.invalid/serve:1", "resources": resources}


def _with_environment() -> dict[str, Any]:
    """A Deployment that can run outside only, of a pod that is told things."""
    secret = {"secretKeyRef": {"name": WEB, "key": "B"}}
    container = _container("serve") | {
        "envFrom": [{"configMapRef": {"name": WEB}}],
        "env": [{"name": "SECOND", "valueFrom": secret}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},  # not run outside, and the bridge leaves a note
    }
    template = {
        "metadata": {
            "labels": {"app": WEB, names.SPILLABLE_LABEL: "true"},
            "annotations": {names.SECRETS_ANNOTATION: "true"},
        },
        "spec": {
            "containers": [container],
            "nodeSelector": {names.VIRTUAL_LABEL: "true"},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        },
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": WEB}}, "template": template}
    return {"metadata": {"name": WEB}, "spec": spec}


def _queued_pod() -> dict[str, Any]:
    """A plain pod in the training queue."""
    labels = {"app": "queued", names.QUEUE_LABEL: objects.LOCAL_QUEUE}
    return {
        "metadata": {"name": "queued", "labels": labels, "annotations": {objects.RUN_SECONDS: "1"}},
        "spec": {
            "containers": [_container("train")],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        },
    }
