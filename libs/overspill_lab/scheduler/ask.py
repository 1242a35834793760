"""What a pod asks of a node, worked out once when the pod is first seen.

Amounts are whole numbers (millicores for cpu, base units for the rest, rounded up) so that comparing them with a node's
room is cheap: it happens for every pod and every node.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Final

import msgspec
from msgspec import Struct

from overspill_capacity.requests import effective_requests
from overspill_lab.scheduler.constraints import Spread, spreads_of
from overspill_lab.scheduler.refusal import what_is_refused
from overspill_objects.core import Container, NodeSelector, Pod, PodSpec, PreferredSchedulingTerm, Toleration
from overspill_objects.meta import condition_of

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
# What kube-scheduler's least-allocated score takes for a container that says nothing (pkg/scheduler/util).
DEFAULT_REQUESTS: Final = {CPU: "100m", MEMORY: str(200 * 1024 * 1024)}
BY_PREEMPTION: Final = "PreemptionByScheduler"  # why a victim goes, in its condition DisruptionTarget
NEVER: Final = datetime.max.replace(tzinfo=UTC)


class HostPort(Struct, frozen=True):
    """A port of the node itself; an empty address means all of them."""

    protocol: str
    port: int
    address: str = ""


class Ask(Struct, frozen=True, kw_only=True):
    """One pod as the filters and scores see it."""

    uid: str
    namespace: str
    name: str
    priority: int
    created: datetime
    requests: Mapping[str, int]  # zero amounts left out
    scored: Mapping[str, int]  # cpu and memory with the defaults of silent containers
    tolerations: tuple[Toleration, ...]
    node_selector: Mapping[str, str]
    required: NodeSelector | None
    preferred: tuple[PreferredSchedulingTerm, ...]
    host_ports: frozenset[HostPort]
    refused: str | None  # the feature that the lab does not schedule
    labels: Mapping[str, str]
    spreads: tuple[Spread, ...]
    preempts: bool  # may make others go
    started: datetime | None
    leaving: bool
    preempted: bool  # the scheduler itself made it go
    signature: bytes  # pods with equal signatures fit on the same nodes

    @property
    def turn(self) -> tuple[int, datetime, str, str]:
        """Sorts the queue: higher priority first, then the older."""
        return (-self.priority, self.created, self.namespace, self.name)


def ask_of(pod: Pod) -> Ask:
    """What this pod asks. Raises ValueError naming a quantity that cannot be read."""
    spec = pod.spec
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    requests = whole(effective_requests(pod))
    scored = whole(effective_requests(_with_defaults(pod)))
    ports = frozenset(_host_ports(spec))
    required = node_affinity.required if node_affinity else None
    preferred = node_affinity.preferred if node_affinity else ()
    refused = what_is_refused(pod)
    spreads, preempts = spreads_of(spec), spec.preemption_policy != "Never"
    # Labels and namespace say whose pods a spread pod must keep its distance from.
    place_among = (pod.metadata.namespace, pod.metadata.labels, spreads) if spreads else None
    rank = (spec.priority or 0, preempts)
    alike = (
        requests,
        spec.tolerations,
        spec.node_selector,
        required,
        sorted(map(str, ports)),
        refused,
        place_among,
        rank,
    )
    return Ask(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        priority=spec.priority or 0,
        created=pod.metadata.creation_timestamp or NEVER,
        requests=requests,
        scored={resource: scored.get(resource, 0) for resource in DEFAULT_REQUESTS},
        tolerations=spec.tolerations,
        node_selector=spec.node_selector,
        required=required,
        preferred=preferred,
        host_ports=ports,
        refused=refused,
        labels=pod.metadata.labels,
        spreads=spreads,
        preempts=preempts,
        started=pod.status.start_time,
        leaving=pod.metadata.deletion_timestamp is not None,
        preempted=_is_preempted(pod),
        signature=msgspec.json.encode(alike, order="deterministic"),
    )


def moved_on(ask: Ask, pod: Pod) -> Ask:
    """The same ask after a change that takes no other room: what the pod has become."""
    return msgspec.structs.replace(
        ask,
        labels=pod.metadata.labels,
        started=pod.status.start_time,
        leaving=pod.metadata.deletion_timestamp is not None,
        preempted=_is_preempted(pod),
    )


def _is_preempted(pod: Pod) -> bool:
    target = condition_of(pod.status.conditions, "DisruptionTarget")
    return target is not None and target.status == "True" and target.reason == BY_PREEMPTION


def whole(amounts: Mapping[str, Decimal]) -> dict[str, int]:
    """Amounts as whole numbers, rounded up, zeros left out."""
    rounded = {
        resource: int((amount * 1000 if resource == CPU else amount).to_integral_value(ROUND_CEILING))
        for resource, amount in amounts.items()
    }
    return {resource: amount for resource, amount in rounded.items() if amount}


def _with_defaults(pod: Pod) -> Pod:
    spec = msgspec.structs.replace(
        pod.spec,
        containers=tuple(map(_container_with_defaults, pod.spec.containers)),
        init_containers=tuple(map(_container_with_defaults, pod.spec.init_containers)),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _container_with_defaults(container: Container) -> Container:
    resources = container.resources
    # A limit alone counts as the request: the API server has copied it by the time anybody schedules.
    requests = {**DEFAULT_REQUESTS, **resources.limits, **resources.requests}
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(resources, requests=requests))


def _host_ports(spec: PodSpec) -> list[HostPort]:
    return [
        HostPort(port.protocol, port.host_port or port.container_port)
        for container in (*spec.containers, *(one for one in spec.init_containers if one.restart_policy == "Always"))
        for port in container.ports
        if port.host_port or spec.host_network
    ]
