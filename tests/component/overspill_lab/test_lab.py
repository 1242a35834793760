"""The lab as a whole, without services: it starts, survives kills, fails loudly and leaves nothing."""

import asyncio
import contextlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from overspill_kube.client import connect
from overspill_kube.resources import PODS
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import Lab
from overspill_lab.metrics.query import FREE_GPUS
from overspill_lab.programs import LabError, Progress, State
from tests.support.lab_parts import DEADLINE_S, NAMESPACE, pod_body

NODES = [{"name": f"n{at}", "cpu": "64", "memory": "256Gi", "gpus": 8, "model": "A100"} for at in range(2)]
PARTS = ("nats", "apiserver", "cloud", "controllers", "kubelets", "scheduler", "metrics")


def lab(folder: Path | None = None, **more: Any) -> Lab:
    return Lab(folder, nodes=NODES, service_settings={}, services=(), **more)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def query(url: str, text: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': text})}") as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def free_gpus(running: Lab) -> str:
    _, said = await asyncio.to_thread(query, running.prometheus_url, FREE_GPUS)
    return str(said["data"]["result"][0]["value"][1])


async def runs(running: Lab, name: str) -> None:
    """A new pod is created, placed and started: every part does its work."""
    async with connect(KubeSettings(kubeconfig=str(running.kubeconfig))) as client, asyncio.timeout(DEADLINE_S):
        await client.create(PODS, pod_body(name, gpus=1), NAMESPACE)
        while (pod := await client.get(PODS, name, NAMESPACE)) is None or pod.status.phase != "Running":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_lab_runs_pods_whichever_part_is_killed_and_leaves_nothing(tmp_path: Path) -> None:
    seen: list[Progress] = []
    async with lab(tmp_path, progress=seen.append) as running:
        assert tuple(sorted(running.pids)) == tuple(sorted(PARTS))
        await runs(running, "first")
        killed = [await running.kill(name) for name in ("scheduler", "controllers", "kubelets", "metrics", "nats")]
        for name in ("scheduler", "controllers", "kubelets", "metrics", "nats"):
            await running.ready(name)
        await runs(running, "second")
        async with asyncio.timeout(DEADLINE_S):
            while await free_gpus(running) != "14":  # noqa: ASYNC110 (the metrics follow the pods a moment later)
                await asyncio.sleep(0.05)
        status, said = await asyncio.to_thread(query, running.prometheus_url, "up")
        assert (status, said["errorType"]) == (400, "bad_data")
        pids = [*killed, *running.pids.values()]
        assert running.deaths == []
    assert all(map(gone, pids))
    assert {one.name for one in seen if one.state is State.STOPPED} == set(PARTS)


async def test_a_lab_without_its_api_server_is_over_and_its_folder_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lab() as running:
        folder, pid = running.folder, running.pids["apiserver"]
        os.kill(pid, 9)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(LabError, match="apiserver ended by itself"):
                await running.failed()
        assert [death.name for death in running.deaths] == ["apiserver"]
        pids = running.pids
    assert all(map(gone, pids.values()))
    assert not folder.exists()


async def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    pids: set[int] = set()

    def note(progress: Progress) -> None:
        if progress.state is State.READY:
            pids.add(int(progress.detail.removeprefix("pid ")))

    async def interrupted() -> None:
        async with lab(tmp_path, progress=note):
            raise AssertionError("it was to be interrupted before it was up")

    running = asyncio.create_task(interrupted())
    async with asyncio.timeout(DEADLINE_S):
        while len(pids) < 4:  # noqa: ASYNC110 (other processes set no events)
            await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert running.cancelled()
    assert all(map(gone, pids))


async def test_a_service_that_cannot_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    settings = {"sampler": {"OVERSPILL_SAMPLER_INTERVAL": "often"}}
    with pytest.raises(LabError, match=r"sampler(.|\n)*OVERSPILL_SAMPLER_INTERVAL"):
        async with Lab(tmp_path, nodes=NODES, service_settings=settings, services=("sampler",)):
            raise AssertionError("it was not to start")
