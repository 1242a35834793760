"""What the bridge writes on a pod that it runs, beside its status: one JSON Patch, or nothing. Pure.

JSON Patch, because tolerations are one atomic list whose entries the API compares field by field: only the seconds of
an entry are touched, the rest is not even read back.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from overspill_events.names import (
    DELETION_COST_ANNOTATION,
    INSTANCE_ANNOTATION,
    PRICE_ANNOTATION,
    PROVIDER_ANNOTATION,
)
from overspill_objects.core import Pod, Toleration

OUTAGE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
NO_EXECUTE = "NoExecute"

Patch = list[dict[str, Any]]


class Mark(Struct, frozen=True, kw_only=True):
    """Which instance runs a pod, and what that costs in dollars per hour."""

    provider: str
    instance: str
    price_per_hour: float


def adoption_patch(pod: Pod, mark: Mark, *, outage_tolerance: int, deletion_cost: int) -> Patch | None:
    """Annotations for people and controllers, and patience with a node that does not answer.

    A deletion cost that the user set stays; a toleration that is longer (or for ever) stays.
    """
    wanted = {
        PROVIDER_ANNOTATION: mark.provider,
        INSTANCE_ANNOTATION: mark.instance,
        PRICE_ANNOTATION: f"{mark.price_per_hour:g}",
    }
    if DELETION_COST_ANNOTATION not in pod.metadata.annotations:
        wanted[DELETION_COST_ANNOTATION] = str(deletion_cost)
    missing = {name: value for name, value in wanted.items() if pod.metadata.annotations.get(name) != value}
    operations = _annotate(pod, missing) + _tolerate(pod.spec.tolerations, outage_tolerance)
    return [_same_pod(pod), *operations] if operations else None


def release_patch(pod: Pod) -> Patch | None:
    """Take the instance's marks off a pod that is to get another one."""
    marks = (PROVIDER_ANNOTATION, INSTANCE_ANNOTATION, PRICE_ANNOTATION)
    operations: Patch = [
        {"op": "remove", "path": f"/metadata/annotations/{_escape(name)}"}
        for name in marks
        if name in pod.metadata.annotations
    ]
    return [_same_pod(pod), *operations] if operations else None


def _same_pod(pod: Pod) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}


def _annotate(pod: Pod, missing: Mapping[str, str]) -> Patch:
    if not missing:
        return []
    if pod.metadata.annotations:
        return [
            {"op": "add", "path": f"/metadata/annotations/{_escape(name)}", "value": value}
            for name, value in missing.items()
        ]
    # Adding the whole map would wipe out what somebody else added meanwhile: only to the version that was read.
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version},
        {"op": "add", "path": "/metadata/annotations", "value": dict(missing)},
    ]


def _tolerate(tolerations: tuple[Toleration, ...], seconds: int) -> Patch:
    operations: Patch = []
    for taint in OUTAGE_TAINTS:
        own = [(index, one) for index, one in enumerate(tolerations) if _tolerates(one, taint)]
        if any(one.toleration_seconds is None or one.toleration_seconds >= seconds for _, one in own):
            continue
        index = next((index for index, one in own if one.key == taint), None)
        if index is None:
            added = {"key": taint, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds}
            operations.append(
                {"op": "add", "path": "/spec/tolerations/-", "value": added}
                if tolerations or operations
                else {"op": "add", "path": "/spec/tolerations", "value": [added]}
            )
        else:
            path = f"/spec/tolerations/{index}"
            operations += [
                {"op": "test", "path": f"{path}/key", "value": taint},
                {"op": "add", "path": f"{path}/tolerationSeconds", "value": seconds},
            ]
    return operations


def _tolerates(toleration: Toleration, taint: str) -> bool:
    if toleration.effect not in ("", NO_EXECUTE):
        return False
    return toleration.operator == "Exists" and toleration.key in ("", taint)


def _escape(name: str) -> str:
    """A map key inside a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
