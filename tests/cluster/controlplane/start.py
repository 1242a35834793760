"""Starts a real, throw-away Kubernetes control plane on the loopback interface.

Tests that ask "what does Kubernetes really do?" need the real API server, not a belief about it. Each `control_plane()` is
its own etcd, API server, and on request controllers and scheduler, on free ports with a folder of its own, so several can
run at once; when the block ends nothing is left. There is no kubelet: nodes are objects, and whoever wants pods to run
plays the kubelet over the same API.

It knows nothing of Overspill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.controlplane.build import Binaries, binaries
from tests.cluster.controlplane.program import Program, free_port, with_free_ports

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"]}, {"level": "Metadata"}],
}


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What the caller asked for, flags already spelled out."""

    scheduler: bool
    controllers: bool
    audit: bool
    gates: list[str]
    runtime_config: list[str]
    emulated_version: list[str]
    controller_flags: tuple[str, ...]


@dataclass(kw_only=True)
class ControlPlane:
    """How to reach a running control plane, and how to end it."""

    url: str
    ca_file: Path
    token: str
    kubeconfig: Path
    folder: Path
    audit_log: Path | None = None
    _programs: list[Program] = field(default_factory=list, repr=False)

    @property
    def ssl(self) -> ssl.SSLContext:
        """A context that trusts this API server and no other."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    @property
    def authorization(self) -> dict[str, str]:
        """Headers of a request that may do everything."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by program name, in the order of their start."""
        return {program.name: program.process.pid for program in self._programs}

    async def stop(self) -> None:
        """End every program and remove the folder. Clients of the API server go first, etcd last: an API server whose
        etcd has gone keeps its port for a while. Calling it twice is harmless.
        """
        while self._programs:
            await self._programs.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def control_plane(
    *,
    scheduler: bool = False,
    controllers: bool = True,
    audit: bool = False,
    feature_gates: Mapping[str, bool] | None = None,
    runtime_config: tuple[str, ...] = (),
    emulated_version: str | None = None,
    controller_flags: tuple[str, ...] = (),
) -> AsyncIterator[ControlPlane]:
    """A running control plane; ended and forgotten when the block ends, however it ends.

    `feature_gates` go to every program, `runtime_config` (such as `scheduling.k8s.io/v1beta1=true`) and an
    `emulated_version` (such as `1.35`: serve what that one served) to the API server,
    `controller_flags` (such as `--node-monitor-grace-period=4s`) to the controllers.
    With `audit` every request is written as a JSON line to `ControlPlane.audit_log`. The first call on a machine builds the
    programs, which takes minutes. Raises BuildError when that cannot be done and StartError when a program does not
    become ready.
    """
    programs = await asyncio.to_thread(binaries)
    wanted = _Wanted(
        scheduler=scheduler,
        controllers=controllers,
        audit=audit,
        gates=[f"--feature-gates={name}={str(on).lower()}" for name, on in (feature_gates or {}).items()],
        runtime_config=[f"--runtime-config={entry}" for entry in runtime_config],
        emulated_version=[f"--emulated-version={emulated_version}"] if emulated_version is not None else [],
        controller_flags=controller_flags,
    )
    plane = await with_free_ports(lambda: _start(programs, wanted))
    try:
        yield plane
    finally:
        await plane.stop()


async def _start(programs: Binaries, wanted: _Wanted) -> ControlPlane:
    plane = _new_plane(audit=wanted.audit)
    try:
        etcd_url = await _start_etcd(plane, programs.etcd)
        await _start_apiserver(plane, programs.apiserver, etcd_url, wanted)
        _write_kubeconfig(plane)
        if wanted.controllers:
            await _start_client(plane, "kube-controller-manager", programs.controllers, wanted)
            # Until its controllers have made this account, the API server refuses every pod of the namespace.
            account = f"{plane.url}/api/v1/namespaces/default/serviceaccounts/default"
            await plane._programs[-1].until_ready(account, headers=plane.authorization)
        if wanted.scheduler:
            await _start_client(plane, "kube-scheduler", programs.scheduler, wanted)
    except BaseException:
        await plane.stop()
        raise
    return plane


def _new_plane(*, audit: bool) -> ControlPlane:
    folder = Path(tempfile.mkdtemp(prefix="overspill-controlplane-"))
    return ControlPlane(
        url=f"https://127.0.0.1:{free_port()}",
        ca_file=folder / "certs" / "apiserver.crt",
        token=secrets.token_hex(16),
        kubeconfig=folder / "kubeconfig",
        folder=folder,
        audit_log=folder / "audit.log" if audit else None,
    )


async def _start_etcd(plane: ControlPlane, program: Path) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    arguments = [
        f"--data-dir={plane.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data is thrown away anyway
    ]
    etcd = await _spawn(plane, "etcd", program, arguments)
    await etcd.until_ready(f"{client}/health")
    return client


async def _start_apiserver(plane: ControlPlane, program: Path, etcd_url: str, wanted: _Wanted) -> None:
    certs = plane.ca_file.parent
    tokens = plane.folder / "tokens.csv"
    tokens.write_text(f'{plane.token},admin,admin,"system:masters"\n')
    # The server makes itself a certificate and a key; the same key signs service account tokens here.
    key = certs / "apiserver.key"
    arguments = [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.url.rsplit(':', 1)[1]}",
        "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address
        f"--cert-dir={certs}",
        f"--service-account-issuer={plane.url}",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        *wanted.gates,
        *wanted.runtime_config,
        *wanted.emulated_version,
    ]
    if plane.audit_log is not None:
        policy = plane.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        arguments += [f"--audit-policy-file={policy}", f"--audit-log-path={plane.audit_log}"]
    apiserver = await _spawn(plane, "kube-apiserver", program, arguments)
    await apiserver.until_ready(f"{plane.url}/readyz", headers=plane.authorization)


async def _start_client(plane: ControlPlane, name: str, program: Path, wanted: _Wanted) -> None:
    """The controllers or the scheduler: clients of the API server like any other, given a port only for their health."""
    port = free_port()
    arguments = [
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={plane.folder / name}",
        "--authorization-always-allow-paths=/healthz",
        "--kube-api-qps=200",  # the defaults (20 and 50) are for clusters whose API server has others to serve
        "--kube-api-burst=400",
        *wanted.gates,
    ]
    if name == "kube-controller-manager":
        key = plane.ca_file.parent / "apiserver.key"
        arguments += ["--use-service-account-credentials", f"--service-account-private-key-file={key}"]
        arguments += wanted.controller_flags
        # Five Jobs at a time, each waiting for writes of a busy machine, would take minutes for a wave of hundreds.
        arguments += [
            "--concurrent-job-syncs=25",
            "--concurrent-replicaset-syncs=25",
            "--concurrent-deployment-syncs=10",
        ]
    started = await _spawn(plane, name, program, arguments)
    await started.until_ready(f"https://127.0.0.1:{port}/healthz")


def _write_kubeconfig(plane: ControlPlane) -> None:
    """JSON is YAML: plain kubectl and every client library read it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "overspill-real", "cluster": {"server": plane.url, "certificate-authority": str(plane.ca_file)}}
        ],
        "users": [{"name": "admin", "user": {"token": plane.token}}],
        "contexts": [{"name": "overspill-real", "context": {"cluster": "overspill-real", "user": "admin"}}],
        "current-context": "overspill-real",
    }
    plane.kubeconfig.write_text(json.dumps(config, indent=2))
    plane.kubeconfig.chmod(0o600)


async def _spawn(plane: ControlPlane, name: str, program: Path, arguments: list[str]) -> Program:
    started = await Program.spawn(name, program, arguments, folder=plane.folder)
    plane._programs.append(started)
    return started
