"""Makes a cluster ready for the story, and refuses one in which the story would touch what is not its own."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from overspill_demo.ground.clearing import clear, leftovers
from overspill_demo.ground.inventory import (
    ALL_NAMESPACES,
    POLICIES,
    is_ours,
    marked,
    policies,
)
from overspill_events import names
from overspill_kube.client import Client
from overspill_kube.errors import KubeError
from overspill_kube.outcomes import AlreadyExists, Done
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    KUEUE_VERSIONS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    Resource,
)
from overspill_objects.core import Node
from overspill_objects.quantity import parse_quantity
from overspill_service.crds import definitions

SERVED_WITHIN_S: Final = 60.0
LOOK_EVERY_S: Final = 0.2
NOT_FOUND: Final = 404


class GroundError(Exception):
    """The story cannot be played in this cluster; the message says why and what to do."""


async def examine(kube: Client, *, note: Callable[[str], None]) -> None:
    """Refuse what the story would disturb, and remove what an earlier demo left.

    Raises GroundError before anything is changed, KubeUnavailable or KubeError when the cluster cannot be asked.
    """
    await _refuse_foreign(kube)
    if await leftovers(kube):
        await _refuse_a_running_demo(kube)
        note("an earlier demo left something here; it is removed first")
        await clear(kube, note=note)


async def prepare(kube: Client) -> None:
    """Everything that the services and the story expect, in a cluster that was examined.

    Raises GroundError for what is refused or does not come, KubeUnavailable and KubeError.
    """
    await _create(kube, NAMESPACES, {"metadata": {"name": names.SYSTEM_NAMESPACE}})
    for kind in definitions():
        await _create(kube, CUSTOM_RESOURCE_DEFINITIONS, kind)
    for resource, document in policies():
        await _create(kube, resource, document)
    for queue_kind in (CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS):
        await _until_served(kube, queue_kind)


async def _refuse_foreign(kube: Client) -> None:
    try:
        await kube.list(POLICIES, limit=1)
    except KubeError as error:
        if error.status != NOT_FOUND:
            raise
        raise GroundError(
            "this cluster serves no MutatingAdmissionPolicy (admissionregistration.k8s.io/v1): the demo needs"
            " Kubernetes 1.36 or newer"
        ) from error
    spaces = {space.metadata.name: space for space in (await kube.list(NAMESPACES)).items}
    for name in ALL_NAMESPACES:
        if name in spaces and not is_ours(spaces[name].metadata):
            raise GroundError(
                f"namespace {name} is there already and no demo made it; the demo makes and removes its own: give it a"
                " cluster without one"
            )
    for node in (await kube.list(NODES)).items:
        if why := disturbs(node, was_here=names.SYSTEM_NAMESPACE in spaces):
            raise GroundError(f"node {node.metadata.name} {why}")


def disturbs(node: Node, *, was_here: bool) -> str | None:
    """Why a node must not be there; `was_here`: an earlier demo left its system namespace."""
    if node.metadata.labels.get(names.VIRTUAL_LABEL) == "true":
        return None if was_here else "is a virtual node: Overspill is, or was, installed in this cluster"
    gpus = parse_quantity(node.status.allocatable.get(names.GPU_RESOURCE, "0"))
    if gpus and not is_ours(node.metadata):
        return f"has {gpus} GPUs of its own: the story counts every GPU at home, so give it a cluster without any"
    return None


async def _refuse_a_running_demo(kube: Client) -> None:
    """A lease that moves is somebody at work. Its time is another clock's, so it is looked at twice."""
    before = {
        lease.metadata.name: lease.spec for lease in (await kube.list(LEASES, namespace=names.SYSTEM_NAMESPACE)).items
    }
    held = [spec.lease_duration_seconds for spec in before.values() if spec.holder_identity]
    await asyncio.sleep(max(held, default=0))
    for lease in (await kube.list(LEASES, namespace=names.SYSTEM_NAMESPACE)).items:
        if lease.metadata.name not in before or lease.spec.renew_time != before[lease.metadata.name].renew_time:
            raise GroundError(
                f"{lease.spec.holder_identity} renews lease {lease.metadata.name}: another demo is going on in this"
                " cluster; wait for its end"
            )


async def _create(kube: Client, resource: Resource[Any], document: Mapping[str, Any]) -> None:
    outcome = await kube.create(resource, marked(document))
    if not isinstance(outcome, Done | AlreadyExists):
        raise GroundError(f"{resource.kind} {document['metadata']['name']} was refused: {outcome}")


async def _until_served(kube: Client, resource: Resource[Any]) -> None:
    """A new kind is served a moment after its definition was accepted."""
    try:
        async with asyncio.timeout(SERVED_WITHIN_S):
            while not await _is_served(kube, resource):  # noqa: ASYNC110 another process decides it
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise GroundError(f"{resource.kind} is not served {SERVED_WITHIN_S:g} s after its definition") from None


async def _is_served(kube: Client, resource: Resource[Any]) -> bool:
    served = await kube.served(resource, *KUEUE_VERSIONS)
    if served is None:
        return False
    try:
        await kube.list(served, limit=1)
    except KubeError as error:
        if error.status == NOT_FOUND:
            return False
        raise
    return True
