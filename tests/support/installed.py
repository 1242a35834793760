"""deploy/ on a real control plane: everything but the workloads, and each service's own way in.

The services run as processes of the tests, so no image is needed; their rights, the policies about them and the users of
NATS are those of an installation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import yaml

from overspill_bus.permissions import TOPOLOGY, users_config
from overspill_bus.testing import nats_server
from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.client import Client
from overspill_kube.grants import Permission
from overspill_lab.lab import clean_environment
from overspill_service import crds
from tests.cluster.controlplane.start import ControlPlane
from tests.contract.kubernetes.client import Endpoint
from tests.support.deployed import apply, endpoint_as, render
from tests.support.manifests import DEPLOY, SERVICES, granted

WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "PersistentVolumeClaim"})
WITHIN_S = 60.0
CREATED = 201

Document = dict[str, Any]


class Installation:
    """What each service may do, and its credentials."""

    def __init__(self, documents: list[Document], folder: Path) -> None:
        self.rights = {service: granted(documents, account(service)) for service in SERVICES}
        self._folder = folder

    def kubeconfig(self, service: str) -> Path:
        """A kubeconfig with the token of the service's own account."""
        return self._folder / f"{service}.kubeconfig"


def account(service: str) -> str:
    """The name of a service's ServiceAccount."""
    return f"overspill-{service}"


async def install(plane: ControlPlane, admin: Client, folder: Path) -> Installation:
    """Apply deploy/, define Kueue's kinds in place of the Job, and return when the rights hold and every service has its
    kubeconfig.
    """
    documents = list(yaml.load_all(await render(DEPLOY), yaml.CSafeLoader))
    file = folder / "installed.yaml"
    await asyncio.to_thread(_write, file, [one for one in documents if one and one["kind"] not in WORKLOADS])
    await apply(plane, file)
    await crds.ensure(admin)
    installation = Installation([one for one in documents if one], folder)
    for service in SERVICES:
        endpoint = await endpoint_as(plane, account(service))
        await asyncio.to_thread(_write_kubeconfig, plane, endpoint, installation.kubeconfig(service))
    async with asyncio.timeout(WITHIN_S):
        for service, rights in installation.rights.items():
            for right in sorted(rights):
                while not await holds(admin, service, right):  # noqa: ASYNC110  the server takes roles up by itself
                    await asyncio.sleep(0.1)
    return installation


def _write(path: Path, documents: Iterable[Document]) -> None:
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))


def _write_kubeconfig(plane: ControlPlane, endpoint: Endpoint, path: Path) -> None:
    config = json.loads(plane.kubeconfig.read_text())
    context = config["contexts"][0]["context"]
    config["users"] = [{"name": context["user"], "user": {"token": endpoint.token}}]
    path.write_text(json.dumps(config))
    path.chmod(0o600)


async def holds(admin: Client, service: str, right: Permission) -> bool:
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
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "overspill_bus", "topology", env={**clean_environment(), **settings}
        )
        assert await process.wait() == 0, "the streams were not made"
        yield nats


def _password_of(user: str) -> str:
    return f"p-{user}"
