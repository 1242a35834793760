"""An operator's orders from the command to the services: gates held open or closed, services held still."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from overspill_decider.service import LEASE, SERVICE, body
from overspill_decider.settings import Settings
from overspill_events.catalog import AdmissionDeferred, GateClosed, GateDecided, GateOpened, PodHeld, SpillDeferred
from overspill_events.names import (
    BASE_TAINT,
    CONTROL_CONFIG_MAP,
    GATE_ANNOTATION,
    GATE_BY_ANNOTATION,
    GATE_UNTIL_ANNOTATION,
    SWITCH_TAINT,
    SYSTEM_NAMESPACE,
    VIRTUAL_LABEL,
)
from overspill_events.reasons import DeferReason, GateReason, HoldReason, SpillReason, Verdict
from overspill_kube.client import PatchKind
from overspill_kube.effects import annotate_node
from overspill_kube.outcomes import Done
from overspill_kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, PODS
from overspill_runtime.settings import load
from overspill_service import serve
from tests.component.overspill_admitter.hall import Hall
from tests.component.overspill_evictor.home import VIRTUAL, Home
from tests.support.bridge_place import bridge_place, said
from tests.support.commands import overspill
from tests.support.house import House, eventually, house, running

NODE = "virtual"
TAINTS = tuple({"key": key, "effect": "NoSchedule"} for key in (BASE_TAINT, SWITCH_TAINT))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as built:
        await built.node(NODE, 100, labels={VIRTUAL_LABEL: "true"}, taints=TAINTS)
        yield built


def decider(place: House):
    settings = load(Settings, service=SERVICE, env=place.env(OVERSPILL_DECIDER_INTERVAL="0.2"))
    return running(serve(SERVICE, settings, body, lease=LEASE))


async def command(place: House, *arguments: str) -> str:
    code, out, err = await overspill(*arguments, env=place.env())
    assert code == 0, (out, err)
    return out


async def is_open(place: House) -> bool:
    node = await place.kube.get(NODES, NODE)
    assert node is not None
    return all(taint.key != SWITCH_TAINT for taint in node.spec.taints)


async def until_open(place: House, wanted: bool) -> None:
    async def asked() -> bool:
        return await is_open(place) is wanted

    await eventually(asked, describe=f"gate open: {wanted}")


async def until_decided(place: House, reason: GateReason) -> GateDecided:
    async def asked() -> GateDecided | None:
        last = (await place.events(GateDecided))[-1:]
        return last[0].event if last and last[0].event.reason is reason else None  # type: ignore[union-attr,return-value]

    return await eventually(asked, describe=f"decided {reason}")


async def annotations(place: House) -> dict[str, str]:
    node = await place.kube.get(NODES, NODE)
    assert node is not None
    return node.metadata.annotations


async def test_an_order_opens_and_closes_and_is_taken_back(place: House) -> None:
    """Without samples and without stock: the marks would never have opened it."""
    async with decider(place):
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        await command(place, "gate", "open", NODE, "--for", "2h", "--reason", "a demonstration")
        await until_open(place, True)
        decided = await until_decided(place, GateReason.BY_OPERATOR)
        assert decided.verdict is Verdict.OPEN
        assert "a demonstration" in decided.detail
        assert "nothing to buy" in decided.detail
        shown = json.loads(await command(place, "gate", NODE, "-o", "json"))
        assert shown["gate"] == "open"
        assert "a demonstration" in shown["order"]
        assert "by-operator" in shown["decision"]
        await command(place, "gate", "close", NODE)
        await until_open(place, False)
        await command(place, "gate", "auto", NODE)
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        assert not await is_open(place), "the marks know nothing, so the gate stays"
    told = [(type(one.event), one.event.reason) for one in await place.events(GateOpened, GateClosed)]  # type: ignore[union-attr]
    assert told == [(GateOpened, GateReason.BY_OPERATOR), (GateClosed, GateReason.BY_OPERATOR)]
    assert not await annotations(place)
    assert "none, it follows the marks" in await command(place, "gate", NODE)


async def renew(place: House, moment: datetime, **more: int) -> None:
    """As a decider by a clock of its own would."""
    spec = {"holderIdentity": "pod-1", "renewTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), **more}
    outcome = await place.kube.patch(LEASES, LEASE, {"spec": spec}, kind=PatchKind.MERGE, namespace=SYSTEM_NAMESPACE)
    assert isinstance(outcome, Done)


async def test_an_order_is_written_though_nobody_follows_it_and_that_is_said(place: House) -> None:
    """No lease, one given back, one that expired: on stderr, with exit code 0, and nothing is promised on stdout."""

    async def ordered(*arguments: str) -> tuple[str, str]:
        code, out, err = await overspill(*arguments, env=place.env())
        assert code == 0, (out, err)
        return out, err

    await pause_nobody(place, "decider", "--reason", "audit")
    for arguments, order in ((("open",), "open"), (("close", "--for", "2h"), "closed"), (("auto",), None)):
        out, err = await ordered("gate", arguments[0], NODE, *arguments[1:])
        assert err.startswith(f"no decider leads in the namespace {SYSTEM_NAMESPACE}: it has no lease")
        assert "audit" in out
        assert err.count("\n") == 1
        assert f"{SYSTEM_NAMESPACE}/{LEASE}" in err
        assert "next round" not in out
        assert (await annotations(place)).get(GATE_ANNOTATION) == order
    await ordered("resume")
    async with decider(place):
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        out, err = await ordered("gate", "open", NODE)
        assert err == ""
        assert "the decider follows in its next round" in out
        assert await ordered("resume", "decider") == ("decider: no longer paused\n", "")
        await until_open(place, True)
    out, err = await ordered("gate", "close", NODE)
    assert "its lease was given back at 20" in err
    _, err = await ordered("resume", "decider")
    assert err.startswith("no decider leads")
    for year in (2026, 2126):  # whatever the clocks show
        await renew(place, datetime(year, 1, 2, tzinfo=UTC), leaseDurationSeconds=15)
        out, err = await ordered("gate", "close", NODE)
        assert f"pod-1 last renewed its lease at {year}-01-02T00:00:00Z" in err
        assert "next round" not in out


async def pause_nobody(place: House, *arguments: str) -> None:
    """Of those who begin to lead later."""
    code, out, err = await overspill("pause", *arguments, env=place.env())
    assert code == 1, (out, err)
    assert f"a pause is written for whoever comes to lead in the namespace {SYSTEM_NAMESPACE}" in out
    assert f"leads in the namespace {SYSTEM_NAMESPACE}: it has no lease" in err


async def test_a_pause_in_a_namespace_where_nobody_leads_is_not_called_one(place: House) -> None:
    assert isinstance(await place.kube.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}), Done)
    async with decider(place):
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        code, out, err = await overspill("pause", "decider", env=place.env() | {"OVERSPILL_NAMESPACE": "elsewhere"})
    assert (code, "paused" in out) == (1, False)
    assert "no decider leads in the namespace elsewhere" in err
    assert await place.kube.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, "elsewhere") is not None
    assert await place.kube.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None


async def test_a_lease_that_is_seldom_renewed_is_believed(place: House) -> None:
    """Its renewal is not waited for, and doctor says so."""
    body = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 3600}}
    assert isinstance(await place.kube.create(LEASES, body, SYSTEM_NAMESPACE), Done)
    await renew(place, datetime.now(UTC))
    code, out, err = await overspill("gate", "open", NODE, env=place.env())
    assert (code, err) == (0, "")
    assert "the decider follows" in out
    _, out, _ = await overspill("doctor", "-o", "json", env=place.env())
    (found,) = [one for one in json.loads(out)["findings"] if one["what"] == "service decider"]
    assert found["detail"].startswith("pod-1 leads (it last renewed its lease at 20")


async def test_a_leader_whose_clock_is_wrong_leads(place: House) -> None:
    """Its lease has expired by our clock for years, and is renewed before our eyes."""
    body = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 60}}
    assert isinstance(await place.kube.create(LEASES, body, SYSTEM_NAMESPACE), Done)
    await renew(place, datetime(2026, 1, 2, tzinfo=UTC))

    async def lead() -> None:
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        while True:
            moment += timedelta(seconds=1)
            await renew(place, moment)
            await asyncio.sleep(0.2)

    leading = asyncio.create_task(lead())
    try:
        code, out, err = await overspill("gate", "open", NODE, env=place.env())
    finally:
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
    assert (code, err) == (0, "")
    assert "the decider follows" in out


async def test_a_decision_under_another_clusters_name_is_not_called_none(place: House) -> None:
    """Without OVERSPILL_CLUSTER the record is asked about another cluster: that is said, with what to set."""
    env = {name: value for name, value in place.env().items() if name != "OVERSPILL_CLUSTER"}
    code, out, _ = await overspill("gate", NODE, env=env)
    assert code == 0
    assert "why is not known: no decision about it is on record under the cluster's name 'default'" in out
    assert "nor under another; is the decider running?" in out
    async with decider(place):
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        code, out, _ = await overspill("gate", NODE, env=env)
    assert code == 0
    assert "'default' (OVERSPILL_CLUSTER), but there is under test: set OVERSPILL_CLUSTER=test" in out
    assert "has not decided" not in out
    assert "samples-unknown" in await command(place, "gate", NODE)


async def test_an_expired_order_is_ignored_and_removed(place: House) -> None:
    node = await place.kube.get(NODES, NODE)
    assert node is not None
    order = {
        GATE_ANNOTATION: "open",
        GATE_UNTIL_ANNOTATION: "2020-01-01T00:00:00Z",
        GATE_BY_ANNOTATION: "x",
        "own": "1",
    }
    assert isinstance(await annotate_node(place.kube, NODE, order, expect_uid=node.metadata.uid), Done)
    assert "(expired)" in await command(place, "gate", NODE)
    async with decider(place):

        async def removed() -> bool:
            return await annotations(place) == {"own": "1"}

        await eventually(removed)
        assert not await is_open(place)
        assert all(one.event.reason is not GateReason.BY_OPERATOR for one in await place.events(GateDecided))  # type: ignore[union-attr]


async def test_an_order_that_cannot_be_read_is_ignored_and_said_once(place: House) -> None:
    node = await place.kube.get(NODES, NODE)
    assert node is not None
    await annotate_node(place.kube, NODE, {GATE_ANNOTATION: "ajar"}, expect_uid=node.metadata.uid)
    async with decider(place):
        decided = await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        assert f"metadata.annotations[{GATE_ANNOTATION}]: 'ajar'; accepted: open, closed" in decided.detail

        async def noted() -> list[str]:
            found = (await place.kube.list(EVENTS)).items
            return [one.message for one in found if one.reason == "GateOrderIgnored"]

        (note,) = await eventually(noted)
        assert "accepted: open, closed" in note
        await command(place, "pause", "decider")
        await until_decided(place, GateReason.PAUSED)  # rounds have passed
        assert len(await noted()) == 1
    assert await annotations(place) == {GATE_ANNOTATION: "ajar"}, "it is not ours to remove"
    assert "ajar" in await command(place, "gate", NODE)


async def test_a_paused_decider_moves_nothing_until_it_is_resumed(place: House) -> None:
    async with decider(place):
        await until_decided(place, GateReason.SAMPLES_UNKNOWN)
        await command(place, "pause", "decider", "--reason", "audit")
        paused = await until_decided(place, GateReason.PAUSED)
        assert "audit" in paused.detail
        assert "overspill resume decider" in await command(place, "gate", "open", NODE)
        before = len(await place.events(GateDecided))
        assert not await is_open(place)
        await command(place, "resume")
        await until_open(place, True)
        assert (await place.events(GateDecided))[before].event.reason is GateReason.BY_OPERATOR  # type: ignore[union-attr]


async def test_commands_refuse_what_they_were_not_told_about(place: House, tmp_path: Path) -> None:
    """A context by another name, a node that is none, a time without a unit: exit code 2, and nothing is written."""
    foreign = tmp_path / "foreign"
    foreign.write_text(place.kubeconfig.read_text().replace('"overspill-lab"', '"production"'))
    env = place.env() | {"OVERSPILL_KUBECONFIG": str(foreign)}
    for arguments in (("gate", "open", NODE), ("gate", "auto", NODE), ("pause",), ("resume",), ("uninstall", "--yes")):
        code, _, err = await overspill(*arguments, env=env)
        assert code == 2, (arguments, err)
        assert "'production'" in err
        assert "--allow-context production" in err
    for arguments, word in (
        (("gate", "open", "nowhere"), f"virtual nodes: {NODE}"),
        (("gate", "open", NODE, "--for", "2"), "30s, 15m, 2h, 1d"),
        (("pause", "--for", "soon"), "30s, 15m, 2h, 1d"),
    ):
        code, _, err = await overspill(*arguments, env=place.env())
        assert code == 2
        assert word in err
    assert not await annotations(place)
    assert await place.kube.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE) is None
    code, _, err = await overspill("gate", "open", NODE, "--allow-context", "production", env=env)
    assert code == 0, err
    assert (await annotations(place))[GATE_ANNOTATION] == "open"


async def test_a_paused_evictor_evicts_nobody_until_it_is_resumed(tmp_path: Path) -> None:
    async with house(tmp_path) as built:
        home = Home(built)
        await home.build(replicas=3)
        names = [await home.replica(on=VIRTUAL) for _ in range(3)]
        await pause_nobody(built, "evictor", "--for", "1h", "--reason", "audit")
        async with home.evictor():

            async def held() -> bool:
                events = [one.event for one in await built.events(PodHeld)]
                return len([one for one in events if one.reason is HoldReason.PAUSED and "audit" in one.detail]) == 3  # type: ignore[union-attr]

            await eventually(held)
            for name in names:
                assert await built.kube.get(PODS, name, "default") is not None
            await command(built, "resume", "evictor")

            async def one_left() -> bool:
                found = [await built.kube.get(PODS, name, "default") for name in names]
                return any(pod is None or pod.metadata.deletion_timestamp is not None for pod in found)

            await eventually(one_left)


async def test_a_paused_admitter_releases_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with house(tmp_path) as built:
        hall = Hall(built)
        await hall.build()
        await pause_nobody(built)
        await hall.job("waits", gpus=1)
        async with hall.admitter():
            (deferred,) = await hall.until_told(AdmissionDeferred)
            assert deferred.reason is DeferReason.PAUSED
            assert "would be admitted: paused until resumed" in deferred.detail
            assert await hall.released() == set()
            await command(built, "resume")
            await hall.until_released("waits")


async def test_a_paused_bridge_keeps_what_runs_and_creates_nothing(tmp_path: Path) -> None:
    async with bridge_place(tmp_path) as place:
        env = {"OVERSPILL_KUBECONFIG": str(place.kubeconfig)}
        await place.start_bridge()
        await place.pod("before")
        await place.phase("before", "Running")
        code, _, err = await overspill("pause", "bridge", "--reason", "audit", env=env)
        assert code == 0, err
        await place.pod("meanwhile")

        async def told() -> bool:
            return any(
                one.reason is SpillReason.PAUSED and "audit" in one.detail for one in await said(place, SpillDeferred)
            )

        await place.eventually(told)
        assert len(await place.cloud.living()) == 1
        await place.phase("before", "Running")
        await place.delete("before")  # what ends is ended, paused or not

        async def none_left() -> bool:
            return not await place.cloud.living()

        await place.eventually(none_left)
        code, _, err = await overspill("resume", env=env)
        assert code == 0, err
        await place.phase("meanwhile", "Running")
