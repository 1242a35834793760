"""One plain sentence per event, with the numbers that led to it.

Pure: it gets payloads and returns text. An event that it has no sentence for is shown with its fields, so that an event
of tomorrow is never hidden.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from overspill_events import catalog
from overspill_events.catalog import Event, PodRef
from overspill_events.moments import stamp
from overspill_events.reasons import HoldReason

BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
OF_BYTES: Final = ("memory", "storage", "ephemeral-storage")  # and hugepages-*

# In which unit a hold reason has its figures; the others say theirs in the detail or have none.
HELD: Final[Mapping[HoldReason, str]] = {
    HoldReason.GATE_SETTLING: "the gate has been closed for {available} s, {needed} s are waited for",
    HoldReason.TOO_YOUNG: "it has run for {available} s, {needed} s are the least",
    HoldReason.OWNER_BACKOFF: "its owner has rested for {available} s of {needed} s",
    HoldReason.CYCLE_LIMIT: "its turn has not come, at most {needed} return in a cycle",
    HoldReason.OWNER_IN_FLIGHT: "{available} pods of its owner are leaving, at most {needed} at a time",
    HoldReason.PDB: "needs {needed} disruption, allowed {available}",
    HoldReason.AT_FLOOR: "needs {needed} ready replicas, available {available}",
    HoldReason.NO_HOME_FIT: "needs {needed} GPU(s), the largest block free at home {available}",
    HoldReason.WAITING_POD_FIRST: "needs {needed} GPU(s), the largest block free at home {available}",
}


def narrate(event: Event) -> str:
    """What happened, in one line."""
    sentence = SENTENCES.get(type(event))
    return sentence(event) if sentence else plain(event)


def plain(event: Event) -> str:
    """The event's fields as they are."""
    fields = msgspec.to_builtins(event)
    return ", ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, "", [], {}))


def pod_name(pod: PodRef) -> str:
    """namespace/name."""
    return f"{pod.namespace}/{pod.name}"


def number(value: float | None, unit: str = "") -> str:
    """A figure for people; what is not known is said to be unknown, never zero."""
    return "unknown" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".") + unit


def amount(resource: str, value: float | None) -> str:
    """A figure of a resource: bytes as Gi, Mi, …, anything else as it is."""
    name = resource.rpartition(".")[2]  # requests.memory of a ResourceQuota
    if value is not None and (name in OF_BYTES or name.startswith("hugepages-")):
        for power, unit in zip(range(len(BINARY), 0, -1), BINARY, strict=True):
            if abs(value) >= 1024**power:
                return number(value / 1024**power, unit)
    return number(value)


def _tail(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _reading(reading: catalog.Reading) -> str:
    if reading.unknown is not None:
        return f"{reading.source}: unknown, {reading.unknown}{_tail(reading.detail)}"
    parts = [f"{number(reading.free)} free"]
    parts += [f"of {number(reading.total)}"] if reading.total is not None else []
    parts += [f"largest block {reading.largest_block}"] if reading.largest_block is not None else []
    parts += [f"{reading.waiting_gpus} waited for"] if reading.waiting_gpus else []
    parts += [f"{reading.stuck_pods} pods stuck"] if reading.stuck_pods else []
    return f"{reading.source}: " + ", ".join(parts)


def marks(decided: catalog.GateDecided) -> str:
    """The figures behind a gate decision."""
    text = f"free GPUs averaged {number(decided.average)} over {number(decided.window_seconds)} s"
    text += (
        f" ({decided.samples} samples of the {decided.source})" if decided.source else f" ({decided.samples} samples)"
    )
    text += f"; opens at {number(decided.low_mark)} or less, closes at {number(decided.high_mark)} or more"
    if decided.hold_seconds is not None:
        text += f", held for {number(decided.hold_seconds)} s"
    if decided.cluster_average is not None and decided.source != "cluster":
        text += f"; the cluster itself counts {number(decided.cluster_average)}"
    if decided.unsettled_returns:
        text += f"; {decided.unsettled_returns} returns unsettled"
    return text


def _quota(uses: tuple[catalog.QuotaUse, ...]) -> str:
    return "; ".join(
        f"{use.resource} in {use.flavor}: asks {amount(use.resource, use.asked)}, "
        f"{amount(use.resource, use.used)} of {amount(use.resource, use.nominal)} used"
        for use in uses
    )


def _intended(e: catalog.ReturnIntended) -> str:
    text = f"{pod_name(e.pod)} is to come home from {e.node}: {e.home_node} has room for its {e.gpus} GPU(s)"
    text += f" ({e.home_free_gpus} free there)" if e.home_free_gpus is not None else ""
    if e.ready_replicas is not None:
        text += f"; {e.ready_replicas} replicas ready, floor {e.floor}"
    return text + f"; room booked until {stamp(e.expires_at)}"


def _refused(e: catalog.EvictionRefused) -> str:
    text = f"eviction of {pod_name(e.pod)} refused: {e.reason}"
    if e.pdb:
        text += (
            f"; PodDisruptionBudget {e.pdb} allows {number(e.disruptions_allowed)} disruptions "
            f"({number(e.current_healthy)} healthy, {number(e.desired_healthy)} needed)"
        )
    return text + _tail(e.message)


def _settled(e: catalog.ReturnSettled) -> str:
    where = f" on {e.node}" if e.node else ""
    successor = f" its successor {pod_name(e.successor)} is" if e.successor else ""
    return f"return of {pod_name(e.pod)} settled:{successor} {e.place}{where}{_tail(e.detail)}"


def _held(e: catalog.PodHeld) -> str:
    text = f"{pod_name(e.pod)} stays on {e.node}: {e.reason}"
    if e.needed is not None:
        # The detail of a quota's hold ends with the resource.
        resource = e.detail.rpartition(" ")[2] if e.reason is HoldReason.QUOTA else ""
        figures = HELD.get(e.reason, "needs {needed}, available {available}")
        text += ", " + figures.format(needed=amount(resource, e.needed), available=amount(resource, e.available))
    return text + _tail(e.detail)


def _deferred(e: catalog.AdmissionDeferred) -> str:
    text = f"{_workload(e.workload)} waits: {e.reason}"
    text += f" in {e.cluster_queue}" if e.cluster_queue else ""
    text += f"; {_quota(e.quota)}" if e.quota else ""
    text += f"; room at home {number(e.home_room)}" if e.home_room is not None else ""
    return text + _tail(e.detail)


def _admitted(e: catalog.WorkloadAdmitted) -> str:
    text = f"{_workload(e.workload)} admitted by {e.cluster_queue} with flavor {e.flavor}"
    text += f" after {number(e.waited_seconds)} s" if e.waited_seconds is not None else ""
    text += f"; {_quota(e.quota)}" if e.quota else ""
    return text + (f"; room at home {number(e.home_room)}" if e.home_room is not None else "")


def _terminated(e: catalog.InstanceTerminated) -> str:
    text = f"instance {e.instance} of {pod_name(e.pod)} is gone from {e.provider}: {e.end}"
    return text + (f"; {number(e.hours)} h, ${number(e.cost)}" if e.cost is not None else "")


def _failed(e: catalog.InstanceFailed) -> str:
    code = f", exit code {e.exit_code}" if e.exit_code is not None else ""
    return f"instance {e.instance} of {pod_name(e.pod)} at {e.provider} ended: {e.end}{code}{_tail(e.message)}"


def _gate(verb: str) -> Callable[[Any], str]:
    return lambda e: f"gate of {e.node} {verb}: {e.reason}, {number(e.average)} GPUs free on average{_tail(e.detail)}"


def _drift(e: catalog.DriftDetected) -> str:
    figures = (
        f"query says {number(e.query_average)}, cluster {number(e.cluster_average)}, {number(e.stuck_pods)} pods stuck"
    )
    return f"drift at {e.node}: {e.kind}; {figures}{_tail(e.detail)}"


def _evicted(e: catalog.PodEvicted) -> str:
    return f"{pod_name(e.pod)} evicted from {e.node}, {e.gpus} GPU(s), so that its successor lands at {e.home_node}"


def _queued(e: catalog.WorkloadQueued) -> str:
    asks = ", ".join(f"{name} {amount(name, asked)}" for name, asked in e.requests.items())
    return f"{_workload(e.workload)} queued in {e.local_queue}, priority {e.priority}, asks {asks}"


def _workload(workload: catalog.WorkloadRef) -> str:
    return f"{workload.kind} {workload.namespace}/{workload.name}"


def _registered(e: catalog.NodeRegistered) -> str:
    verb = "created" if e.created else "found"
    return f"virtual node {e.node} {verb}, at most {e.max_external_gpus} GPUs, providers {', '.join(e.providers)}"


def _requested(e: catalog.InstanceRequested) -> str:
    price = f"{e.gpus} GPU(s) at ${number(e.price_per_hour)}/h"
    return f"{pod_name(e.pod)} asks {e.provider} for {e.offering}, {price} (attempt {e.attempt})"


def _created(e: catalog.InstanceCreated) -> str:
    verb = "committed" if e.committed else "queued"
    return f"{e.provider} {verb} {e.instance} ({e.offering}, ${number(e.price_per_hour)}/h) for {pod_name(e.pod)}"


def _running(e: catalog.InstanceRunning) -> str:
    after = "" if e.seconds_to_running is None else f" after {number(e.seconds_to_running)} s"
    return f"instance {e.instance} of {pod_name(e.pod)} runs{after}"


def _adopted(e: catalog.InstanceAdopted) -> str:
    return f"instance {e.instance} of {pod_name(e.pod)} found at {e.provider} ({e.state}) and taken over"


def _orphan(e: catalog.OrphanFound) -> str:
    return f"instance {e.instance} at {e.provider} has no pod ({pod_name(e.pod)}), {number(e.age_seconds)} s old"


def _termination_deferred(e: catalog.TerminationDeferred) -> str:
    return f"instance {e.instance} of {pod_name(e.pod)} is to be terminated and is not: {e.end}{_tail(e.detail)}"


def _spill_deferred(e: catalog.SpillDeferred) -> str:
    tried = f"; tried {', '.join(e.tried)}" if e.tried else ""
    return f"{pod_name(e.pod)} waits on {e.node} without an instance: {e.reason}{_tail(e.detail)}{tried}"


def _sampled(e: catalog.ProviderSampled) -> str:
    if not e.healthy:
        return f"provider {e.provider} is not healthy{_tail(e.detail)}"
    offers = ", ".join(
        f"{o.id} ${number(o.price_per_hour)}/h stock {'unknown' if o.stock is None else o.stock}" for o in e.offerings
    )
    return f"provider {e.provider}: {offers}; {number(e.instances)} instances"


SENTENCES: Final[Mapping[type[Event], Callable[[Any], str]]] = {
    catalog.ServiceStarted: lambda e: f"{e.service} {e.version} started, mode {e.mode}",
    catalog.ServiceStopped: lambda e: f"{e.service} stopped{_tail(e.reason)}",
    catalog.LeadershipTaken: lambda e: f"{e.holder} leads {e.service} (lease {e.lease})",
    catalog.LeadershipLost: lambda e: f"{e.holder} no longer leads {e.service}{_tail(e.reason)}",
    catalog.CapacitySampled: lambda e: f"{e.resource} in {e.pool}: " + "; ".join(_reading(r) for r in e.readings),
    catalog.GateDecided: lambda e: f"gate of {e.node} should be {e.verdict}: {e.reason}; {marks(e)}{_tail(e.detail)}",
    catalog.GateOpened: _gate("opened"),
    catalog.GateClosed: _gate("closed"),
    catalog.DriftDetected: _drift,
    catalog.DriftCleared: lambda e: f"drift at {e.node} is over: {e.kind}{_tail(e.detail)}",
    catalog.ReturnIntended: _intended,
    catalog.PodEvicted: _evicted,
    catalog.EvictionRefused: _refused,
    catalog.ReturnSettled: _settled,
    catalog.PodHeld: _held,
    catalog.WorkloadQueued: _queued,
    catalog.WorkloadAdmitted: _admitted,
    catalog.AdmissionDeferred: _deferred,
    catalog.WorkloadFinished: lambda e: f"{_workload(e.workload)} {e.outcome}",
    catalog.NodeRegistered: _registered,
    catalog.InstanceRequested: _requested,
    catalog.InstanceCreated: _created,
    catalog.InstanceRunning: _running,
    catalog.InstanceFailed: _failed,
    catalog.InstanceTerminating: lambda e: f"instance {e.instance} of {pod_name(e.pod)} is being terminated: {e.end}",
    catalog.TerminationDeferred: _termination_deferred,
    catalog.InstanceTerminated: _terminated,
    catalog.InstanceAdopted: _adopted,
    catalog.OrphanFound: _orphan,
    catalog.SpillDeferred: _spill_deferred,
    catalog.ProviderSampled: _sampled,
}
