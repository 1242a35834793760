"""What a pod wants from a provider: GPUs, types, regions, a price ceiling; read from its spec and annotations. Pure.

A bad annotation spends nothing: it is a Problem that names the annotation, its value and what is accepted.
"""

from decimal import Decimal, InvalidOperation

from msgspec import Struct

from overspill_capacity.requests import effective_requests
from overspill_events.names import (
    GPU_TYPE_ANNOTATION,
    MAX_PRICE_ANNOTATION,
    REGIONS_ANNOTATION,
    SECRETS_ANNOTATION,
    SPILLABLE_LABEL,
)
from overspill_events.reasons import SpillReason
from overspill_objects.core import Pod


class Wish(Struct, frozen=True, kw_only=True):
    """What an offering must be. Empty types or regions mean any; `max_price` is in dollars per instance hour."""

    gpus: int
    gpu_types: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    max_price: float | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """Why a pod cannot be run, in terms of its own spec."""

    reason: SpillReason
    detail: str


def is_opted_in(pod: Pod) -> bool:
    """Whether the pod may leave the cluster at all."""
    return pod.metadata.labels.get(SPILLABLE_LABEL) == "true"


def secrets_may_leave(pod: Pod) -> bool:
    """Whether its Secrets may go to a provider. Anything but "true" means no; `wish_of` reports what is neither."""
    return pod.metadata.annotations.get(SECRETS_ANNOTATION) == "true"


def gpus_asked(pod: Pod, *, resource: str) -> int | None:
    """Whole GPUs that the pod asks for; None when it is no whole number of at least one, or no quantity."""
    try:
        amount = effective_requests(pod).get(resource, Decimal(0))
    except ValueError:
        return None
    return int(amount) if amount >= 1 and amount == int(amount) else None


def wish_of(pod: Pod, *, resource: str) -> Wish | Problem:
    """The wish, or the first thing that is wrong with it."""
    gpus = gpus_asked(pod, resource=resource)
    if gpus is None:
        detail = f"spec.containers[0].resources: asks for no whole number of {resource}; accepted: 1 or more"
        return Problem(reason=SpillReason.UNSUPPORTED, detail=detail)
    annotations = pod.metadata.annotations
    if (leave := annotations.get(SECRETS_ANNOTATION)) not in (None, "true", "false"):
        return _bad(SECRETS_ANNOTATION, leave, '"true" or "false"')
    lists: dict[str, tuple[str, ...]] = {}
    for name in (GPU_TYPE_ANNOTATION, REGIONS_ANNOTATION):
        text = annotations.get(name)
        lists[name] = () if text is None else tuple(part.strip() for part in text.split(","))
        if not all(lists[name]):
            return _bad(name, text, "names separated by commas")
    price = annotations.get(MAX_PRICE_ANNOTATION)
    ceiling = None if price is None else _dollars(price)
    if price is not None and ceiling is None:
        return _bad(MAX_PRICE_ANNOTATION, price, "dollars per instance hour, a decimal above 0 such as 2.50")
    return Wish(gpus=gpus, gpu_types=lists[GPU_TYPE_ANNOTATION], regions=lists[REGIONS_ANNOTATION], max_price=ceiling)


def _dollars(text: str) -> float | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return float(value) if value.is_finite() and value > 0 else None


def _bad(name: str, value: object, accepted: str) -> Problem:
    return Problem(
        reason=SpillReason.BAD_ANNOTATION, detail=f"metadata.annotations[{name}]: {value!r}; accepted: {accepted}"
    )
