"""What one pod holds of every resource, by kube-scheduler's rules.

Must not know nodes: the same pod asks the same everywhere.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from overspill_objects.core import Container, ContainerStatus, Pod, Resources
from overspill_objects.meta import condition_of
from overspill_objects.quantity import parse_quantity
from overspill_objects.view import Quantities

Amounts = dict[str, Decimal]

ZERO: Final = Decimal(0)
RESIZABLE: Final = ("cpu", "memory")
POD_LEVEL: Final = ("cpu", "memory")  # and hugepages-*: all else is always asked for by containers


def effective_requests(pod: Pod) -> Amounts:
    """What the pod holds in the scheduler's books; zero amounts are left out. Cores, bytes, devices.

    max(sum of containers and sidecars, largest ordinary init container + the sidecars declared before it) + overhead;
    pod-level resources replace that for cpu, memory and huge pages only. Raises ValueError for what is no quantity.
    """
    spec, status = pod.spec, pod.status
    infeasible = _resize_is_infeasible(pod)
    statuses = {s.name: s for s in (*status.container_statuses, *status.init_container_statuses)}
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.init_containers:
        asked = _container(container, statuses.get(container.name), infeasible=infeasible)
        if container.restart_policy == "Always":
            sidecars = add(sidecars, asked)
            starting = largest(starting, sidecars)
        else:
            starting = largest(starting, add(sidecars, asked))
    running = sidecars
    for container in spec.containers:
        running = add(running, _container(container, statuses.get(container.name), infeasible=infeasible))
    total = largest(running, starting)
    if spec.resources is not None:
        total |= {name: v for name, v in _asked(spec.resources).items() if _is_pod_level(name)}
    total = add(total, _parsed(spec.overhead))
    return {name: value for name, value in total.items() if value > 0}


def add(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> Amounts:
    """The sum, resource by resource."""
    return {name: one.get(name, ZERO) + other.get(name, ZERO) for name in one.keys() | other.keys()}


def largest(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> Amounts:
    """The larger amount, resource by resource."""
    return {name: max(one.get(name, ZERO), other.get(name, ZERO)) for name in one.keys() | other.keys()}


def total_of(amounts: Iterable[Mapping[str, Decimal]]) -> Amounts:
    """The sum of many, in one dictionary."""
    total: Amounts = {}
    for one in amounts:
        for name, value in one.items():
            total[name] = total.get(name, ZERO) + value
    return total


def _container(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Amounts:
    """One container's requests; during a resize the largest of what is wanted, allocated and in effect."""
    asked = _asked(container.resources)
    if status is None:
        return asked
    allocated = _parsed(status.allocated_resources)
    actual = _parsed(status.resources.requests) if status.resources is not None else {}
    for name in RESIZABLE:
        reported = [amounts[name] for amounts in (allocated, actual) if name in amounts]
        if reported and name in asked:
            # What can never be granted is not held; the container keeps what it has.
            asked[name] = max(reported) if infeasible else max(asked[name], *reported)
    return asked


def _asked(resources: Resources) -> Amounts:
    """Requests; where only a limit is set, the limit is the request."""
    return _parsed(resources.limits) | _parsed(resources.requests)


def _parsed(quantities: Quantities) -> Amounts:
    return {name: parse_quantity(value) for name, value in quantities.items()}


def _is_pod_level(name: str) -> bool:
    return name in POD_LEVEL or name.startswith("hugepages-")


def _resize_is_infeasible(pod: Pod) -> bool:
    pending = condition_of(pod.status.conditions, "PodResizePending")
    return pending is not None and pending.status == "True" and pending.reason == "Infeasible"
