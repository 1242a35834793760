"""A whole lab: the cluster, the cloud, NATS and the services, each a process, for as long as the block lasts.

The cluster is the lab's own, or one that runs already; then the lab brings the home nodes and no API server, scheduler
or controllers. It knows who the programs are and how they find each other; keeping them running is the supervisor's
matter.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from overspill_bus.server import server_command
from overspill_events.names import SERVICES
from overspill_lab import kwok
from overspill_lab.metrics.query import FREE_GPUS
from overspill_lab.programs import Announces, Answers, Death, Listens, Program, Progress
from overspill_lab.supervisor import Supervisor

CLUSTER: Final = "lab"
PROVIDER: Final = "lab-cloud"
LEDGER: Final = "ledger.db"  # in the lab's folder
# What must not leak from a person's shell into the lab: it would steer the services, or point them at a real cluster.
FOREIGN: Final = ("OVERSPILL_", "KUBECONFIG")


class Cluster(Struct, frozen=True, kw_only=True):
    """A control plane that runs already, reached by the kubeconfig's current context. With `kwok`, the path of its
    binary, KWOK plays the kubelets of the home nodes instead of the lab's own ones.
    """

    kubeconfig: Path
    kwok: Path | None = None


class Lab:
    """An async context manager; its attributes are there once the block is entered."""

    nats_url: str
    kubeconfig: Path
    cloud_url: str
    cloud_token: str
    prometheus_url: str
    ledger: Path

    def __init__(
        self,
        folder: Path | None = None,
        *,
        nodes: Sequence[Mapping[str, Any]],
        service_settings: Mapping[str, Mapping[str, str]],
        services: Sequence[str] = SERVICES,
        cluster: Cluster | None = None,
        cloud_arguments: Sequence[str] = (),
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`nodes`: entries of a nodes file (`kubelets.machines`). `service_settings`: environment per service, on top
        of what the lab sets. Without a `folder` everything is written to a temporary one, removed at the end.
        """
        self._given_folder = folder
        self._nodes = nodes
        self._service_settings = service_settings
        self._services = services
        self._cluster = cluster
        self._cloud_arguments = cloud_arguments
        self._progress = progress
        self._supervisor: Supervisor
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.folder = self._given_folder or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="overspill-lab-"))
            )
            self._supervisor = await stack.enter_async_context(Supervisor(self.folder, progress=self._progress))
            await self._start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells a command in another shell where everything is; the provider's token is in it."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "OVERSPILL_KUBECONFIG": str(self.kubeconfig),
            "OVERSPILL_CLUSTER": CLUSTER,
            "OVERSPILL_NATS_URL": self.nats_url,
            "OVERSPILL_BRIDGE_PROVIDERS": f"{PROVIDER}={self.cloud_url}?token={self.cloud_token}",
            "OVERSPILL_RECORDER_PATH": str(self.ledger),
        }

    @property
    def exports(self) -> list[str]:
        """The same as lines that a shell reads."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]

    @property
    def deaths(self) -> Sequence[Death]:
        """Programs that ended without being asked to, in order."""
        return self._supervisor.deaths

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by program name, of those alive now."""
        return self._supervisor.pids

    def log_of(self, name: str) -> Path:
        """A program's log file."""
        return self._supervisor.log_of(name)

    async def kill(self, name: str) -> int:
        """SIGKILL a program; the lab starts it again. Its process id. Raises LabError for a name that does not run."""
        return await self._supervisor.kill(name)

    async def ready(self, name: str) -> None:
        """Wait until a program is ready, again after a kill."""
        await self._supervisor.ready(name)

    async def failed(self) -> None:
        """Wait until the lab cannot go on; raises the LabError that says why."""
        await self._supervisor.failed()

    async def _start(self) -> None:
        self.cloud_token = secrets.token_hex(16)
        self.ledger = self.folder / LEDGER
        ports = free_ports(3 + len(self._services))
        self.nats_url, self.prometheus_url = f"nats://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
        nats = Program(
            name="nats",
            command=tuple(server_command(store=self.folder / "nats", port=ports[0])),
            readiness=Listens(port=ports[0]),
        )
        cloud = self._part("cloud", "--token", self.cloud_token, *self._cloud_arguments, keeps_all=True)
        if self._cluster is None:
            self.kubeconfig = self.folder / "kubeconfig"
            api = [self._part("apiserver", "--kubeconfig-out", str(self.kubeconfig), keeps_all=True)]
        else:
            self.kubeconfig, api = self._cluster.kubeconfig, []
        cloud_says, *_ = await self._start_together(cloud, nats, *api)
        self.cloud_url = str(cloud_says["url"])
        client = ("--kubeconfig", str(self.kubeconfig))
        control = [] if self._cluster else [self._part(name, *client) for name in ("controllers", "scheduler")]
        await self._start_together(
            *control,
            await self._kubelets(ports[2]),
            self._part("metrics", *client, "--port", str(ports[1])),
            *(self._service(name, port) for name, port in zip(_recorder_first(self._services), ports[3:], strict=True)),
        )

    async def _kubelets(self, port: int) -> Program:
        """Who plays the home nodes."""
        file = self.folder / "nodes.json"
        file.write_text(json.dumps(list(self._nodes)))
        if self._cluster is None or self._cluster.kwok is None:
            return self._part("kubelets", "--kubeconfig", str(self.kubeconfig), "--nodes", str(file))
        await kwok.register(self.kubeconfig, file)
        return kwok.program(
            self._cluster.kwok,
            kubeconfig=self.kubeconfig,
            folder=self.folder,
            port=port,
            environment=clean_environment(),
        )

    async def _start_together(self, *programs: Program) -> list[Mapping[str, Any]]:
        try:
            async with asyncio.TaskGroup() as group:
                starting = [group.create_task(self._supervisor.start(program)) for program in programs]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # one LabError says enough; the others were cancelled
        return [task.result() for task in starting]

    def _part(self, name: str, *arguments: str, keeps_all: bool = False) -> Program:
        """A part of the lab; one that keeps everything in memory cannot come back after its death."""
        return Program(
            name=name,
            command=(sys.executable, "-m", f"overspill_lab.{name}", *arguments),
            environment=clean_environment(),
            readiness=Announces(),
            restarts=not keeps_all,
        )

    def _service(self, name: str, port: int) -> Program:
        where = self.environment
        settings = {
            **{known: where[known] for known in ("OVERSPILL_CLUSTER", "OVERSPILL_NATS_URL", "OVERSPILL_KUBECONFIG")},
            "OVERSPILL_IDENTITY": f"lab-{name}",  # the same after a restart: it takes its own lease back at once
            "OVERSPILL_LISTEN": f"127.0.0.1:{port}",
            "OVERSPILL_LOG_FORMAT": "json",
            **self._settings_of(name),
            **self._service_settings.get(name, {}),
        }
        return Program(
            name=name,
            command=(sys.executable, "-m", f"overspill_{name}"),
            environment={**clean_environment(), **settings},
            readiness=Answers(url=f"http://127.0.0.1:{port}/readyz"),
        )

    def _settings_of(self, name: str) -> dict[str, str]:
        """Where the others are, for those who need to know."""
        return {
            "sampler": {
                "OVERSPILL_SAMPLER_PROMETHEUS_URL": self.prometheus_url,
                "OVERSPILL_SAMPLER_QUERY": FREE_GPUS,
            },
            "bridge": {"OVERSPILL_BRIDGE_PROVIDERS": self.environment["OVERSPILL_BRIDGE_PROVIDERS"]},
            "recorder": {"OVERSPILL_RECORDER_PATH": self.environment["OVERSPILL_RECORDER_PATH"]},
        }.get(name, {})


def _recorder_first(services: Sequence[str]) -> list[str]:
    """What is started last is stopped first: who listens must outlive those who say goodbye."""
    return sorted(services, key=lambda name: name != "recorder")


def clean_environment() -> dict[str, str]:
    """This process' environment without what would steer a service or point it at a real cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 that nobody listens on now, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
