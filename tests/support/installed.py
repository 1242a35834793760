"""deploy/ on a real control plane: everything but the workloads, and each service's own way in.

The services run as processes of the tests, so no image is needed; their rights, the policies about them and the users of
NATS are those of an installation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from overspill_bus.permissions import TOPOLOGY, users_config
from overspill_bus.testing import nats_server
from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.client import Client
from overspill_kube.grants import Permission
from overspill_lab.lab import clean_environment
from tests.cluster.controlplane.build import binaries
from tests.cluster.controlplane.start import ControlPlane
from tests.support.manifests import DEPLOY, SERVICES, granted

WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "PersistentVolumeClaim"})
KUEUE = DEPLOY / "components" / "kueue-crds" / "kueue.yaml"
WITHIN_S = 60.0
TOKEN_SECONDS = 3600
CREATED = 201

Document = dict[str, Any]


class Installation:
    """What was applied, and the services' credentials."""

    def __init__(self, documents: list[Document], folder: Path) -> None:
        self.documents = documents
        self.rights = {service: granted(documents, account(service)) for service in SERVICES}
        self._folder = folder

    def kubeconfig(self, service: str) -> Path:
        """A kubeconfig with the token of the service's own account."""
        return self._folder / f"{service}.kubeconfig"


def account(service: str) -> str:
    """The name of a service's ServiceAccount."""
    return f"overspill-{service}"


async def install(plane: ControlPlane, admin: Client, folder: Path) -> Installation:
    """Apply deploy/ with strict validation, and return when its rights hold and every service has its kubeconfig."""
    documents = [*await rendered(), *yaml.safe_load_all(KUEUE.read_text())]
    await _kubectl(plane, "apply", [one for one in documents if one["kind"] not in WORKLOADS])
    # The namespace is there now, so that the workloads can be judged too.
    await _kubectl(plane, "apply", [one for one in documents if one["kind"] in WORKLOADS], "--dry-run=server")
    installation = Installation(documents, folder)
    for service in SERVICES:
        token = await _token(admin, service)
        await asyncio.to_thread(_write_kubeconfig, plane, service, token, installation.kubeconfig(service))
    async with asyncio.timeout(WITHIN_S):
        for service, rights in installation.rights.items():
            for right in sorted(rights):
                while not await _holds(admin, service, right):  # noqa: ASYNC110  the server takes roles up by itself
                    await asyncio.sleep(0.1)
    return installation


async def rendered() -> list[Document]:
    """The documents of `kubectl kustomize deploy/`."""
    text = await _run([str(_kubectl_program()), "kustomize", str(DEPLOY)])
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document is not None]


def _kubectl_program() -> Path:
    return binaries().kubectl


async def _kubectl(plane: ControlPlane, verb: str, documents: Iterable[Document], *options: str) -> None:
    text = "\n---\n".join(json.dumps(document) for document in documents)
    common = [f"--kubeconfig={plane.kubeconfig}", "--validate=strict", "-f", "-"]
    await _run([str(_kubectl_program()), verb, *common, *options], text)


async def _run(command: list[str], text: str = "", environment: Mapping[str, str] | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ if environment is None else environment),
    )
    out, err = await process.communicate(text.encode())
    assert process.returncode == 0, f"{' '.join(command)}: {err.decode()}"
    return out.decode()


async def _token(admin: Client, service: str) -> str:
    status, answer = await admin.raw(
        "POST",
        f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{account(service)}/token",
        body={"spec": {"expirationSeconds": TOKEN_SECONDS}},
    )
    assert status == CREATED, answer
    return str(json.loads(answer)["status"]["token"])


def _write_kubeconfig(plane: ControlPlane, service: str, token: str, path: Path) -> None:
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": service, "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = service
    path.write_text(json.dumps(config))
    path.chmod(0o600)


async def _holds(admin: Client, service: str, right: Permission) -> bool:
    """Whether the API server grants it by now."""
    resource, _, subresource = right.resource.partition("/")
    about = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    status, answer = await admin.raw(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        body={
            "spec": {
                "user": f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account(service)}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"],
                "resourceAttributes": {name: value for name, value in about.items() if value},
            }
        },
    )
    assert status == CREATED, answer
    return bool(json.loads(answer)["status"]["allowed"])


class Nats:
    """A server with the users of deploy/, its streams made by the one who may."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, user: str) -> str:
        """Where and as whom to connect."""
        return self._url.replace("nats://", f"nats://{user}:{_password_of(user)}@")


@contextlib.asynccontextmanager
async def installed_nats(*, cluster: str) -> AsyncIterator[Nats]:
    """For as long as the block lasts."""
    async with nats_server(config=users_config(password_of=lambda user: _password_of(user.name))) as server:
        nats = Nats(server.url)
        settings = {"OVERSPILL_NATS_URL": nats.url(TOPOLOGY), "OVERSPILL_CLUSTER": cluster}
        command = [sys.executable, "-m", "overspill_bus", "topology"]
        await _run(command, environment={**clean_environment(), **settings})
        yield nats


def _password_of(user: str) -> str:
    return f"p-{user}"
