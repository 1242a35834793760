"""Flat nominal quota of a ClusterQueue: what is used per flavor and resource, and which flavor has enough left. Pure.

As in Kueue, all resources of one group are taken from one flavor, flavors are tried in order, and a requested
resource that no group covers cannot be admitted. Cohorts are not looked at: nothing is borrowed or lent.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec
from msgspec import Struct

from overspill_capacity.nodes import untolerated
from overspill_events.catalog import QuotaUse
from overspill_events.names import VIRTUAL_LABEL
from overspill_events.reasons import DeferReason
from overspill_objects.core import Pod
from overspill_objects.quantity import parse_quantity
from overspill_objects.queues import ClusterQueue, FlavorQuotas, ResourceFlavor, ResourceGroup

# How soon each refusal may end: room comes and goes, quota comes back, the rest is for somebody to mend.
_SOONEST: Final = (
    DeferReason.NO_HOME_ROOM,
    DeferReason.ROOM_UNKNOWN,
    DeferReason.NO_QUOTA,
    DeferReason.NEVER_FITS,
    DeferReason.BAD_QUEUE,
)

Amounts = Mapping[str, Decimal]
Flavors = Mapping[str, str]  # resource → flavor


class NoFlavor(Struct, frozen=True, kw_only=True):
    """No flavor takes the workload; `quota` shows the numbers of the last one that was short."""

    reason: DeferReason
    detail: str = ""
    quota: tuple[QuotaUse, ...] = ()


class Assigned(Struct, frozen=True, kw_only=True):
    """Each resource has its flavor; `quota` shows the numbers before the workload is charged."""

    flavors: Flavors
    quota: tuple[QuotaUse, ...]


class Usage:
    """What is charged to one ClusterQueue."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], Decimal] = {}

    def of(self, flavor: str, resource: str) -> Decimal:
        return self._used.get((flavor, resource), Decimal(0))

    @property
    def charged(self) -> Mapping[tuple[str, str], Decimal]:
        """Amounts by flavor and resource."""
        return dict(self._used)

    def charge(self, flavors: Flavors, requests: Amounts) -> None:
        """Add a workload's requests to its flavors."""
        for resource, flavor in flavors.items():
            key = (flavor, resource)
            self._used[key] = self.of(*key) + requests.get(resource, Decimal(0))


def is_virtual(flavor: ResourceFlavor) -> bool:
    """Whether the flavor stands for virtual nodes."""
    return flavor.spec.node_labels.get(VIRTUAL_LABEL) == "true"


def assign(
    queue: ClusterQueue,
    pod: Pod,
    requests: Amounts,
    *,
    usage: Usage,
    flavors: Mapping[str, ResourceFlavor],
    veto: Callable[[ResourceFlavor], NoFlavor | None],
) -> Assigned | NoFlavor:
    """The first flavor of each group that has quota left and that `veto` does not refuse.

    `veto` is asked only about flavors with quota. Raises ValueError for a quota that is no quantity.
    """
    groups = queue.spec.resource_groups
    asked = {name: amount for name, amount in requests.items() if amount > 0 and name != "pods"}
    covered = {resource for group in groups for resource in group.covered_resources}
    if missing := sorted(asked.keys() - covered):
        return NoFlavor(reason=DeferReason.RESOURCE_NOT_COVERED, detail=f"no quota for {', '.join(missing)}")
    if "pods" in covered:
        asked["pods"] = requests.get("pods", Decimal(0))
    answers = [
        _assign_group(group, pod, part, usage=usage, flavors=flavors, veto=veto)
        for group in groups
        if (part := {name: asked[name] for name in group.covered_resources if name in asked})
    ]
    if refusals := [answer for answer in answers if isinstance(answer, NoFlavor)]:
        return max(refusals, key=lambda refusal: _SOONEST.index(refusal.reason))  # the one that lasts longest decides
    given = [answer for answer in answers if isinstance(answer, Assigned)]
    return Assigned(
        flavors={resource: flavor for one in given for resource, flavor in one.flavors.items()},
        quota=tuple(use for one in given for use in one.quota),
    )


def uses_of(queue: ClusterQueue, flavors: Flavors, requests: Amounts, *, usage: Usage) -> tuple[QuotaUse, ...]:
    """The numbers of flavors that are given without asking. Raises ValueError for a quota that is no quantity."""
    shown: list[QuotaUse] = []
    for group in queue.spec.resource_groups:
        for quotas in group.flavors:
            part = {name: requests.get(name, Decimal(0)) for name, flavor in flavors.items() if flavor == quotas.name}
            shown.extend(_uses(quotas, part, usage))
    return tuple(shown)


def first_flavors(queue: ClusterQueue, requests: Amounts) -> Flavors:
    """Where something admitted without us is charged when no flavor has room: over-use must be visible."""
    return {
        resource: group.flavors[0].name
        for group in queue.spec.resource_groups
        if group.flavors
        for resource in group.covered_resources
        if resource in requests
    }


def _assign_group(
    group: ResourceGroup,
    pod: Pod,
    part: Amounts,
    *,
    usage: Usage,
    flavors: Mapping[str, ResourceFlavor],
    veto: Callable[[ResourceFlavor], NoFlavor | None],
) -> Assigned | NoFlavor:
    answers: list[NoFlavor] = []
    for quotas in group.flavors:
        flavor = flavors.get(quotas.name)
        if flavor is None:
            answers.append(NoFlavor(reason=DeferReason.BAD_QUEUE, detail=f"flavor {quotas.name} not found"))
            continue
        if unfit := _unfit(flavor, pod):
            answers.append(NoFlavor(reason=DeferReason.BAD_QUEUE, detail=unfit))
            continue
        uses = _uses(quotas, part, usage)
        refusal = _short(quotas.name, uses) or veto(flavor)
        if refusal is None:
            return Assigned(flavors=dict.fromkeys(part, quotas.name), quota=uses)
        answers.append(refusal)
    return _nearest(answers)


def _nearest(answers: Sequence[NoFlavor]) -> NoFlavor:
    """The refusal that could end soonest, with the words of all flavors."""
    if not answers:
        return NoFlavor(reason=DeferReason.BAD_QUEUE, detail="the queue has no flavors")
    soonest = min(answers, key=lambda answer: _SOONEST.index(answer.reason))
    return msgspec.structs.replace(soonest, detail="; ".join(answer.detail for answer in answers))


def _unfit(flavor: ResourceFlavor, pod: Pod) -> str:
    """Kueue's rules: an untolerated taint of the flavor; a node selector that contradicts its labels."""
    name = flavor.metadata.name
    taint = untolerated(flavor.spec.node_taints, (*pod.spec.tolerations, *flavor.spec.tolerations))
    if taint is not None:
        return f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {name}"
    labels = flavor.spec.node_labels
    if any(key in labels and labels[key] != value for key, value in pod.spec.node_selector.items()):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _uses(quotas: FlavorQuotas, part: Amounts, usage: Usage) -> tuple[QuotaUse, ...]:
    nominal = {one.name: parse_quantity(one.nominal_quota) for one in quotas.resources}
    return tuple(
        QuotaUse(
            flavor=quotas.name,
            resource=resource,
            nominal=float(nominal.get(resource, Decimal(0))),
            used=float(usage.of(quotas.name, resource)),
            asked=float(amount),
        )
        for resource, amount in part.items()
    )


def _short(flavor: str, uses: tuple[QuotaUse, ...]) -> NoFlavor | None:
    for use in uses:
        if use.asked > use.nominal:
            numbers = f"({shown(use.resource, use.asked)}) > maximum capacity ({shown(use.resource, use.nominal)})"
            detail = (
                f"insufficient quota for {use.resource} in flavor {flavor}, "
                f"previously considered podsets requests (0) + current podset request {numbers}"
            )
            return NoFlavor(reason=DeferReason.NEVER_FITS, detail=detail, quota=uses)
    for use in uses:
        if use.used + use.asked > use.nominal:
            more = shown(use.resource, use.used + use.asked - use.nominal)
            detail = f"insufficient unused quota for {use.resource} in flavor {flavor}, {more} more needed"
            return NoFlavor(reason=DeferReason.NO_QUOTA, detail=detail, quota=uses)
    return None


def shown(resource: str, amount: float) -> str:
    """An amount as people write it: bytes with a binary suffix where one divides it, fractions in thousandths."""
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for power, suffix in ((50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if amount and amount % (1 << power) == 0:
                return f"{int(amount) >> power}{suffix}"
    return f"{int(amount)}" if amount == int(amount) else f"{round(amount * 1000)}m"
