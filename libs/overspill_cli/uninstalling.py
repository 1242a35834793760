"""`overspill uninstall`: nothing of ours lives outside any more, and then nothing of ours is left in the cluster.

Order is the promise: gates closed, pods away, absence of every instance proven by complete lists, and only then the
rest. Cut off anywhere, it can be run again. It never ends an instance itself: that is the bridge's work, who knows
which pod each belongs to.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from msgspec import Struct

from overspill_admitter.kueue import KueueWatch
from overspill_bridge.settings import Settings as BridgeSettings
from overspill_cli.clusters import Place, duration_of, reach
from overspill_cli.leading import seats
from overspill_cli.leaving import (
    Remains,
    gate_is_closed,
    has_spilled,
    name_of,
    providers_named,
    remains,
    taints_of_ours,
)
from overspill_cli.operating import CommandError, write_order, write_pauses
from overspill_cli.output import Exit, UsageError
from overspill_cli.surviving import SETTING, Look, look, providers_of
from overspill_decider.service import SWITCH, gate_of
from overspill_events.catalog import PodRef, WorkloadRef
from overspill_events.names import (
    ADMISSION_GATE,
    CONTROL_CONFIG_MAP,
    FIELD_MANAGER_PREFIX,
    PART_OF,
    PART_OF_LABEL,
    SERVICES,
    VIRTUAL_LABEL,
)
from overspill_kube.client import PatchKind
from overspill_kube.effects import Evicted, Gone, TaintsSet, evict, remove_gate, set_suspend, set_taints
from overspill_kube.outcomes import Done, NotFound, Throttled
from overspill_kube.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PODS
from overspill_objects.apps import Deployment
from overspill_objects.coordination import Lease
from overspill_objects.core import Node, Pod
from overspill_providers.protocol import Provider
from overspill_runtime.settings import load
from overspill_service.control import Pause

REASON: Final = "uninstall"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
NODE_LEASES: Final = "kube-node-lease"
LOOK_SECONDS: Final = 1.0
DECIDER_SECONDS: Final = 20.0  # for the decider to follow the order; then the gate is closed without it
HOLDERS_SECONDS: Final = 30.0  # a service that was stopped gives its lease back within its grace period
LOOKS: Final = 2  # complete lists in a row that show nothing, the last begun when none may lack a create any more


class Options(Struct, frozen=True, kw_only=True):
    """What the operator typed."""

    yes: bool
    dry_run: bool
    now: bool
    timeout: str
    provider: tuple[str, ...]
    allowed: tuple[str, ...]


async def uninstall(env: Mapping[str, str], options: Options) -> Exit:
    """Take Overspill out of the cluster. Raises UsageError, and CommandError that names what still lives or stays."""
    seconds = duration_of("--timeout", options.timeout).total_seconds()
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(reach(env, allowed=None if options.dry_run else options.allowed))
        providers = providers_of(env, options.provider)
        for provider in providers:
            stack.push_async_callback(provider.close)
        home = await place.kube.get(NAMESPACES, "kube-system")
        if home is None:
            raise CommandError("namespace kube-system does not exist: this cluster's instances cannot be told apart")
        lag = list_lag_of(env, options.provider)
        leaver = Leaver(place, providers, cluster=home.metadata.uid, options=options, seconds=seconds, list_lag=lag)
        return await leaver.run()


def list_lag_of(env: Mapping[str, str], given: Sequence[str]) -> float:
    """Seconds: the bridge's setting, from the environment or by default. Raises SettingsError."""
    setting = ",".join(given) or env[SETTING]
    return load(BridgeSettings, service="bridge", env={**env, SETTING: setting}).list_lag


class Leaver:
    """One run."""

    def __init__(
        self,
        place: Place,
        providers: Sequence[Provider],
        *,
        cluster: str,
        options: Options,
        seconds: float,
        list_lag: float,
    ) -> None:
        self._place, self._kube, self._clock = place, place.kube, place.kube.clock
        self._providers, self._cluster, self._options = providers, cluster, options
        self._list_lag = list_lag
        self._deadline = self._clock.monotonic() + seconds
        self._ordered: set[str] = set()  # virtual nodes with an order of ours
        self._said = ""

    async def run(self) -> Exit:
        """All steps. Raises CommandError at the first that does not come to its end in time."""
        left, seen = await self._remains(), await self._look()
        if left.is_nothing and seen.proves_absence:
            await self._prove_absence()
            print(
                "nothing of Overspill is left in this cluster or at its providers"
                " but what `kubectl delete -k deploy/` removes"
            )
            return Exit.FINE
        if self._options.dry_run or not self._options.yes:
            self._print_plan(left, seen)
        if self._options.dry_run:
            return Exit.FINE
        if not self._options.yes:
            raise UsageError("nothing was changed: give --yes to do this")
        try:
            await self._leave(left)
        except BaseException:  # interrupted is as good as failed: the orders stand
            back = [*(f"overspill gate auto {name}" for name in sorted(self._ordered)), "overspill resume"]
            self._say(f"its orders stay in force until it is run again, or taken back by: {'; '.join(back)}")
            raise
        return Exit.FINE

    async def _leave(self, left: Remains) -> None:
        await self._close_gates(left.nodes)
        await self._until(self._pods_are_away)
        await self._prove_absence()
        await self._stop_services(left)
        await self._release(await self._remains())
        await self._remove(await self._remains())

    def _print_plan(self, left: Remains, seen: Look) -> None:
        for line in left.lines():
            print(line)
        for one in seen.survivors:
            print(f"wait for the end of instance {one.instance} at {one.provider} (pod {one.pod})")
        for problem in seen.problems:
            print(f"not known: {problem}")

    # --- nothing new, and everything away ---------------------------------------------------------------------------

    async def _close_gates(self, nodes: Sequence[Node]) -> None:
        """By order, for the decider to follow; a cluster whose decider is dead can be left, too."""
        if await self._kube.get(NAMESPACES, self._place.settings.namespace) is not None:
            leaving = Pause(reason=REASON, by=self._place.by, leaving=True)
            pauses = {"bridge": leaving, "admitter": Pause(reason=REASON, by=self._place.by)}
            await write_pauses(self._place, {"decider": None, "evictor": None, **pauses})
        for node in nodes:
            self._ordered.add(node.metadata.name)
            await write_order(self._place, gate_of(node), "closed", until=None, reason=REASON)
        patience = self._clock.monotonic() + DECIDER_SECONDS
        while still_open := [node for node in await self._virtual_nodes() if not gate_is_closed(node)]:
            self._say(f"waiting for the decider to close {_names(still_open)}")
            if self._clock.monotonic() >= patience:
                for node in still_open:
                    await self._close(node)
            await self._clock.sleep(LOOK_SECONDS)
        self._say("every gate is closed")

    async def _close(self, node: Node) -> None:
        self._say(f"no decider closed {node.metadata.name}: closing it without one")
        outcome = await set_taints(self._kube, node.metadata.name, add=(SWITCH,), expect_uid=node.metadata.uid)
        if not isinstance(outcome, TaintsSet):
            raise CommandError(f"node {node.metadata.name}: its gate could not be closed: {outcome}")

    async def _pods_are_away(self) -> str | None:
        """None when no spilled pod is left; otherwise what is waited for."""
        spilled = await self._spilled()
        if not spilled:
            return None
        refused: dict[str, str] = {}
        if self._options.now:
            for pod in spilled:
                if pod.metadata.deletion_timestamp is None and (why := await self._evict(pod)) is not None:
                    refused[pod.metadata.uid] = why
        how = "being evicted" if self._options.now else "coming home as room allows (--now evicts them at once)"
        names = [
            name_of(pod.metadata) + (f" ({refused[pod.metadata.uid]})" if pod.metadata.uid in refused else "")
            for pod in spilled
        ]
        return f"{len(spilled)} pods outside, {how}: {_short(names)}"

    async def _evict(self, pod: Pod) -> str | None:
        ref = PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
        outcome = await evict(self._kube, ref)
        if isinstance(outcome, Throttled):
            await self._clock.sleep(outcome.retry_after)
        return None if isinstance(outcome, Evicted | Gone) else str(outcome)

    async def _prove_absence(self) -> None:
        """From when no pod is outside: what was created for the last one may be missing in lists for a while."""
        looks, all_is_listed = 0, self._clock.monotonic() + self._list_lag

        async def absent() -> str | None:
            nonlocal looks
            begun = self._clock.monotonic()
            seen = await self._look()
            looks = looks + 1 if seen.proves_absence else 0
            if looks >= LOOKS and begun >= all_is_listed:
                return None
            lives = [f"{one.instance} at {one.provider} (pod {one.pod}, {one.state})" for one in seen.survivors]
            told = (
                [f"{len(lives)} instances live: {'; '.join(lives)}; the bridge ends them, is it running?"]
                if lives
                else []
            )
            told += [f"not known: {problem}" for problem in seen.problems]
            if told:
                return "; ".join(told)
            return f"no instance is listed; a list may lack a new one for {self._list_lag:g} s, looking until then"

        await self._until(absent)
        self._say("no instance of this cluster lives at any provider")

    # --- the rest ---------------------------------------------------------------------------------------------------

    async def _stop_services(self, left: Remains) -> None:
        for one in left.services:
            meta = one.metadata
            patch = {"metadata": {"uid": meta.uid}, "spec": {"replicas": 0}}
            outcome = await self._kube.patch(
                DEPLOYMENTS, meta.name, patch, kind=PatchKind.MERGE, namespace=meta.namespace
            )
            if not isinstance(outcome, Done | NotFound):
                raise CommandError(f"deployment {name_of(meta)} was not stopped: {outcome}")

        async def stopped() -> str | None:
            running = [name_of(one.metadata) for one in await self._deployments() if one.status.replicas > 0]
            return f"waiting for {_short(running)} to stop" if running else None

        await self._until(stopped)

    async def _release(self, left: Remains) -> None:
        """Work that waits only for us would wait for ever."""
        for pod in left.gated:
            ref = PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
            self._check(f"gate of pod {name_of(pod.metadata)}", await remove_gate(self._kube, ref, ADMISSION_GATE))
        for job in left.held:
            meta = job.metadata
            work = WorkloadRef(kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid)
            self._check(f"suspension of job {name_of(meta)}", await set_suspend(self._kube, work, False))
        self._say(f"released {len(left.gated)} pods and {len(left.held)} jobs")

    async def _remove(self, left: Remains) -> None:
        for node in left.tainted:
            name, uid = node.metadata.name, node.metadata.uid
            outcome = await set_taints(self._kube, name, remove=taints_of_ours(node), expect_uid=uid)
            if not isinstance(outcome, TaintsSet | NotFound):
                raise CommandError(f"node {name}: our taints were not removed: {outcome}")
        for node in left.nodes:
            name = node.metadata.name
            gone = await self._kube.delete(NODES, name, uid=node.metadata.uid)
            self._check(f"virtual node {name}", gone)
            self._ordered.discard(name)
            self._check(f"lease of {name}", await self._kube.delete(LEASES, name, NODE_LEASES))
        await self._nobody_leads()
        for lease in await self._leases():
            meta = lease.metadata
            gone = await self._kube.delete(LEASES, meta.name, meta.namespace, uid=meta.uid)
            self._check(f"lease {name_of(meta)}", gone)
        gone = await self._kube.delete(CONFIG_MAPS, CONTROL_CONFIG_MAP, self._place.settings.namespace)
        self._check(f"configmap {CONTROL_CONFIG_MAP}", gone)
        print(
            "Overspill has left this cluster; `kubectl delete -k deploy/` removes its namespace, roles and policies;"
            " Kueue's kinds and your queues stay"
        )

    async def _nobody_leads(self) -> None:
        """Whoever still holds a lease would register its node again without the word not to. Raises CommandError."""
        patience = self._clock.monotonic() + HOLDERS_SECONDS
        self._say("looking whether a lease is still renewed")
        while alive := await self._holders():
            holders = _short(alive)
            if self._clock.monotonic() >= patience:
                raise CommandError(
                    f"still running, stop them and run this again: {holders}; until then they are told to stay away"
                )
            self._say(f"waiting for {holders} to stop")
            await self._clock.sleep(LOOK_SECONDS)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _remains(self) -> Remains:
        nodes, pods = (await self._kube.list(NODES)).items, (await self._kube.list(PODS)).items
        self._all_are_given(providers_named(nodes, pods))
        return remains(
            nodes=nodes,
            pods=pods,
            jobs=(await self._kube.list(JOBS)).items,
            services=await self._deployments(),
            leases=await self._leases(),
            kueue_admits=await KueueWatch(self._kube).is_alive(),
        )

    def _all_are_given(self, named: Mapping[str, str]) -> None:
        """Raises UsageError for a provider that nobody could ask."""
        given = {provider.name for provider in self._providers}
        if unknown := [f"{name} (by {where})" for name, where in sorted(named.items()) if name not in given]:
            raise UsageError(
                f"providers that are in use here, but were not given: {_short(unknown)}; what lives there cannot be"
                f" known: give each with --provider NAME=URL?token=TOKEN, or all of them in {SETTING}"
            )

    async def _holders(self) -> list[str]:
        """Who leads, by whatever clock."""
        found = await seats(self._place, thorough=True)
        return sorted({seat.holder for places in found.values() for seat in places if seat.holder})

    async def _leases(self) -> tuple[Lease, ...]:
        """Those by which services lead."""
        found = (await self._kube.list(LEASES, namespace=self._place.settings.namespace)).items
        return tuple(one for one in found if one.metadata.name.startswith(FIELD_MANAGER_PREFIX))

    async def _deployments(self) -> tuple[Deployment, ...]:
        """Of our services. Raises UsageError when they are in another namespace than was said."""
        said = self._place.settings.namespace
        labels = f"{PART_OF_LABEL}={PART_OF},{COMPONENT_LABEL} in ({','.join(SERVICES)})"
        found = (await self._kube.list(DEPLOYMENTS, labels=labels)).items
        if elsewhere := {one.metadata.namespace for one in found} - {said}:
            there = ", ".join(sorted(elsewhere))
            raise UsageError(f"Overspill runs in the namespace {there}, not in {said}: set OVERSPILL_NAMESPACE")
        return found

    async def _virtual_nodes(self) -> tuple[Node, ...]:
        return (await self._kube.list(NODES, labels=f"{VIRTUAL_LABEL}=true")).items

    async def _spilled(self) -> list[Pod]:
        found: list[Pod] = []
        for node in await self._virtual_nodes():
            pods = (await self._kube.list(PODS, fields=f"spec.nodeName={node.metadata.name}")).items
            found += [pod for pod in pods if has_spilled(pod)]
        return found

    async def _look(self) -> Look:
        return await look(self._providers, clock=self._clock, cluster=self._cluster)

    async def _until(self, condition: Callable[[], Awaitable[str | None]]) -> None:
        """Ask again and again; raises CommandError with the last answer when the time is up."""
        while (waits_for := await condition()) is not None:
            if self._clock.monotonic() >= self._deadline:
                raise CommandError(f"not finished within --timeout {self._options.timeout}: {waits_for}")
            self._say(waits_for)
            await self._clock.sleep(LOOK_SECONDS)

    def _say(self, text: str) -> None:
        """Progress, when it changes."""
        if text != self._said:
            self._said = text
            print(text, file=sys.stderr, flush=True)

    @staticmethod
    def _check(what: str, outcome: object) -> None:
        if not isinstance(outcome, Done | NotFound):
            raise CommandError(f"{what} was not removed: {outcome}")


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.metadata.name for node in nodes)


def _short(names: Sequence[str], most: int = 10) -> str:
    """Names in a line; of many the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
