"""`overspill doctor`: looks at all that Overspill needs and says what to do about what is missing. Changes nothing."""

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from overspill_bus import ApiError, Bus, BusClosed, BusSettings, BusUnavailable
from overspill_bus import connect as connect_bus
from overspill_cli.clusters import Place
from overspill_cli.findings import Finding, Health
from overspill_cli.leading import Seat, seats, vacancies
from overspill_cli.operating import read_pauses
from overspill_cli.output import Exit, Format, print_json, table
from overspill_cli.policies import limits_finding, policies_finding
from overspill_decider.override import Malformed, read_override
from overspill_events import catalog, names
from overspill_events.names import LEADING, SERVICES
from overspill_events.subjects import subject_filter
from overspill_kube.client import connect as connect_kube
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.resources import CLUSTER_QUEUES, DEPLOYMENTS, KUEUE_GROUP, KUEUE_VERSIONS, NODES
from overspill_kube.settings import KubeSettings
from overspill_objects.apps import Deployment
from overspill_objects.core import Node
from overspill_objects.meta import condition_of
from overspill_recorder.ledger import open_ledger
from overspill_recorder.schema import LedgerError
from overspill_runtime.clock import Clock, SystemClock
from overspill_runtime.settings import CommonSettings, SettingsError, load, without_passwords

SILENT_AFTER: Final = timedelta(minutes=5)


async def examine(env: Mapping[str, str], *, ledger: Path, output: Format) -> Exit:
    """Print all findings; exit code 1 when one is a problem."""
    findings = [finding async for finding in _findings(env, ledger)]
    if output is Format.json:
        print_json({"findings": msgspec.to_builtins(findings)})
    else:
        rows = ((f.what, f.health, f.detail, f.advice) for f in findings)
        table(("WHAT", "HEALTH", "DETAIL", "NEXT"), rows, with_next_step=True)
    return Exit.BROKEN if any(finding.health is Health.PROBLEM for finding in findings) else Exit.FINE


async def _findings(env: Mapping[str, str], ledger: Path) -> AsyncIterator[Finding]:
    for service in SERVICES:
        yield settings_of(service, env)
    try:
        common = load(CommonSettings, service="doctor", env=env)
    except SettingsError:
        return  # said above, by every service
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        settings = BusSettings(
            cluster=common.cluster,
            service="doctor",
            nats_url=common.nats_url,
            credentials_file=common.nats_credentials,
        )
        try:
            bus = await stack.enter_async_context(connect_bus(settings, clock=clock, wait=True))
        except (BusUnavailable, BusClosed) as error:
            where = without_passwords(common.nats_url)
            yield _problem("NATS", str(error), f"is nats-server at OVERSPILL_NATS_URL={where}?")
        else:
            async for finding in bus_findings(bus, clock, cluster=common.cluster):
                yield finding
    async for finding in _cluster(common):
        yield finding
    yield await ledger_finding(ledger)


def settings_of(service: str, env: Mapping[str, str]) -> Finding:
    """Whether a service would accept its settings."""
    settings_type = importlib.import_module(f"overspill_{service}.settings").Settings
    try:
        load(settings_type, service=service, env=env)
    except SettingsError as error:
        return _problem(f"settings of {service}", "; ".join(str(error).splitlines()), "set what is named")
    return Finding(what=f"settings of {service}", health=Health.OK, detail="accepted")


async def bus_findings(bus: Bus, clock: Clock, *, cluster: str) -> AsyncIterator[Finding]:
    """The stream, and when each source of this cluster was last heard."""
    try:
        state = (await bus.stream_info()).state
    except (ApiError, BusUnavailable) as error:
        advice = "a service makes it, in the cluster the Job overspill-topology: does it run? is JetStream on (-js)?"
        yield _problem("stream EVENTS", str(error), advice)
        return
    yield Finding(what="stream EVENTS", health=Health.OK, detail=f"{state.messages} events, {state.bytes:,} bytes")
    dead = [letter async for letter in bus.dead_letters()]
    if dead:
        detail = f"{len(dead)} dead letters, the last: {dead[-1].reason} {dead[-1].detail}"
        yield Finding(what="dead letters", health=Health.WARNING, detail=detail, advice="look at them in stream DLQ")
    for event_type, advice in (
        (catalog.CapacitySampled, "is the sampler running? without samples gates stay as they are"),
        (catalog.ProviderSampled, "is the bridge running? without stock no gate opens"),
    ):
        yield await _heard(bus, clock, event_type, advice, cluster=cluster)


async def _heard(bus: Bus, clock: Clock, event_type: type[catalog.Event], advice: str, *, cluster: str) -> Finding:
    name, last = event_type.spec.name, None
    async for recorded in bus.read([subject_filter(event_type, cluster=cluster)], last_per_subject=True):
        last = recorded.envelope.time if last is None else max(last, recorded.envelope.time)
    if last is None:
        detail = f"never published under the cluster's name {cluster!r} (OVERSPILL_CLUSTER)"
        return Finding(what=name, health=Health.WARNING, detail=detail, advice=advice)
    age = clock.now() - last
    health = Health.OK if age < SILENT_AFTER else Health.WARNING
    return Finding(
        what=name,
        health=health,
        detail=f"last {age.total_seconds():.0f} s ago",
        advice=advice if health is not Health.OK else "",
    )


async def _cluster(common: CommonSettings) -> AsyncIterator[Finding]:
    try:
        async with connect_kube(KubeSettings(kubeconfig=common.kubeconfig, context=common.context)) as kube:
            place = Place(kube=kube, settings=common, by="")
            for examination in (_version, _services, _queue_kinds, _nodes, _pauses):
                async for finding in _guarded(place, examination):
                    yield finding
    except ConfigError as error:
        yield _problem("kubeconfig", str(error), "set OVERSPILL_KUBECONFIG or KUBECONFIG")


async def _guarded(place: Place, examination: Callable[[Place], Awaitable[list[Finding]]]) -> AsyncIterator[Finding]:
    try:
        findings = await examination(place)
    except (KubeUnavailable, KubeError) as error:
        findings = [_problem("API server", str(error), "is it reachable, and may these credentials read that?")]
    except msgspec.DecodeError as error:
        findings = [_problem("API server", f"its answer is not understood: {error}", "is it an API server?")]
    for finding in findings:
        yield finding


class _Version(Struct):
    git_version: str = msgspec.field(name="gitVersion", default="unknown")


async def _version(place: Place) -> list[Finding]:
    status, body = await place.kube.raw("GET", "/version")
    if status != 200:  # noqa: PLR2004
        return [_problem("API server", f"/version answers {status}", "check address and credentials")]
    version = msgspec.json.decode(body, type=_Version).git_version
    found = Finding(what="API server", health=Health.OK, detail=version)
    return [
        found,
        await policies_finding(place.kube, version=version),
        await limits_finding(place.kube, version=version),
    ]


async def _services(place: Place) -> list[Finding]:
    """Who leads, and which Deployments run them. Where there is none of ours services run in some other way."""
    namespace = place.settings.namespace
    labels = f"{names.PART_OF_LABEL}={names.PART_OF}"
    deployments = (await place.kube.list(DEPLOYMENTS, namespace=namespace, labels=labels)).items
    by_name = {one.metadata.name: one for one in deployments}
    found = await seats(place)
    return [
        finding
        for service in SERVICES
        if (finding := service_finding(service, found.get(service, ()), by_name, namespace=namespace)) is not None
    ]


def service_finding(
    service: str, places: Sequence[Seat], deployments: Mapping[str, Deployment], *, namespace: str
) -> Finding | None:
    """Whether a service leads, and whether its Deployment runs; `deployments` are all of ours.

    None for one that nothing is known about: it needs no lease, and there are no Deployments.
    """
    what, name = f"service {service}", f"{names.FIELD_MANAGER_PREFIX}{service}"
    idle, advice = _idle(deployments.get(name), name, namespace) if deployments else ("", "")
    if service not in LEADING:
        if not deployments:
            return None
        detail = idle or f"Deployment {name} runs"
        return Finding(what=what, health=Health.WARNING if idle else Health.OK, detail=detail, advice=advice)
    vacant = vacancies({service: places}).get(service)
    if vacant is None:
        detail = "; ".join(
            f"{seat.holder} leads" + (f" ({seat.believed})" if seat.believed else "")
            for seat in places
            if not seat.vacancy
        )
        health = Health.WARNING if idle else Health.OK
        return Finding(what=what, health=health, detail=f"{detail}, but {idle}" if idle else detail, advice=advice)
    detail = f"nobody leads: {vacant}" + (f"; {idle}" if idle else "")
    never = not deployments and not any(seat.was_led for seat in places)
    advice = advice or f"does it run? if elsewhere than in the namespace {namespace}, set OVERSPILL_NAMESPACE"
    if deployments and not idle:
        advice = f"kubectl -n {namespace} logs deployment/{name}"
    return Finding(what=what, health=Health.WARNING if never else Health.PROBLEM, detail=detail, advice=advice)


def _idle(deployment: Deployment | None, name: str, namespace: str) -> tuple[str, str]:
    """Why a Deployment runs nothing, and what to do; empty when it does."""
    if deployment is None:
        return f"there is no Deployment {name}", "kubectl apply -k deploy/"
    if deployment.spec.replicas == 0:
        scale = f"kubectl -n {namespace} scale deployment {name} --replicas=1"
        return f"Deployment {name} is scaled to 0", scale
    if deployment.status.ready_replicas == 0:
        look = f"kubectl -n {namespace} describe deployment {name}"
        return f"Deployment {name} has no ready replica of {deployment.spec.replicas}", look
    return "", ""


async def _queue_kinds(place: Place) -> list[Finding]:
    what = "queue kinds"
    served = await place.kube.served(CLUSTER_QUEUES, *KUEUE_VERSIONS)
    if served is not None:
        return [Finding(what=what, health=Health.OK, detail=served.api_version)]
    detail = f"{KUEUE_GROUP} is not served, so nothing queued is admitted"
    advice = "the Job overspill-crds of deploy/ defines them, or Kueue does"
    return [Finding(what=what, health=Health.WARNING, detail=detail, advice=advice)]


async def _pauses(place: Place) -> list[Finding]:
    pauses = await read_pauses(place)
    return [
        Finding(what=service, health=Health.WARNING, detail=str(pause), advice=f"overspill resume {service}")
        for service, pause in pauses.items()
    ]


async def _nodes(place: Place) -> list[Finding]:
    virtual = (await place.kube.list(NODES, labels=f"{names.VIRTUAL_LABEL}=true")).items
    if not virtual:
        return [
            Finding(
                what="virtual nodes",
                health=Health.WARNING,
                detail="there is none",
                advice="is the bridge running? nothing can overflow without one",
            )
        ]
    return [node_finding(node) for node in virtual]


def node_finding(node: Node) -> Finding:
    """Readiness, gate and taints of a virtual node."""
    name, keys = f"virtual node {node.metadata.name}", {taint.key for taint in node.spec.taints}
    ready = condition_of(node.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return _problem(name, "not Ready", "is its bridge running?")
    if missing := {names.BASE_TAINT, names.PREFERENCE_TAINT} - keys:
        detail = f"taints missing: {', '.join(sorted(missing))}"
        return _problem(name, detail, "the bridge restores them; is it running and allowed to patch nodes?")
    gate = "closed" if names.SWITCH_TAINT in keys else "open"
    match read_override(node.metadata.annotations):
        case Malformed(problem=problem):
            advice = f"overspill gate auto {node.metadata.name}, or write it anew"
            return Finding(what=name, health=Health.WARNING, detail=f"order ignored: {problem}", advice=advice)
        case None:
            return Finding(what=name, health=Health.OK, detail=f"Ready, gate {gate}")
        case order:
            return Finding(what=name, health=Health.OK, detail=f"Ready, gate {gate}, ordered {order}")


async def ledger_finding(path: Path) -> Finding:
    """Whether the ledger can be read and is whole."""
    try:
        async with open_ledger(path) as ledger:
            count, gaps = await ledger.count(), await ledger.gaps()
    except LedgerError as error:
        return Finding(what="ledger", health=Health.WARNING, detail=str(error), advice="give --ledger PATH")
    if gaps:
        lost = sum(gap.last - gap.first + 1 for gap in gaps)
        return Finding(
            what="ledger", health=Health.WARNING, detail=f"{count} events, {lost} lost in {len(gaps)} gaps", advice=""
        )
    return Finding(what="ledger", health=Health.OK, detail=f"{count} events, no gaps")


def _problem(what: str, detail: str, advice: str) -> Finding:
    return Finding(what=what, health=Health.PROBLEM, detail=detail, advice=advice)
