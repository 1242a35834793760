"""Plays a scenario: creates what users would create, when they would, and nothing else.

A plain client of the API server. It must not know Overspill's services: research and inference do not either.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from overspill_demo import objects
from overspill_demo.scenario import Scenario
from overspill_events.names import BASE_TAINT
from overspill_kube.client import Client, PatchKind
from overspill_kube.outcomes import AlreadyExists, Done
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    Resource,
)

KINDS: Final[dict[str, Resource[Any]]] = {
    resource.kind: resource
    for resource in (
        CLUSTER_QUEUES, DEPLOYMENTS, JOBS, LOCAL_QUEUES, NAMESPACES, PDBS, PRIORITY_CLASSES, RESOURCE_FLAVORS,
    )
}  # fmt: skip
LOOK_EVERY_S: Final = 0.2
POLICIES_WITHIN_S: Final = 60.0
AT_ONCE: Final = 4  # creations under way together; users do not wait for each other either


class StoryError(Exception):
    """The API server refused a part of the scenario; the message says which and why."""


class Story:
    """One performance of a scenario."""

    def __init__(
        self, scenario: Scenario, kube: Client, *, home_is_full: Callable[[], bool], note: Callable[[str], None]
    ) -> None:
        self._scenario = scenario
        self._kube = kube
        self._home_is_full = home_is_full
        self._note = note
        self.all_submitted = asyncio.Event()

    async def prepare(self) -> None:
        """Namespaces, priorities, the (held) queue and the budgets, before the clock starts.

        Raises StoryError when a part is refused, or when the admission policies do not do their part.
        """
        await self._create_all([*objects.namespaces(), *objects.priority_classes()])
        await self._until_policies_act()
        await self._create_all(objects.queues(self._scenario, held=True))
        frozen = self._scenario.freeze.deployment if self._scenario.freeze else None
        budgets = [objects.disruption_budget(item, frozen=item.name == frozen) for item in self._scenario.inference]
        await self._create_all(budgets)
        if self._scenario.freeze is not None:
            self._note(f"a change freeze on {frozen}: its budget allows no eviction yet, and must be kept")

    async def play(self) -> None:
        """From the first replica to the last; returns when everything has been asked for."""
        await asyncio.gather(self._research(), self._inference())
        self.all_submitted.set()

    async def lift_freeze(self) -> None:
        """The change freeze ends: the frozen Deployment's budget allows disruptions again."""
        if (freeze := self._scenario.freeze) is None:
            return
        await asyncio.sleep(freeze.lifted_after_closing_seconds)
        inference = next(item for item in self._scenario.inference if item.name == freeze.deployment)
        self._note(f"the change freeze on {inference.name} is lifted")
        await self._patch(
            PDBS, inference.name, objects.INFERENCE_NAMESPACE, {"spec": {"maxUnavailable": inference.max_unavailable}}
        )

    async def _research(self) -> None:
        """The wave: submitted in order while the queue is held, then the queue opens."""
        scenario = self._scenario
        await asyncio.sleep(scenario.research_at)
        self._note(f"{len(scenario.research)} research jobs are being submitted to the held queue")
        pace = (scenario.queue_opens_at - scenario.research_at) / max(1, len(scenario.research))
        started = asyncio.get_running_loop().time()
        for index, research in enumerate(scenario.research):
            await self._create(objects.job(research))
            await _until(started + (index + 1) * pace)
        self._note("the research queue opens")
        await self._patch(CLUSTER_QUEUES, objects.CLUSTER_QUEUE, None, {"spec": {"stopPolicy": "None"}})

    async def _inference(self) -> None:
        """Every Deployment is created at its first scaling and scaled afterwards, all in the order of arrival.

        What comes after the start waits until research has filled home, and is as late as that was.
        """
        started = asyncio.get_running_loop().time()
        steps = sorted(
            (
                (scaling.at, index, scaling.replicas)
                for index, item in enumerate(self._scenario.inference)
                for scaling in item.scalings
            )
        )
        grown = False
        for at, index, replicas in steps:
            await _until(started + at)
            inference = self._scenario.inference[index]
            if at > 0 and not grown:
                grown = True
                while not self._home_is_full():  # noqa: ASYNC110 the condition spans several informers
                    await asyncio.sleep(LOOK_EVERY_S)
                self._note("home is full; inference scales up")
                started = asyncio.get_running_loop().time() - at
            if replicas == inference.scalings[0].replicas:
                await self._create(objects.deployment(inference))
            else:
                await self._patch(
                    DEPLOYMENTS, inference.name, objects.INFERENCE_NAMESPACE, {"spec": {"replicas": replicas}}
                )

    async def _until_policies_act(self) -> None:
        """An API server takes up policies, and a namespace its service account, a moment after they were made."""
        complaint: str | None = None
        try:
            async with asyncio.timeout(POLICIES_WITHIN_S):
                while complaint := await self._without_policies():  # noqa: ASYNC110 another process decides it
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise StoryError(f"{POLICIES_WITHIN_S:g} s after the namespaces were made: {complaint}") from None

    async def _without_policies(self) -> str | None:
        """What a dry run shows to be missing yet."""
        pod = await self._kube.create(PODS, objects.spillable_probe(), dry_run=True)
        job = await self._kube.create(JOBS, objects.queued_probe(), dry_run=True)
        if not isinstance(pod, Done) or not isinstance(job, Done):
            return f"a dry run is refused: {job if isinstance(pod, Done) else pod}"
        if all(toleration.key != BASE_TAINT for toleration in pod.object.spec.tolerations):
            return f"no admission policy gives a spillable pod the toleration of {BASE_TAINT}"
        if not (job.object.spec.suspend and job.object.spec.template.spec.priority_class_name):
            return "no admission policy suspends a queued Job and gives it a priority"
        return None

    async def _create_all(self, bodies: list[objects.Body]) -> None:
        await _few_at_once([self._creation(body) for body in bodies])

    def _creation(self, body: objects.Body) -> Callable[[], Awaitable[None]]:
        return lambda: self._create(body)

    async def _create(self, body: objects.Body) -> None:
        resource: Resource[Any] = KINDS[body["kind"]]
        outcome = await self._kube.create(resource, body, body["metadata"].get("namespace"))
        if not isinstance(outcome, Done | AlreadyExists):
            raise StoryError(f"{body['kind']} {body['metadata']['name']} was refused: {outcome}")

    async def _patch(self, resource: Resource[Any], name: str, namespace: str | None, body: objects.Body) -> None:
        outcome = await self._kube.patch(resource, name, body, namespace=namespace, kind=PatchKind.MERGE)
        if not isinstance(outcome, Done):
            raise StoryError(f"{resource.kind} {name}: {msgspec.json.encode(body).decode()} was refused: {outcome}")


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


async def _few_at_once(actions: list[Callable[[], Awaitable[None]]]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(action: Callable[[], Awaitable[None]]) -> None:
        async with limit:
            await action()

    await asyncio.gather(*(limited(action) for action in actions))
