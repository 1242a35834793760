"""Getting an instance for a pod: the cheapest offering first, the next when it refuses, all inside one pod.

Intent before effect: the request is on record before a provider is asked. An answer that leaves the outcome open is
never followed by another create; it is for the lists to say what became of it.
"""

import asyncio
from typing import Any

import msgspec

from overspill_bridge.book import key_of
from overspill_bridge.environment import Environment, expand_arguments, resolve, sources_of
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.offers import NoOffer, Offer, choose
from overspill_bridge.policy import Acquire, Defer, Wait
from overspill_bridge.record import Record
from overspill_bridge.sighting import Flight
from overspill_bridge.sources import SourceReader
from overspill_bridge.support import has_probes
from overspill_bridge.wishes import Problem
from overspill_bridge.world import World, ref_of
from overspill_events.catalog import InstanceCreated, InstanceRequested
from overspill_events.reasons import SpillReason
from overspill_objects.core import Pod
from overspill_providers.errors import ErrorKind, ProviderError
from overspill_providers.protocol import Created, CreateRequest, Instance, InstanceState
from overspill_runtime.settings import Mode


class Acquired(msgspec.Struct, frozen=True):
    """The pod has an instance on its way, or its pod changed meanwhile: look at it again at once."""


class Creator:
    """Creates instances, each provider's calls bounded on their own."""

    def __init__(
        self, world: World, *, record: Record, sources: SourceReader, metrics: BridgeMetrics, log: Any
    ) -> None:
        self._world = world
        self._record = record
        self._sources = sources
        self._metrics = metrics
        self._log = log
        width = world.settings.create_concurrency
        self._slots = {name: asyncio.Semaphore(width) for name in world.providers}

    async def acquire(self, pod: Pod, decision: Acquire) -> Acquired | Defer | Wait:
        """Try offerings until one accepts. Raises KubeUnavailable (references cannot be read) or RightInDoubt."""
        environment = await self._environment(pod)
        if isinstance(environment, Problem):
            return Defer(reason=environment.reason, detail=environment.detail)
        if environment.skipped:
            names = ", ".join(environment.skipped)
            await self._record.note(pod, "InvalidEnvironmentVariableNames", f"left out: {names}")
        refused: list[str] = []
        while True:
            uid = pod.metadata.uid
            choice = choose(decision.wish, self._world.markets(), gpus_left=self._world.gpus_left())
            if isinstance(choice, NoOffer):
                return Defer(reason=choice.reason, detail=choice.detail, tried=(*refused, *choice.tried))
            if self._world.settings.mode is Mode.OBSERVE:
                price = choice.offering.price_per_hour
                detail = f"would create {choice.provider}/{choice.offering.id} at ${price:g}/h"
                return Defer(reason=SpillReason.OBSERVING, detail=detail)
            # No await between the choice and this line: the GPUs that were counted are taken.
            self._world.book.asked(uid, self._flight(choice))
            outcome = await self._create(pod, choice, environment)
            if isinstance(outcome, Acquired) and has_probes(pod):
                await self._record.note(pod, "ProbesNotRun", "probes are not run outside: Ready follows the provider")
            if not isinstance(outcome, str):
                return outcome
            refused.append(f"{choice.provider}/{choice.offering.id}: {outcome}")

    async def _create(self, pod: Pod, choice: Offer, environment: Environment) -> Acquired | Defer | Wait | str:
        """One attempt; a text is a refusal after which another offering may be tried."""
        world, uid, name = self._world, pod.metadata.uid, choice.provider
        settled = False
        try:
            async with self._slots[name]:
                current = world.pods.get(uid)
                if current is None or current.metadata.deletion_timestamp is not None:
                    return Acquired()  # it has gone while we waited for our turn
                if world.why_paused() is not None:
                    return Acquired()  # looked at again at once, and then told so
                await self._record.intend(self._requested(pod, choice), uid)
                world.claim_right()
                settled = True  # from here on only the provider's answer settles it
                created = await world.providers[name].create(self._request(pod, choice, environment))
        except ProviderError as error:
            return self._refused(pod, choice, error)
        except Exception:
            if settled:  # a provider that breaks its promise has still been asked
                world.book.left_open(uid, now=world.clock.monotonic())
            raise
        finally:
            if not settled:
                world.book.refused(uid)
        self._created(pod, choice, created)
        return Acquired()

    def _created(self, pod: Pod, choice: Offer, created: Created) -> None:
        world, uid, offering = self._world, pod.metadata.uid, choice.offering
        instance = Instance(
            id=created.instance_id,
            key=key_of(uid),
            state=InstanceState.PROVISIONING if created.committed else InstanceState.QUEUED,
            offering=offering.id,
            gpus=offering.gpus,
            price_per_hour=offering.price_per_hour,
            created_at=world.clock.now(),
            tags=self._tags(pod),
        )
        world.book.created(uid, provider=choice.provider, instance=instance, now=world.clock.monotonic())
        world.desks[choice.provider].took(offering.id)
        world.attempts.pop(uid, None)
        self._metrics.calls.labels(choice.provider, "create", "ok").inc()
        self._record.tell(
            InstanceCreated(
                key=key_of(uid),
                pod=ref_of(pod),
                provider=choice.provider,
                instance=instance.id,
                offering=offering.id,
                price_per_hour=offering.price_per_hour,
                committed=created.committed,
            ),
            uid,
        )

    def _refused(self, pod: Pod, choice: Offer, error: ProviderError) -> Defer | Wait | str:
        world, uid, now = self._world, pod.metadata.uid, self._world.clock.monotonic()
        self._metrics.calls.labels(choice.provider, "create", error.kind.value).inc()
        self._log.info("create-refused", provider=choice.provider, offering=choice.offering.id, error=str(error))
        if error.kind is ErrorKind.UNKNOWN:
            world.book.left_open(uid, now=now)
            detail = f"{choice.provider} did not say whether {choice.offering.id} was created ({error.message})"
            return Wait(reason=SpillReason.AMBIGUOUS, detail=detail)
        world.book.refused(uid)
        if world.desks[choice.provider].refused(choice.offering.id, error, now=now) is None:
            return Defer(reason=SpillReason.UNSUPPORTED, detail=f"{choice.provider}: {error.message}")
        return error.kind.value

    async def _environment(self, pod: Pod) -> Environment | Problem:
        sources = sources_of(pod)
        if isinstance(sources, Problem):
            return sources
        values = await self._sources.read(pod.metadata.namespace, sources)
        return resolve(pod, pod.spec.containers[0], values)

    def _flight(self, choice: Offer) -> Flight:
        return Flight(
            provider=choice.provider,
            offering=choice.offering.id,
            gpus=choice.offering.gpus,
            since=self._world.clock.monotonic(),
        )

    def _requested(self, pod: Pod, choice: Offer) -> InstanceRequested:
        uid = pod.metadata.uid
        attempts = self._world.attempts
        attempts[uid] = attempts.get(uid, 0) + 1
        return InstanceRequested(
            key=key_of(uid),
            pod=ref_of(pod),
            node=self._world.identity.node,
            provider=choice.provider,
            offering=choice.offering.id,
            gpus=choice.offering.gpus,
            price_per_hour=choice.offering.price_per_hour,
            attempt=attempts[uid],
        )

    def _request(self, pod: Pod, choice: Offer, environment: Environment) -> CreateRequest:
        container = pod.spec.containers[0]
        return CreateRequest(
            key=key_of(pod.metadata.uid),
            offering=choice.offering.id,
            image=container.image,
            tags=self._tags(pod),
            command=expand_arguments(container.command, environment.variables),
            args=expand_arguments(container.args, environment.variables),
            env=environment.variables,
            ports=tuple(port.container_port for port in container.ports),
        )

    def _tags(self, pod: Pod) -> dict[str, str]:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return self._world.identity.tags(pod_uid=pod.metadata.uid, pod_name=name)
