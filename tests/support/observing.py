"""An installation whose services come and go, acting or observing, and a witness of what they say and write.

A real API server with an audit log is the judge. It must not know what situation they are in.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from overspill_bus import Bus
from overspill_demo import objects
from overspill_demo.arrangement import VIRTUAL_NODE
from overspill_events.catalog import CapacitySampled, Event
from overspill_events.names import SERVICES
from overspill_events.subjects import STREAM_SUBJECTS
from overspill_kube.client import Client
from overspill_kube.resources import JOBS, NODES, PODS
from overspill_lab.lab import CLUSTER, PROVIDER, Lab, clean_environment, free_ports
from overspill_lab.metrics.query import FREE_GPUS
from overspill_lab.programs import Answers, Program
from overspill_lab.supervisor import Supervisor
from overspill_objects.core import Node, Pod
from tests.support.audit import AuditLog
from tests.support.cloud import Cloud
from tests.support.installed import Installation
from tests.support.rights import Request, writes
from tests.support.rights_story import until

ROUNDS: Final = 10  # samples, one each half second
QUEUED: Final = "queued"  # a Job that waits for its queue

Kind = TypeVar("Kind", bound=Event)


class Witness:
    """What the services say and ask for from now on."""

    def __init__(self, bus: Bus, last: int, log: AuditLog) -> None:
        self._bus, self._last, self._log = bus, last, log
        self._requests: list[Request] = []

    async def heard(self, kind: type[Kind]) -> list[Kind]:
        """Events of one kind, in order."""
        every = [one.event async for one in self._bus.read([STREAM_SUBJECTS], since=self._last + 1)]
        return [event for event in every if isinstance(event, kind)]

    async def until(self, what: str, holds: Callable[[], Awaitable[Any]]) -> None:
        """Wait until it holds; a write ends the waiting, as what does not come may be its consequence."""

        async def holds_and_nothing_is_written() -> Any:
            await self.saw_no_write()
            return await holds()

        await until(what, holds_and_nothing_is_written)

    async def rounds(self) -> None:
        """Wait until every service has had the time to act on what it has said."""
        before = len(await self.heard(CapacitySampled))

        async def enough() -> bool:
            return len(await self.heard(CapacitySampled)) >= before + ROUNDS

        await self.until(f"{ROUNDS} more samples", enough)

    async def saw_no_write(self) -> set[str]:
        """Raises AssertionError for a write; returns the services that have asked the API server for anything."""
        self._requests += await self._log.news()
        found = writes(self._requests)
        assert not found, "\n".join(["writes in observe mode:", *map(str, found)])
        return {request.service for request in self._requests}


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster with deploy/ applied, kubelets, a provider and a bus; the services come and go."""

    admin: Client
    lab: Lab
    cloud: Cloud
    bus: Bus
    installation: Installation
    settings: Mapping[str, Mapping[str, str]]
    audit_log: Path

    @contextlib.asynccontextmanager
    async def services(self, mode: str) -> AsyncIterator[None]:
        """All six, each with its own account, until the block ends; none may die by itself."""
        ports = free_ports(len(SERVICES))
        async with Supervisor(self.lab.folder / mode) as supervisor:
            async with asyncio.TaskGroup() as starting:
                for service, port in zip(SERVICES, ports, strict=True):
                    starting.create_task(supervisor.start(self._program(service, port, mode)))
            yield
            assert not supervisor.deaths, supervisor.deaths[0]

    @contextlib.asynccontextmanager
    async def observing(self) -> AsyncIterator[Witness]:
        """The services observe; to the end of the block the API server must see no write of theirs."""
        log, last = AuditLog(self.audit_log), (await self.bus.stream_info()).state.last_seq
        await log.news()  # of those who were here before
        witness = Witness(self.bus, last, log)
        async with self.services("observe"):
            yield witness
            await witness.rounds()
        readers = {service for service, rights in self.installation.rights.items() if rights}
        assert await witness.saw_no_write() == readers, "somebody has not even looked"

    async def node(self) -> Node:
        node = await self.admin.get(NODES, VIRTUAL_NODE)
        assert node is not None
        return node

    async def outside(self) -> dict[str, Pod]:
        """Pods on the virtual node by name."""
        pods = (await self.admin.list(PODS, fields=f"spec.nodeName={VIRTUAL_NODE}")).items
        return {pod.metadata.name: pod for pod in pods}

    async def picture(self) -> dict[str, Any]:
        """Everything that the services would change by acting, as the API server and the provider have it."""
        node = await self.node()
        job = await self.admin.get(JOBS, QUEUED, objects.RESEARCH_NAMESPACE)
        assert job is not None
        instances = (await self.cloud.audit())["instances"]
        return {
            "node": (node.metadata.labels, node.metadata.annotations, node.spec.taints, node.status.conditions),
            "pods": {name: pod.metadata.resource_version for name, pod in (await self.outside()).items()},
            "job": (job.metadata.annotations, job.spec.suspend),
            "instances": {one["id"]: (one["podUid"], one["living"], one["stopRequestedAt"]) for one in instances},
        }

    def _program(self, service: str, port: int, mode: str) -> Program:
        lab = self.lab
        own = {
            "sampler": {
                "OVERSPILL_SAMPLER_PROMETHEUS_URL": lab.prometheus_url,
                "OVERSPILL_SAMPLER_QUERY": FREE_GPUS,
            },
            "decider": {"OVERSPILL_DECIDER_LOW_MARK": "1", "OVERSPILL_DECIDER_HIGH_MARK": "4"},
            "bridge": {"OVERSPILL_BRIDGE_PROVIDERS": f"{PROVIDER}={lab.cloud_url}?token={lab.cloud_token}"},
            "recorder": {"OVERSPILL_RECORDER_PATH": str(lab.ledger)},
        }
        environment = {
            "OVERSPILL_CLUSTER": CLUSTER,
            "OVERSPILL_IDENTITY": service,
            "OVERSPILL_LISTEN": f"127.0.0.1:{port}",
            "OVERSPILL_LOG_FORMAT": "json",
            "OVERSPILL_MODE": mode,
        }
        return Program(
            name=service,
            command=(sys.executable, "-m", f"overspill_{service}"),
            environment=clean_environment() | environment | self.settings[service] | own.get(service, {}),
            readiness=Answers(url=f"http://127.0.0.1:{port}/readyz"),
        )
