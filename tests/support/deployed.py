"""deploy/ on a real API server: rendered and applied by kubectl, and the services' own accounts to act with."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from overspill_kube.client import Client, connect
from overspill_kube.settings import KubeSettings
from tests.cluster.controlplane.build import binaries
from tests.cluster.controlplane.start import ControlPlane
from tests.contract.kubernetes.client import Api, Endpoint, endpoint_of

SYSTEM = "/api/v1/namespaces/overspill-system"


async def kubectl(*arguments: str, kubeconfig: Path | None = None) -> str:
    """Standard output of kubectl, which must succeed; the one that is built with the control plane."""
    program = (await asyncio.to_thread(binaries)).kubectl
    options = (f"--kubeconfig={kubeconfig}",) if kubeconfig else ()
    process = await asyncio.create_subprocess_exec(
        program, *options, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, f"kubectl {' '.join(arguments)}:\n{err.decode()}\n{out.decode()[-2000:]}"
    return out.decode()


async def render(folder: Path) -> str:
    """What `kubectl apply -k` would apply."""
    return await kubectl("kustomize", str(folder))


async def apply(plane: ControlPlane, file: Path, *options: str) -> list[str]:
    """`kubectl apply -f`, strictly validated by the server; its lines."""
    out = await kubectl("apply", "--validate=strict", *options, "-f", str(file), kubeconfig=plane.kubeconfig)
    return out.splitlines()


async def endpoint_as(plane: ControlPlane, account: str) -> Endpoint:
    """The API server as a ServiceAccount of overspill-system sees it."""
    admin = endpoint_of(plane.kubeconfig)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    async with Api(admin) as api:
        answer = (await api.post(f"{SYSTEM}/serviceaccounts/{account}/token", request)).ok()
    return Endpoint(url=admin.url, token=answer["status"]["token"], ca_file=admin.ca_file)


@contextlib.asynccontextmanager
async def client_as(plane: ControlPlane, account: str, folder: Path) -> AsyncIterator[Client]:
    """Our client, signed in as a ServiceAccount of overspill-system and under its name."""
    path = folder / f"{account}.kubeconfig"
    await asyncio.to_thread(path.write_text, _kubeconfig(await endpoint_as(plane, account)))
    async with connect(KubeSettings(kubeconfig=str(path), user_agent=account)) as client:
        yield client


def _kubeconfig(endpoint: Endpoint) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": endpoint.url, "certificate-authority": endpoint.ca_file}}],
            "users": [{"name": "u", "user": {"token": endpoint.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
