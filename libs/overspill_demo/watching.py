"""Watches the story from the outside: API server, provider and stream. It never writes anywhere.

It looks at the story's own namespaces: a cluster that is not the lab's has pods of its own, and they are nobody's here.

What it collects is judged by `invariants`. The stream is read for what stands in it and in which order; nothing that an
event claims is taken as proof of an effect.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from overspill_bus import Bus, Recorded
from overspill_demo.invariants import Observation, Return
from overspill_demo.objects import INFERENCE_NAMESPACE, RESEARCH_NAMESPACE
from overspill_demo.provider import ProviderBooks, Totals
from overspill_demo.recollection import Figures, Recollection, figures, is_ready
from overspill_demo.scenario import Scenario
from overspill_events import catalog
from overspill_events.reasons import RefusalReason
from overspill_events.subjects import STREAM_SUBJECTS
from overspill_kube.client import Client
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.resources import JOBS, NAMESPACES, NODES, PODS
from overspill_objects.core import Node
from overspill_objects.meta import condition_of
from overspill_objects.pod import Pod
from overspill_recorder.ledger import open_ledger

STORY_NAMESPACES: Final = (RESEARCH_NAMESPACE, INFERENCE_NAMESPACE)
PATIENCE_S: Final = 15.0  # for the evictor's last word, and for the ledger
FLOOR: Final = 1  # ready replicas that must stay beside the evicted one: the evictor's default floor


class Stream:
    """What stands in the stream, in its order."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], set[int]] = {}  # (source, epoch) → numbers seen
        self.events = 0
        self.last = 0  # stream sequence
        self.refused = 0
        self.intents: dict[str, int] = {}  # pod UID → stream sequence
        self.evicted: dict[str, int] = {}
        self.begun: dict[str, catalog.PodRef] = {}  # id of a ReturnIntended → its pod
        self.ends: dict[str, list[catalog.ReturnSettled]] = {}  # id of the event that they name as their cause
        self.successions: list[tuple[str, str]] = []
        self.announced: set[str] = set()
        self.ended: set[str] = set()

    def take(self, recorded: Recorded) -> None:
        """Note one message."""
        envelope = recorded.envelope
        self.events += 1
        if envelope.source:  # empty: a message without readable headers is nobody's event and has no number
            self.numbers.setdefault((envelope.source, envelope.epoch), set()).add(envelope.sequence)
        position = self.last = envelope.stream_sequence or 0
        match recorded.event:
            case catalog.ReturnIntended(pod=pod):
                self.intents.setdefault(pod.uid, position)
                self.begun[envelope.id] = pod
            case catalog.PodEvicted(pod=pod):
                self.evicted.setdefault(pod.uid, position)
            case catalog.ReturnSettled(pod=pod, successor=heir) as end:
                self.ends.setdefault(envelope.causation_id or "", []).append(end)
                if heir is not None:
                    self.successions.append((pod.uid, heir.uid))
            case catalog.EvictionRefused(reason=RefusalReason.PDB):
                self.refused += 1
            case catalog.InstanceCreated(instance=instance) | catalog.InstanceAdopted(instance=instance):
                self.announced.add(instance)
            case catalog.InstanceTerminated(instance=instance):
                self.ended.add(instance)

    def gaps(self) -> dict[str, int]:
        """Missing numbers per source and epoch."""
        return {f"{source} {epoch}": max(seen) - len(seen) for (source, epoch), seen in self.numbers.items()}

    def returns(self) -> tuple[Return, ...]:
        """Each intent with its ends, then ends of which no intent is known."""
        begun = [_return(pod, self.ends.get(intent, ())) for intent, pod in self.begun.items()]
        strays = [end for cause, ends in self.ends.items() if cause not in self.begun for end in ends]
        return (*begun, *(_return(end.pod, [end], begun=False) for end in strays))

    def intents_before(self) -> frozenset[str]:
        """Pods whose intent stands before their eviction."""
        return frozenset(uid for uid, at in self.evicted.items() if self.intents.get(uid, at) < at)


def _return(pod: catalog.PodRef, ends: Sequence[catalog.ReturnSettled], *, begun: bool = True) -> Return:
    places = tuple(end.place for end in ends)
    return Return(uid=pod.uid, pod=f"{pod.namespace}/{pod.name}", begun=begun, ends=places)


class Watch:
    """The outside view of one performance; `running` keeps it."""

    def __init__(self, scenario: Scenario, *, kube: Client, bus: Bus, books: ProviderBooks) -> None:
        self.recollection = Recollection()
        self.stream = Stream()
        self.totals = Totals()
        self.scenario = scenario
        self._kube = kube
        self._bus = bus
        self._books = books
        self._nodes = Informer(kube, NODES, on_change=self._node_changed)
        self._pods = Informer(kube, PODS, on_change=self._pod_changed)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        tasks = [
            asyncio.create_task(self._nodes.run()),
            asyncio.create_task(self._pods.run()),
            asyncio.create_task(self._bus.follow([STREAM_SUBJECTS], self.stream.take, since=1)),
            asyncio.create_task(self._poll_books()),
        ]
        try:
            await self._nodes.wait_synced()
            await self._pods.wait_synced()
            yield
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def trouble(self) -> str | None:
        """Why the stream cannot be followed now, or None."""
        return self._bus.problem()

    def figures(self) -> Figures:
        """Where everything is now."""
        return figures(self.recollection, self._nodes.items.values(), self._story_pods())

    def free_share(self) -> float:
        """Share of home's GPUs that are free, between 0 and 1."""
        return self.figures().free_gpus / self.scenario.home_gpus

    def spilled_left(self) -> tuple[str, ...]:
        """Pods on virtual nodes that have not finished."""
        virtual = self.recollection.virtual_nodes
        return tuple(
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in self._story_pods()
            if pod.spec.node_name in virtual and pod.status.phase not in {"Succeeded", "Failed"}
        )

    def short_deployments(self) -> tuple[str, ...]:
        """Deployments that do not have all their replicas Ready at home."""
        virtual, counts = self.recollection.virtual_nodes, dict[str, int]()
        for pod in self._story_pods():
            if pod.spec.node_name and pod.spec.node_name not in virtual and is_ready(pod):
                app = pod.metadata.labels.get("app", "")
                counts[app] = counts.get(app, 0) + 1
        return tuple(
            f"{item.name}: {counts.get(item.name, 0)} of {item.replicas} at home"
            for item in self.scenario.inference
            if counts.get(item.name, 0) < item.replicas
        )

    async def unfinished_jobs(self) -> tuple[str, ...]:
        """Research jobs without a Complete condition."""
        jobs = await self._kube.list(JOBS, namespace=RESEARCH_NAMESPACE)
        complete = {
            job.metadata.name
            for job in jobs.items
            if (condition := condition_of(job.status.conditions, "Complete")) and condition.status == "True"
        }
        return tuple(research.name for research in self.scenario.research if research.name not in complete)

    async def observation(self, ledger: Path, *, max_external_gpus: int) -> Observation:
        """Everything that was seen, at the end. Waits for open returns and for the ledger, within bounds."""
        cluster = await self._kube.get(NAMESPACES, "kube-system")
        uid = cluster.metadata.uid if cluster else ""
        recollection = self.recollection
        stream, in_ledger = await self._record(ledger)
        short = self.short_deployments()
        return Observation(
            pods_spilled=len(recollection.spilled),
            spilled_left=self.spilled_left(),
            vanished=tuple(recollection.vanished.values()),
            returned=len(recollection.evictions.keys() & recollection.spilled.keys()),
            deployments_short=short,
            jobs_unfinished=await self.unfinished_jobs(),
            gate_openings=recollection.openings,
            gate_closings=recollection.closings,
            gate_closed_at_end=recollection.gate_open is False,
            evictions=tuple(recollection.evictions.values()),
            successions=tuple(stream.successions),
            owners=recollection.owners,
            returns=stream.returns(),
            intents_before=stream.intents_before(),
            instances=await self._books.lifetimes(uid),
            announced_instances=frozenset(stream.announced),
            ended_instances=frozenset(stream.ended),
            pods_seen=frozenset(recollection.owners),
            max_external_gpus=max_external_gpus,
            stream_gaps=stream.gaps(),
            events_in_stream=stream.events,
            events_in_ledger=in_ledger,
            floor=FLOOR,
        )

    async def _record(self, path: Path) -> tuple[Stream, int]:
        """The stream as it stands, and how many of its events the ledger has once it had the time to catch up.

        Read anew from the beginning: what was heard while the story went on may not stand there any more.
        """
        await _patiently(self._nobody_returns)
        stream = Stream()
        async for recorded in self._bus.read([STREAM_SUBJECTS], since=1):
            stream.take(recorded)
        async with open_ledger(path) as ledger:

            async def caught_up() -> bool:
                return await ledger.count() >= stream.events

            await _patiently(caught_up)
            return stream, sum(event.stream_sequence <= stream.last for event in await ledger.events())

    async def _nobody_returns(self) -> bool:
        return all(one.ends for one in self.stream.returns())

    async def _poll_books(self) -> None:
        while True:
            self.totals = await self._books.totals()
            await asyncio.sleep(1)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.kind is not ChangeKind.DELETED:
            self.recollection.see_node(change.object)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.object.metadata.namespace in STORY_NAMESPACES:
            gone = change.kind is ChangeKind.DELETED
            self.recollection.see_pod(change.object, self._story_pods(), gone=gone)

    def _story_pods(self) -> Iterator[Pod]:
        return (pod for (namespace, _), pod in self._pods.items.items() if namespace in STORY_NAMESPACES)


async def _patiently(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process will do soon, but no longer than it may take."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not await holds() and loop.time() < deadline:  # noqa: ASYNC110 another process decides it
        await asyncio.sleep(0.1)
