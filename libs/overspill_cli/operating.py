"""`overspill gate`, `pause` and `resume`: an operator's orders, written into the cluster for the services to follow."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from overspill_bus import BusClosed, BusSettings, BusUnavailable
from overspill_bus import connect as connect_bus
from overspill_cli.clusters import Place, end_of, reach
from overspill_cli.leading import seats, vacancies
from overspill_cli.narrating import narrate
from overspill_cli.output import Exit, Format, UsageError, print_json
from overspill_decider.override import ANNOTATIONS
from overspill_decider.policy import Gate
from overspill_decider.service import gate_of
from overspill_events.catalog import GateDecided
from overspill_events.moments import stamp
from overspill_events.names import (
    CONTROL_CONFIG_MAP,
    GATE_ANNOTATION,
    GATE_BY_ANNOTATION,
    GATE_REASON_ANNOTATION,
    GATE_UNTIL_ANNOTATION,
    LEADING,
    PART_OF,
    PART_OF_LABEL,
    VIRTUAL_LABEL,
)
from overspill_events.subjects import cluster_of, subject_filter
from overspill_kube.client import PatchKind
from overspill_kube.effects import annotate_node
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.outcomes import AlreadyExists, Done, NotFound
from overspill_kube.resources import CONFIG_MAPS, NODES
from overspill_runtime.terminal import tell
from overspill_service.control import PAUSABLE, Pause, entry_of, pause_of


class CommandError(Exception):
    """The cluster did not do what was asked; the message says what it answered."""


class GateState(Struct, frozen=True, kw_only=True):
    """A gate as `overspill gate NODE` shows it. `decision` is the decider's last word, None when nobody can say."""

    node: str
    gate: str
    order: str | None
    complaint: str
    decider: str | None  # its pause
    decision: str | None
    unknown: str  # why there is no decision


async def order_gate(
    env: Mapping[str, str], node: str, wish: str, *, lasting: str | None, reason: str, allowed: Sequence[str]
) -> Exit:
    """Order the gate of a virtual node `open` or `closed`. Raises UsageError, CommandError."""
    async with reach(env, allowed=allowed) as place:
        until = end_of(lasting, now=place.kube.clock.now())
        await write_order(place, await _gate(place, node), wish, until=until, reason=reason)
        end = f"until {stamp(until)}" if until else f"until `overspill gate auto {node}`"
        tell(sys.stdout, f"{node}: ordered {wish} {end}")
        await _say_what_follows(place)
    return Exit.FINE


async def write_order(place: Place, gate: Gate, wish: str, *, until: Any, reason: str) -> None:
    """Put an order on a node in place of the one that is there. Raises CommandError."""
    order = {
        GATE_ANNOTATION: wish,
        GATE_UNTIL_ANNOTATION: stamp(until) if until else None,
        GATE_BY_ANNOTATION: place.by,
        GATE_REASON_ANNOTATION: reason or None,
    }
    outcome = await annotate_node(place.kube, gate.node, order, expect_uid=gate.uid)
    if not isinstance(outcome, Done):
        raise CommandError(f"node {gate.node}: the order was not written: {outcome}")


async def free_gate(env: Mapping[str, str], node: str, *, allowed: Sequence[str]) -> Exit:
    """Take the order back: the gate follows the marks again. Raises UsageError, CommandError."""
    async with reach(env, allowed=allowed) as place:
        gate = await _gate(place, node)
        outcome = await annotate_node(place.kube, node, dict.fromkeys(ANNOTATIONS), expect_uid=gate.uid)
        if not isinstance(outcome, Done):
            raise CommandError(f"node {node}: the order was not taken back: {outcome}")
        tell(sys.stdout, f"{node}: the order is taken back" if gate.order else f"{node}: there was no order")
        await _say_what_follows(place)
    return Exit.FINE


async def show_gate(env: Mapping[str, str], node: str, *, output: Format) -> Exit:
    """State of a gate, the order on it and the decider's last decision. Raises UsageError."""
    async with reach(env) as place:
        gate = await _gate(place, node)
        now = place.kube.clock.now()
        expired = " (expired)" if gate.override is not None and not gate.override.holds(now) else ""
        pause = (await read_pauses(place)).get("decider")
        decision, unknown = await _last_decision(place, node)
    state = GateState(
        node=node,
        gate="open" if gate.is_open else "closed",
        order=None if gate.override is None else f"{gate.override}{expired}",
        complaint=gate.complaint,
        decider=None if pause is None else str(pause),
        decision=decision,
        unknown=unknown,
    )
    if output is Format.json:
        print_json(msgspec.to_builtins(state))
    else:
        tell(sys.stdout, f"The gate of {node} is {state.gate}.")
        tell(sys.stdout, f"  order: {state.order or 'none, it follows the marks'}")
        if state.complaint:
            tell(sys.stdout, f"  order ignored: {state.complaint}")
        if state.decider:
            tell(sys.stdout, f"  decider: {state.decider}")
        tell(sys.stdout, f"  {state.decision or f'why is not known: {state.unknown}'}")
    return Exit.FINE


async def pause(
    env: Mapping[str, str], services: Sequence[str], *, lasting: str | None, reason: str, allowed: Sequence[str]
) -> Exit:
    """Hold services still; all that have effects when none is named. Exit code 1 when one is not known to be led in
    the namespace, for then nobody is known to be held. Raises UsageError, CommandError.
    """
    async with reach(env, allowed=allowed) as place:
        until = end_of(lasting, now=place.kube.clock.now())
        chosen = tuple(services) or PAUSABLE
        await write_pauses(place, dict.fromkeys(chosen, Pause(until=until, reason=reason, by=place.by)))
        end = f"until {stamp(until)}" if until else "until `overspill resume`"
        unled = await _unled(place, chosen)
        if held := [service for service in chosen if service not in unled]:
            tell(sys.stdout, f"{', '.join(held)}: paused {end}; work that runs goes on")
        if unled:
            whom = f"for whoever comes to lead in the namespace {place.settings.namespace}"
            tell(sys.stdout, f"{', '.join(unled)}: a pause is written {whom}, {end}")
    return Exit.BROKEN if unled else Exit.FINE


async def resume(env: Mapping[str, str], services: Sequence[str], *, allowed: Sequence[str]) -> Exit:
    """Let services go on; all when none is named. Raises UsageError, CommandError."""
    async with reach(env, allowed=allowed) as place:
        chosen = tuple(services) or PAUSABLE
        await write_pauses(place, dict.fromkeys(chosen))
        tell(sys.stdout, f"{', '.join(chosen)}: no longer paused")
        await _unled(place, chosen)
    return Exit.FINE


async def write_pauses(place: Place, pauses: Mapping[str, Pause | None]) -> None:
    """Set the entries of services, or remove those whose pause is None. Raises CommandError."""
    data = {service: None if one is None else entry_of(one) for service, one in pauses.items()}
    namespace = place.settings.namespace
    for _ in range(2):  # somebody may create it between our two steps
        outcome = await place.kube.patch(
            CONFIG_MAPS, CONTROL_CONFIG_MAP, {"data": data}, kind=PatchKind.MERGE, namespace=namespace
        )
        written = {service: entry for service, entry in data.items() if entry is not None}
        if isinstance(outcome, NotFound) and not written:
            return
        if isinstance(outcome, NotFound):
            body = {"metadata": {"name": CONTROL_CONFIG_MAP, "labels": {PART_OF_LABEL: PART_OF}}, "data": written}
            outcome = await place.kube.create(CONFIG_MAPS, body, namespace)
        if isinstance(outcome, Done):
            return
        if not isinstance(outcome, AlreadyExists):
            break
    raise CommandError(f"configmap {namespace}/{CONTROL_CONFIG_MAP} was not written: {outcome}")


async def read_pauses(place: Place) -> dict[str, Pause]:
    """The pauses that hold now, by service."""
    found = await place.kube.get(CONFIG_MAPS, CONTROL_CONFIG_MAP, place.settings.namespace)
    now = place.kube.clock.now()
    pauses = {service: pause_of(found.data if found is not None else {}, service, now=now) for service in PAUSABLE}
    return {service: one for service, one in pauses.items() if one is not None}


async def _gate(place: Place, name: str) -> Gate:
    virtual = {one.metadata.name: one for one in (await place.kube.list(NODES, labels=f"{VIRTUAL_LABEL}=true")).items}
    if name in virtual:
        return gate_of(virtual[name])
    raise UsageError(f"{name!r} is no virtual node; virtual nodes: {', '.join(sorted(virtual)) or 'there is none'}")


async def _say_what_follows(place: Place) -> None:
    """The order stands; whether it moves the gate now is the decider's matter."""
    unled = await _unled(place, ("decider",))
    if (paused := (await read_pauses(place)).get("decider")) is not None:
        tell(sys.stdout, f"the decider is {paused}: the gate stays as it is until `overspill resume decider`")
    elif not unled:
        tell(sys.stdout, "the decider follows in its next round")


async def _unled(place: Place, services: Sequence[str]) -> list[str]:
    """Which of them are not known to be led, each with why on stderr."""
    asked = [service for service in services if service in LEADING]
    try:
        vacant = vacancies(await seats(place, asked))
    except (KubeError, KubeUnavailable) as error:
        tell(sys.stderr, f"whether a {', '.join(asked)} leads is not known: {error}")
        return asked
    for service, why in vacant.items():
        tell(sys.stderr, f"no {service} leads in the namespace {place.settings.namespace}: {why}")
    return list(vacant)


async def _last_decision(place: Place, node: str) -> tuple[str | None, str]:
    """The decider's last word on the node in one line; or None and why there is none."""
    settings = BusSettings(
        cluster=place.settings.cluster,
        service="operator",
        nats_url=place.settings.nats_url,
        credentials_file=place.settings.nats_credentials,
    )
    try:
        async with connect_bus(settings, clock=place.kube.clock, wait=True) as bus:
            last = [one async for one in bus.read([_decisions(node, settings.cluster)], last_per_subject=True)]
            others = [] if last else [one async for one in bus.read([_decisions(node)], last_per_subject=True)]
    except (BusUnavailable, BusClosed) as error:
        return None, f"NATS at {settings.nats_url.rsplit('@', 1)[-1]}: {error}"
    if not last:
        return None, no_decision(settings.cluster, sorted({cluster_of(one.envelope.subject) for one in others}))
    if last[-1].event is None:
        return None, "the decider's last word about it is of another version"
    return f"{stamp(last[-1].envelope.time)} {narrate(last[-1].event)}", ""


def no_decision(cluster: str, elsewhere: Sequence[str]) -> str:
    """Why there is none about a node: `elsewhere` are names of clusters with a decision about a node called so."""
    nothing = f"no decision about it is on record under the cluster's name {cluster!r} (OVERSPILL_CLUSTER)"
    if not elsewhere:
        return f"{nothing}, nor under another; is the decider running?"
    there = ", ".join(elsewhere)
    return f"{nothing}, but there is under {there}: set OVERSPILL_CLUSTER={elsewhere[0]} if that is this cluster"


def _decisions(node: str, cluster: str | None = None) -> str:
    return subject_filter(GateDecided, cluster=cluster, key=(node,))
