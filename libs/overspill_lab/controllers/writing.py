"""The writes that several controllers make: pods from templates, pods taken away, statuses.

It must not know why.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import HasMeta
from overspill_kube.outcomes import Conflict, Done, NotFound, Outcome, Refusal, Replaced
from overspill_kube.resources import PODS, Resource
from overspill_lab.controllers.cluster import Workload
from overspill_lab.merging import merge_patch
from overspill_objects.core import Pod

SLOW_START: Final = 1  # then twice as many at once, as long as all succeed
AT_ONCE: Final = 16

T = TypeVar("T", bound=HasMeta)


def owner_reference(resource: Resource[Any], owner: Workload) -> dict[str, Any]:
    """The reference that makes `owner` the controller of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Made(Struct, frozen=True, kw_only=True):
    """What came of creating pods: those that are there now, and why the others are not."""

    pods: tuple[Pod, ...]
    refusal: Refusal | None = None
    error: KubeError | KubeUnavailable | None = None  # whether more were created is then unknown

    def check(self) -> None:
        """Raises what went wrong, so that the caller's queue tries again."""
        if self.error is not None:
            raise self.error
        if self.refusal is not None:
            raise KubeError(f"pods not created: {self.refusal.message}", status=0)


async def create_pods(
    client: Client, resource: Resource[Workload], owner: Workload, *, count: int, finalizers: Sequence[str] = ()
) -> Made:
    """Up to `count` pods from the owner's template, in growing batches; nothing more after a failure."""
    template = owner.spec["template"]
    metadata = template.get("metadata", {})
    body = {
        "metadata": {
            "generateName": f"{owner.metadata.name}-",
            "labels": metadata.get("labels", {}),
            "annotations": metadata.get("annotations", {}),
            "finalizers": [*metadata.get("finalizers", ()), *finalizers],
            "ownerReferences": [owner_reference(resource, owner)],
        },
        "spec": template["spec"],
    }
    made: list[Pod] = []
    batch = SLOW_START
    while len(made) < count:
        size = min(batch, AT_ONCE, count - len(made))
        outcomes = await asyncio.gather(*(_create(client, body, owner.metadata.namespace) for _ in range(size)))
        made += [one.object for one in outcomes if isinstance(one, Done)]
        errors = [one for one in outcomes if isinstance(one, KubeError | KubeUnavailable)]
        refusals = [one for one in outcomes if not isinstance(one, Done | KubeError | KubeUnavailable)]
        if errors or refusals:
            return Made(pods=tuple(made), refusal=next(iter(refusals), None), error=next(iter(errors), None))
        batch *= 2
    return Made(pods=tuple(made))


async def _create(
    client: Client, body: Mapping[str, Any], namespace: str
) -> Outcome[Pod] | KubeError | KubeUnavailable:
    try:
        return await client.create(PODS, body, namespace)
    except (KubeError, KubeUnavailable) as error:
        return error


async def delete_pods(client: Client, pods: Sequence[Pod]) -> None:
    """Ask for the deletion of these very pods; those that are gone are as wished."""
    for start in range(0, len(pods), AT_ONCE):
        await asyncio.gather(
            *(
                client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
                for pod in pods[start : start + AT_ONCE]
            )
        )


async def write_status(
    client: Client, resource: Resource[T], thing: T, before: Mapping[str, Any], after: Mapping[str, Any]
) -> T | None:
    """Change a status from what the object says to what it should say, unless the object has changed meanwhile.

    Returns the new object, the given one when nothing had to be written, None when it is gone. Raises KubeError when
    somebody was faster (the caller's queue tries again) or the status is refused.
    """
    status = merge_patch(before, after)
    if not status:
        return thing
    meta = thing.metadata
    outcome = await client.patch(
        resource,
        meta.name,
        {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status},
        kind=PatchKind.MERGE,
        namespace=meta.namespace or None,
        subresource="status",
    )
    match outcome:
        case Done(object=written):
            return written
        case NotFound() | Replaced():
            return None
        case Conflict(message=message):
            raise OutrunError(message)
    raise KubeError(f"{resource.kind} {meta.name}: status refused: {outcome}", status=0)


class OutrunError(KubeError):
    """Somebody else wrote the object first; decide again from what it is now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=409, reason="Conflict")
