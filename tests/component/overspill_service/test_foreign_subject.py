"""A service that speaks on another's subject is refused by NATS, and its readiness says so: whole, as a process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import pytest

from overspill_lab.lab import clean_environment, free_ports
from tests.support.house import CLUSTER, eventually
from tests.support.installed import installed_nats

UNAVAILABLE = 503


@pytest.mark.parametrize(("user", "refused"), [("sampler", True), ("recorder", False)])
async def test_readiness_names_the_subject(tmp_path: Path, user: str, refused: bool) -> None:
    """The recorder, with another's password and with its own."""
    (port,) = free_ports(1)
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}  # the recorder asks Kubernetes nothing
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    config = {"clusters": [cluster], "users": users, "contexts": [context], "current-context": "x"}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    async with installed_nats(cluster=CLUSTER) as nats, aiohttp.ClientSession() as session:
        environment = {
            "OVERSPILL_CLUSTER": CLUSTER,
            "OVERSPILL_NATS_URL": nats.url(user),
            "OVERSPILL_NATS_MAKES_STREAMS": "false",
            "OVERSPILL_KUBECONFIG": str(kubeconfig),
            "OVERSPILL_LISTEN": f"127.0.0.1:{port}",
            "OVERSPILL_RECORDER_PATH": str(tmp_path / "ledger.db"),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "overspill_recorder",
            env={**clean_environment(), **environment},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

        async def readiness() -> tuple[int, str]:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                return 0, ""

        async def said() -> bool:
            status, text = await readiness()
            if refused:
                return status == UNAVAILABLE and f"overspill.v1.{CLUSTER}.recorder" in text and "permission" in text
            return status == 200

        try:
            await eventually(said)
        finally:
            process.terminate()
            await process.wait()
