"""The starter: ready when it says so, several at once, nothing left behind, and a failure that explains itself."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.controlplane import program, start
from tests.cluster.controlplane.build import Binaries
from tests.cluster.controlplane.program import StartError
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.contract.kubernetes.client import eventually
from tests.support.deployed import kubectl

pytestmark = pytest.mark.timeout(240)  # most start a control plane, or two


async def _get(plane: ControlPlane, path: str, token: str | None = None) -> tuple[int, dict]:
    headers = {"Authorization": f"Bearer {token or plane.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(plane.url + path, ssl=plane.ssl) as reply,
    ):
        return reply.status, await reply.json()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


@pytest.mark.cluster
async def test_several_run_at_once_and_leave_nothing() -> None:
    async with control_plane(controllers=False) as one, control_plane(controllers=False, audit=True) as two:
        planes = [one, two]
        pids = [pid for plane in planes for pid in plane.pids.values()]
        assert one.url != two.url
        for plane in planes:
            assert list(plane.pids) == ["etcd", "kube-apiserver"]
            status, version = await _get(plane, "/version")
            assert (status, version["major"]) == (200, "1")
            assert json.loads(plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == plane.url
        # Neither takes the other's token.
        assert (await _get(two, "/api/v1/pods", token=one.token))[0] == 401
        audit = two.audit_log
        assert audit is not None
        # A request is noted when it has been answered.
        await eventually(lambda: asyncio.to_thread(audit.read_text), lambda text: "/version" in text, "it is noted")
    assert not any(_alive(pid) for pid in pids)
    assert not any(plane.folder.exists() for plane in planes)


@pytest.mark.cluster
async def test_a_failing_block_leaves_nothing() -> None:
    pids: list[int] = []
    folders: list[Path] = []

    async def failing() -> None:
        async with control_plane(controllers=False) as plane:
            pids.extend(plane.pids.values())
            folders.append(plane.folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert not any(_alive(pid) for pid in pids)
    assert not folders[0].exists()


KILLED_RUN = """
import asyncio
from tests.cluster.controlplane.start import control_plane

async def main():
    async with control_plane(controllers=False) as plane:
        print(plane.folder, *plane.pids.values(), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.cluster
async def test_a_killed_run_leaves_no_process() -> None:
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_RUN, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert run.stdout is not None
    folder, *numbers = (await run.stdout.readline()).decode().split()
    pids = [int(number) for number in numbers]
    assert len(pids) == 2
    run.kill()
    await run.wait()
    async with asyncio.timeout(30):
        while any(_alive(pid) for pid in pids):  # noqa: ASYNC110 - the kernel sets no Event
            await asyncio.sleep(0.1)
    shutil.rmtree(folder)  # the files of a killed run nobody can sweep but us


@pytest.mark.cluster
@pytest.mark.timeout(900)  # with an empty cache KWOK is built first
async def test_one_can_be_had_until_it_is_stopped() -> None:
    """`make cluster`: the line to copy on standard output, the rest beside it, and nothing left at the end."""
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.cluster.controlplane"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout is not None
    line = (await run.stdout.readline()).decode().strip()
    kubeconfig = Path(line.removeprefix("export KUBECONFIG="))
    assert json.loads(await kubectl("version", "-o", "json", kubeconfig=kubeconfig))["serverVersion"]["major"] == "1"
    run.terminate()
    _, told = await run.communicate()
    assert run.returncode == 0, told.decode()
    assert "ready; Ctrl-C stops it" in told.decode()
    assert not kubeconfig.parent.exists()


@pytest.mark.cluster
async def test_a_refused_setting_shows_the_servers_own_words() -> None:
    with pytest.raises(StartError, match=r"kube-apiserver ended with 1.*(?s:.*)NoSuchGate"):
        async with control_plane(feature_gates={"NoSuchGate": True}):
            pytest.fail("it started")


async def test_a_program_that_ends_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "etcd"
    broken.write_text('#!/bin/sh\nfor n in $(seq 40); do echo "line $n"; done\nexit 3\n')
    broken.chmod(0o755)
    programs = Binaries(etcd=broken, apiserver=broken, controllers=broken, scheduler=broken, kubectl=broken)
    monkeypatch.setattr(start, "binaries", lambda: programs)
    with pytest.raises(StartError, match=r"etcd ended with 3; the end of its log:\nline 16\n") as failure:
        async with control_plane():
            pytest.fail("it started")
    assert "line 40" in str(failure.value)
    assert "line 15" not in str(failure.value)


async def test_a_taken_port_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = tmp_path / "tries"
    busy = tmp_path / "etcd"
    busy.write_text(f"#!/bin/sh\necho x >> {tries}\necho 'listen tcp: bind: address already in use'\nexit 1\n")
    busy.chmod(0o755)
    programs = Binaries(etcd=busy, apiserver=busy, controllers=busy, scheduler=busy, kubectl=busy)
    monkeypatch.setattr(start, "binaries", lambda: programs)
    with pytest.raises(StartError, match="address already in use"):
        async with control_plane():
            pytest.fail("it started")
    assert len((await asyncio.to_thread(tries.read_text)).splitlines()) == program.PORT_TRIES
