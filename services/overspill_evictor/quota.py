"""Whether a namespace's ResourceQuotas leave headroom for a successor. Pure.

While the old pod ends, old and new are counted together, so that a return needs headroom for one more pod. A quota
with scopes is read as if it held for every pod: to be too careful costs a wait, the opposite a pod.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec import Struct

from overspill_capacity.requests import add, effective_requests
from overspill_objects.core import Pod, ResourceQuota
from overspill_objects.quantity import parse_quantity

Amounts = Mapping[str, Decimal]


class Shortage(Struct, frozen=True, kw_only=True):
    """The quota that has too little left."""

    quota: str
    resource: str
    needed: Decimal
    available: Decimal


def shortage(pod: Pod, quotas: Iterable[ResourceQuota], *, promised: Amounts) -> Shortage | None:
    """The first quota without room for one more such pod beside what is `promised` in the namespace already.

    Raises ValueError for a quantity that is none.
    """
    asked = charges(pod)
    for quota in quotas:
        if quota.metadata.namespace != pod.metadata.namespace:
            continue
        for resource, hard in (quota.status.hard or quota.spec.hard).items():
            if resource not in asked:
                continue
            used = parse_quantity(quota.status.used.get(resource, 0)) + promised.get(resource, Decimal(0))
            available = parse_quantity(hard) - used
            if asked[resource] > available:
                return Shortage(
                    quota=quota.metadata.name, resource=resource, needed=asked[resource], available=available
                )
    return None


def charges(pod: Pod) -> dict[str, Decimal]:
    """What the quota controller counts for a pod, under every name it counts it by."""
    counted = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for resource, amount in effective_requests(pod).items():
        counted[f"requests.{resource}"] = amount
        if resource in {"cpu", "memory", "ephemeral-storage"}:
            counted[resource] = amount
    for container in pod.spec.containers:
        limits = {f"limits.{name}": parse_quantity(value) for name, value in container.resources.limits.items()}
        counted = add(counted, limits)
    return counted
