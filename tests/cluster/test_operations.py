"""An operator's orders on the real API server, followed by a decider with its own account under deploy/'s policies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overspill_bus import Bus, BusSettings, connect
from overspill_bus.testing import nats_server
from overspill_cli.policies import BINDINGS, DOES, GROUP_VERSION
from overspill_decider.override import ANNOTATIONS
from overspill_decider.service import LEASE, SERVICE, body
from overspill_decider.settings import Settings
from overspill_events.catalog import GateClosed, GateDecided, GateOpened
from overspill_events.names import (
    BASE_TAINT,
    GATE_ANNOTATION,
    GATE_UNTIL_ANNOTATION,
    SWITCH_TAINT,
    SYSTEM_NAMESPACE,
    VIRTUAL_LABEL,
)
from overspill_events.reasons import GateReason, Verdict
from overspill_kube.client import Client, PatchKind
from overspill_kube.client import connect as connect_kube
from overspill_kube.effects import annotate_node
from overspill_kube.grants import Permission
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_kube.settings import KubeSettings
from overspill_runtime.clock import SystemClock
from overspill_runtime.process import Process
from overspill_runtime.process import process as start_process
from overspill_runtime.settings import load
from overspill_service import serve
from tests.cluster.controlplane.start import control_plane
from tests.support.commands import overspill
from tests.support.house import eventually, running
from tests.support.installed import holds, install

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NODE = "overspill"
CLUSTER = "test"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/roles/overspill-decider"


class Yard:
    """A real API server with deploy/ applied, a bus, and a virtual node that nobody else keeps."""

    def __init__(self, admin: Client, bus: Bus, env: dict[str, str], decider_kubeconfig: Path) -> None:
        self.admin, self.bus, self.env, self._decider_kubeconfig = admin, bus, env, decider_kubeconfig

    async def build(self) -> None:
        taints = [{"key": key, "effect": "NoSchedule"} for key in (BASE_TAINT, SWITCH_TAINT)]
        node = {"metadata": {"name": NODE, "labels": {VIRTUAL_LABEL: "true"}}, "spec": {"taints": taints}}
        assert isinstance(await self.admin.create(NODES, node), Done)

    @contextlib.asynccontextmanager
    async def decider(self, mode: str = "act") -> AsyncIterator[Process[Settings]]:
        own = {
            "OVERSPILL_KUBECONFIG": str(self._decider_kubeconfig),
            "OVERSPILL_DECIDER_INTERVAL": "0.3",
            "OVERSPILL_MODE": mode,
            "OVERSPILL_IDENTITY": "decider",
        }
        settings = load(Settings, service=SERVICE, env=self.env | own)
        async with (
            start_process(settings, service=SERVICE) as process,
            running(serve(SERVICE, settings, body, lease=LEASE, process=process)),
        ):
            yield process

    async def command(self, *arguments: str) -> str:
        code, out, err = await overspill(*arguments, env=self.env)
        assert code == 0, (out, err)
        return out

    async def node(self) -> Any:
        node = await self.admin.get(NODES, NODE)
        assert node is not None
        return node

    async def is_open(self) -> bool:
        return all(taint.key != SWITCH_TAINT for taint in (await self.node()).spec.taints)

    async def until_open(self, wanted: bool) -> None:
        async def asked() -> bool:
            return await self.is_open() is wanted

        await eventually(asked, describe=f"gate open: {wanted}")

    async def events(self, *kinds: type[Any]) -> list[Any]:
        return [one.event async for one in self.bus.read(["overspill.v1.>"]) if isinstance(one.event, kinds)]

    async def until_decided(self, reason: GateReason, verdict: Verdict | None = None) -> None:
        async def asked() -> bool:
            last = (await self.events(GateDecided))[-1:]
            return bool(last) and last[0].reason is reason and verdict in {None, last[0].verdict}

        await eventually(asked, describe=f"decided {reason}")

    async def expired_order(self) -> None:
        order = {GATE_ANNOTATION: "open", GATE_UNTIL_ANNOTATION: "2020-01-01T00:00:00Z"}
        outcome = await annotate_node(self.admin, NODE, order, expect_uid=(await self.node()).metadata.uid)
        assert isinstance(outcome, Done), outcome


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(scheduler=False, controllers=False))
        nats = await stack.enter_async_context(nats_server())
        settings = KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="overspill-test")
        admin = await stack.enter_async_context(connect_kube(settings))
        installation = await install(plane, admin, tmp_path)
        others = BusSettings(cluster=CLUSTER, service="others", nats_url=nats.url)
        bus = await stack.enter_async_context(connect(others, clock=SystemClock(), wait=True))
        await bus.ensure_topology()
        env = {
            "OVERSPILL_CLUSTER": CLUSTER,
            "OVERSPILL_NATS_URL": nats.url,
            "OVERSPILL_KUBECONFIG": str(plane.kubeconfig),
        }
        built = Yard(admin, bus, env, installation.kubeconfig(SERVICE))
        await built.build()
        yield built


async def test_orders_and_pauses_are_followed_and_expire(yard: Yard) -> None:
    async with yard.decider():
        await yard.until_decided(GateReason.SAMPLES_UNKNOWN)
        await yard.command("gate", "open", NODE, "--for", "2h", "--reason", "a demonstration")
        await yard.until_open(True)
        assert "a demonstration" in await yard.command("gate", NODE)
        await yard.command("gate", "close", NODE)
        await yard.until_open(False)
        await yard.command("gate", "auto", NODE)
        await yard.until_decided(GateReason.SAMPLES_UNKNOWN)
        assert not set(ANNOTATIONS) & (await yard.node()).metadata.annotations.keys()

        await yard.command("pause", "decider", "--reason", "audit")
        await yard.until_decided(GateReason.PAUSED)
        await yard.command("gate", "open", NODE)
        assert "audit" in await yard.command("gate", NODE)
        assert not await yard.is_open()
        await yard.command("resume")
        await yard.until_open(True)

        await yard.command("gate", "close", NODE)
        await yard.until_open(False)
        await yard.expired_order()

        async def removed() -> bool:
            return not set(ANNOTATIONS) & (await yard.node()).metadata.annotations.keys()

        await eventually(removed)
        assert not await yard.is_open()
    told = await yard.events(GateOpened, GateClosed)
    moves = [(type(one), one.reason) for one in told]
    assert moves == [(GateOpened, GateReason.BY_OPERATOR), (GateClosed, GateReason.BY_OPERATOR)] * 2
    assert "a demonstration" in told[0].detail


async def test_observing_decides_and_touches_nothing(yard: Yard) -> None:
    await yard.command("gate", "open", NODE)
    async with yard.decider(mode="observe"):
        await yard.until_decided(GateReason.BY_OPERATOR, Verdict.OPEN)
        await yard.command("gate", "close", NODE)
        await yard.until_decided(GateReason.BY_OPERATOR, Verdict.CLOSED)
        await yard.expired_order()
        await yard.until_decided(GateReason.SAMPLES_UNKNOWN)
        await yard.command("pause", "decider")
        await yard.until_decided(GateReason.PAUSED)  # rounds have passed since the order expired
        assert (await yard.node()).metadata.annotations[GATE_ANNOTATION] == "open"
    assert not await yard.is_open()
    assert await yard.events(GateOpened, GateClosed) == []


async def test_a_decider_that_may_not_read_the_pauses_holds_still(yard: Yard) -> None:
    """Unknown is not "go on": without the right nothing moves, and with it everything does."""
    status, role = await yard.admin.raw("GET", ROLE)
    assert status == 200, role
    withdrawn = {"rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]}
    given = {
        "rules": [*withdrawn["rules"], {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
    }
    await _patch(yard.admin, ROLE, withdrawn)
    right = Permission(namespace=SYSTEM_NAMESPACE, group="", resource="configmaps", name="", verb="list")

    async def is_withdrawn() -> bool:
        return not await holds(yard.admin, SERVICE, right)

    await eventually(is_withdrawn)  # the server takes roles up by itself
    await yard.command("gate", "open", NODE)
    async with yard.decider() as process:

        async def held() -> bool:
            rounds = process.registry.get_sample_value("overspill_decider_holds_total", {"what": "control"})
            return rounds is not None and rounds >= 5

        await eventually(held)
        assert not await yard.is_open()
        assert await yard.events(GateDecided) == []
        await _patch(yard.admin, ROLE, given)
        await yard.until_open(True)


async def test_doctor_names_a_policy_that_is_missing(yard: Yard) -> None:
    """Read off the real server: all that deploy/ brings, and then one less."""

    async def finding() -> dict[str, str]:
        _, out, _ = await overspill("doctor", "-o", "json", env=yard.env)
        return next(one for one in json.loads(out)["findings"] if one["what"] == "admission policies")

    assert (await finding())["health"] == "ok"
    gone = "overspill-tolerate-external"
    status, answer = await yard.admin.raw("DELETE", f"{GROUP_VERSION}/{BINDINGS}/{gone}")
    assert status == 200, answer
    found = await finding()
    assert found["health"] == "warning"
    assert f"not installed or not bound: {gone}: {DOES[gone]}" in found["detail"]


async def _patch(admin: Client, path: str, body: dict[str, Any]) -> None:
    status, answer = await admin.raw("PATCH", path, body=body, content_type=PatchKind.MERGE.value)
    assert status == 200, answer
