"""The command as people and programs call it: output, exit codes, errors that say what to do next."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overspill_bus.testing import nats_server
from overspill_decider.service import LEASE, body
from overspill_decider.settings import Settings
from overspill_events import catalog, names
from overspill_events.catalog import CATALOG
from overspill_events.reasons import GateReason
from overspill_kube.outcomes import Done
from overspill_kube.resources import DEPLOYMENTS
from overspill_runtime.settings import load
from overspill_service import serve
from tests.support.cloud import cloud
from tests.support.commands import overspill
from tests.support.house import GPU, House, eventually, house, running


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as built:
        yield built


def settled(place: House) -> dict[str, str]:
    return place.env(OVERSPILL_BRIDGE_PROVIDERS="fake=http://127.0.0.1:1?token=t")


async def findings(env: dict[str, str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, err = await overspill("doctor", "-o", "json", env=env)
    assert err == ""
    return code, {finding["what"]: finding for finding in json.loads(out)["findings"]}


async def test_doctor_finds_a_healthy_place_healthy(place: House):
    """NATS, stream, API server, the virtual node with its gate, and what was heard last."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in (names.BASE_TAINT, names.SWITCH_TAINT)]
    taints.append({"key": names.PREFERENCE_TAINT, "effect": "PreferNoSchedule"})
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"}, taints=taints)
    await place.others.publish(catalog.CapacitySampled(pool="default", resource=GPU, readings=()))
    code, found = await findings(settled(place))
    assert code == 0
    assert found["virtual node external"]["detail"] == "Ready, gate closed"
    assert found["stream EVENTS"]["detail"].startswith("1 events")
    assert found["CapacitySampled"]["health"] == "ok"
    assert found["queue kinds"]["detail"].startswith("kueue.x-k8s.io/v1beta")
    assert found["ProviderSampled"]["health"] == "warning"
    assert "bridge" in found["ProviderSampled"]["advice"]
    assert all(found[f"settings of {service}"]["health"] == "ok" for service in ("bridge", "decider", "recorder"))
    _, found = await findings(settled(place) | {"OVERSPILL_CLUSTER": "another"})
    assert found["CapacitySampled"]["health"] == "warning", "another cluster's sampler is not ours"
    assert "'another'" in found["CapacitySampled"]["detail"]


async def test_doctor_names_a_missing_taint_and_exits_with_1(place: House):
    """Without the base taint everybody's pods could land there."""
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"})
    code, found = await findings(settled(place))
    assert code == 1
    assert names.BASE_TAINT in found["virtual node external"]["detail"]


async def test_doctor_tells_who_leads_and_what_does_not_run(place: House):
    """Plain processes are judged by their leases; where there are Deployments of ours, by these, too."""
    settings = load(Settings, service="decider", env=place.env(OVERSPILL_IDENTITY="decider-1"))
    _, found = await findings(settled(place))
    assert found["service decider"]["health"] == "warning", "nothing is installed yet"
    assert "it has no lease (overspill-system/overspill-decider)" in found["service decider"]["detail"]
    assert "service recorder" not in found
    async with running(serve("decider", settings, body, lease=LEASE)):

        async def leads() -> bool:
            _, found = await findings(settled(place))
            return bool(found["service decider"]["health"] == "ok")

        await eventually(leads)
        _, found = await findings(settled(place))
        assert found["service decider"]["detail"] == "decider-1 leads"
    code, found = await findings(settled(place))
    assert code == 1
    assert found["service decider"]["health"] == "problem"
    assert "its lease was given back" in found["service decider"]["detail"]
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": "overspill-decider", "labels": {names.PART_OF_LABEL: names.PART_OF}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    made = await place.kube.create(DEPLOYMENTS, {"metadata": meta, "spec": spec}, names.SYSTEM_NAMESPACE)
    assert isinstance(made, Done), made
    _, found = await findings(settled(place))
    assert "Deployment overspill-decider is scaled to 0" in found["service decider"]["detail"]
    assert "there is no Deployment overspill-bridge" in found["service bridge"]["detail"]
    assert found["service recorder"]["advice"] == "kubectl apply -k deploy/"


async def test_a_bus_without_streams_is_a_finding_and_no_traceback(place: House):
    """An installation whose streams nobody has made yet."""
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"})
    async with nats_server() as empty:
        env = settled(place) | {"OVERSPILL_NATS_URL": empty.url}
        code, found = await findings(env)
        assert code == 1
        assert "stream not found" in found["stream EVENTS"]["detail"]
        assert "overspill-topology" in found["stream EVENTS"]["advice"]
        code, out, err = await overspill("gate", "external", env=env)
        assert (code, err) == (0, "")
        assert "why is not known" in out


async def test_doctor_knocks_with_the_credentials_that_are_set(place: House, tmp_path: Path):
    """A file that is not there is named: it was going to be used."""
    config = "authorization { users = [{ nkey: UDBXRCJC6O4T3BOB5TGMSK3D762R2GYVEZ62N4AQ46I2UNY4AAM2CFWU }] }"
    async with nats_server(config=config) as guarded:
        credentials = {"OVERSPILL_NATS_URL": guarded.url, "OVERSPILL_NATS_CREDENTIALS": str(tmp_path / "absent.creds")}
        _, found = await findings(settled(place) | credentials)
    assert "absent.creds" in found["NATS"]["detail"]


async def test_doctor_says_what_cannot_be_reached_and_what_is_set_wrong(tmp_path: Path):
    """Each is one finding with advice, and nothing is a traceback."""
    env = {
        "OVERSPILL_NATS_URL": "nats://127.0.0.1:1",
        "OVERSPILL_KUBECONFIG": str(tmp_path / "absent"),
        "OVERSPILL_DECIDER_LOW_MARK": "many",
    }
    code, found = await findings(env)
    assert code == 1
    assert "OVERSPILL_NATS_URL" in found["NATS"]["advice"]
    assert found["kubeconfig"]["health"] == "problem"
    assert "OVERSPILL_DECIDER_LOW_MARK" in found["settings of decider"]["detail"]
    assert "OVERSPILL_BRIDGE_PROVIDERS" in found["settings of bridge"]["detail"]


async def test_doctor_tells_no_password_and_what_is_no_address(place: House):
    """The server that cannot be reached is named without the secret that stands in its URL."""
    env = settled(place) | {"OVERSPILL_NATS_URL": "nats://doctor:s3cret@127.0.0.1:1"}
    code, out, _ = await overspill("doctor", env=env)
    assert code == 1
    assert "nats://***@127.0.0.1:1" in out
    assert "s3cret" not in out
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"})
    code, out, err = await overspill("gate", "external", env=env)
    assert (code, err) == (0, "")
    assert "why is not known" in out
    assert "s3cret" not in out
    env["OVERSPILL_NATS_URL"] = "nats://doctor:s3cret@127.0.0.1:99999"
    code, found = await findings(env)
    assert code == 1
    assert "its port is no number from 1 to 65535" in found["settings of decider"]["detail"]
    assert "s3cret" not in str(found)
    for arguments in (("gate", "external"), ("gate", "open", "external"), ("pause",), ("uninstall", "--dry-run")):
        code, out, err = await overspill(*arguments, env=env)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert err.startswith("OVERSPILL_NATS_URL: 'nats://***@127.0.0.1:99999' is not accepted")


async def test_doctor_says_that_what_answers_is_no_api_server(tmp_path: Path):
    """Anything can listen at an address: a page in place of an API server is one finding each, not a traceback."""
    page = b"<html>hello</html>"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        code, found = await findings(
            {"OVERSPILL_KUBECONFIG": str(kubeconfig), "OVERSPILL_NATS_URL": "nats://127.0.0.1:1"}
        )
    assert code == 1
    assert found["API server"]["health"] == "problem"


@pytest.mark.parametrize(
    "arguments", [("pause", "--reason", "\udcff"), ("gate", "open", "external", "--reason", "\udcff")]
)
async def test_what_is_no_text_is_refused_in_words(place: House, arguments: tuple[str, ...]):
    """Bytes that a shell hands over as they are."""
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"})
    code, _, err = await overspill(*arguments, env=place.env())
    assert (code, err.count("\n")) == (2, 1)
    assert "UTF-8" in err


async def test_a_gate_without_a_name_is_none(place: House):
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"})
    code, _, err = await overspill("gate", "", env=place.env())
    assert (code, "virtual nodes: external" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("OVERSPILL_KUBECONFIG", "/nonexistent/kubeconfig", "/nonexistent/kubeconfig"),
        ("OVERSPILL_NATS_URL", "http://127.0.0.1:4222", "(nats|tls)://"),
        ("OVERSPILL_NATS_URL", "nats://localhost:99999", "a port from 1 to 65535"),
        ("OVERSPILL_LISTEN", "127.0.0.1:99999", "to 65535"),
    ],
)
async def test_run_refuses_addresses_that_cannot_be_used(name: str, value: str, accepted: str):
    """Exit code 2 and a line that names the setting, not a traceback; what only its use shows included."""
    code, _, err = await overspill("run", "decider", env={name: value})
    assert code == 2
    assert "Traceback" not in err
    said = [line for line in err.splitlines() if line.startswith("overspill decider:")]
    assert len(said) == 1
    assert name in said[0]
    assert accepted in said[0]


async def test_run_refuses_bad_settings_with_the_name_and_what_is_accepted():
    """Exit code 2, one line, before anything is connected."""
    code, out, err = await overspill("run", "decider", env={"OVERSPILL_DECIDER_HIGH_MARK": "-1"})
    assert code == 2
    assert out == ""
    assert err.splitlines() == [line for line in err.splitlines() if "OVERSPILL_DECIDER_HIGH_MARK" in line]
    assert "> 0" in err


async def test_events_and_explain_read_a_ledger_that_the_recorder_wrote(place: House, tmp_path: Path):
    """The recorder runs as `overspill run recorder`; what it wrote answers."""
    ledger = tmp_path / "ledger.db"
    decided = catalog.GateDecided(
        node="external",
        verdict="open",
        reason=GateReason.HOME_FULL,
        average=0.5,
        low_mark=1,
        high_mark=8,
        window_seconds=60,
        samples=4,
    )
    cause = await place.others.publish(decided)
    opened = catalog.GateOpened(node="external", reason=GateReason.HOME_FULL, average=0.5)
    await place.others.publish(opened, caused_by=cause.envelope)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "overspill_cli",
        "run",
        "recorder",
        env=os.environ | place.env(OVERSPILL_RECORDER_PATH=str(ledger)),
    )
    try:
        events = await _recorded(ledger, 2)
    finally:
        process.terminate()
        await process.wait()
    assert process.returncode == 0
    by_type = {event["type"].split(".")[3]: event for event in events}
    assert by_type["gate-opened"]["causationid"] == by_type["gate-decided"]["id"]
    assert by_type["gate-opened"]["data"]["average"] == 0.5
    code, out, _ = await overspill("explain", "node/external", "--ledger", str(ledger))
    assert code == 0
    assert "free GPUs averaged 0.5 over 60 s (4 samples); opens at 1 or less" in out
    code, out, _ = await overspill("explain", "pod/a/b", "--ledger", str(ledger))
    assert (code, out) == (1, "The ledger knows nothing about pod a/b.\n")
    code, _, err = await overspill("events", "--type", "GateOpend", "--ledger", str(ledger))
    assert code == 2
    assert "GateOpened" in err


async def _recorded(ledger: Path, least: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        while True:
            code, out, _ = await overspill("events", "-o", "json", "--ledger", str(ledger))
            if code == 0 and len(events := json.loads(out)) >= least:
                return events
            await asyncio.sleep(0.1)


async def test_schemas_as_one_document_and_as_files(tmp_path: Path):
    """Every event type of the catalogue has its schema."""
    code, out, _ = await overspill("schemas")
    assert code == 0
    assert set(json.loads(out)) == set(CATALOG)
    code, out, _ = await overspill("schemas", "--directory", str(tmp_path / "schemas"))
    assert (code, out) == (0, "")
    assert {path.stem for path in (tmp_path / "schemas").iterdir()} == set(CATALOG)
    (tmp_path / "file").touch()
    code, out, err = await overspill("schemas", "--directory", str(tmp_path / "file"))
    assert (code, out) == (2, "")
    assert err.rstrip().endswith("cannot be written to: File exists")


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["events", "--since", "yesterday"], ["explain", "chat"], ["run", "x"]]
)
async def test_wrong_arguments_exit_with_2_and_say_what_is_right(arguments: list[str], tmp_path: Path):
    """Usage errors never look like broken promises."""
    (tmp_path / "empty").touch()
    code, _, err = await overspill(*arguments)
    assert code == 2
    assert "Traceback" not in err
    assert err


async def test_doctor_lists_survivors_without_a_cluster() -> None:
    """Ours by tag, whoever's else is not shown; a shop that cannot be asked is never taken for empty."""
    async with cloud() as shop:
        env = {"OVERSPILL_BRIDGE_PROVIDERS": shop.setting}
        await shop.rent("a stranger's")
        code, out, err = await overspill("doctor", "--expect-none", env=env)
        assert (code, err) == (0, "")
        assert out.startswith("0 instances")
        tags = {names.CLUSTER_TAG: "c-1", names.NODE_TAG: "external", names.POD_TAG: "prod/web"}
        ours = await shop.rent("ours", tags=tags)
        code, out, _ = await overspill("doctor", "--provider", shop.setting, "-o", "json")
        assert code == 0
        (survivor,) = json.loads(out)["survivors"]
        assert (survivor["instance"], survivor["cluster"], survivor["pod"]) == (ours, "c-1", "prod/web")
        code, out, _ = await overspill("doctor", "--provider", shop.setting, "--expect-none")
        assert code == 1
        assert ours in out
        assert "c-1" in out
        code, out, _ = await overspill("doctor", "--provider", shop.setting, "--expect-none", "--cluster-uid", "c-2")
        assert (code, out.partition(" live")[0]) == (0, "0 instances of the cluster c-2")
        code, out, _ = await overspill("doctor", "--expect-none", "--cluster-uid", "c-1", env=env)
        assert (code, ours in out) == (1, True)
        await shop.faults(list_incomplete={"times": 1})
        code, out, _ = await overspill("doctor", "--provider", shop.setting)
        assert code == 1
        assert "incomplete" in out
    code, out, _ = await overspill("doctor", "--expect-none", env=env)
    assert code == 1, "the shop is gone: nobody knows"
    assert "not known: fake" in out
    code, _, err = await overspill("doctor", "--expect-none")
    assert code == 2
    assert "OVERSPILL_BRIDGE_PROVIDERS" in err


async def test_doctor_tells_pauses_orders_and_the_labs_policies(place: House) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in (names.BASE_TAINT, names.SWITCH_TAINT)]
    taints.append({"key": names.PREFERENCE_TAINT, "effect": "PreferNoSchedule"})
    await place.node("external", 100, labels={names.VIRTUAL_LABEL: "true"}, taints=taints)
    code, _, err = await overspill("pause", "evictor", "--reason", "audit", env=place.env())
    assert code == 1, err  # written, though nobody leads yet
    code, _, err = await overspill("gate", "open", "external", "--for", "2h", env=place.env())
    assert code == 0, err
    _, found = await findings(settled(place))
    assert "audit" in found["evictor"]["detail"]
    assert found["evictor"]["advice"] == "overspill resume evictor"
    assert "decider" not in found
    assert "gate closed, ordered open until" in found["virtual node external"]["detail"]
    assert found["admission policies"]["health"] == "ok"
    assert found["validating policies"]["health"] == "ok"
