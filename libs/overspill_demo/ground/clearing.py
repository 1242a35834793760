"""Takes away what a demo has made in a cluster, found by its marks: after the story, and after a demo that was killed.

It runs when the demo's kubelets and services have ended, so nobody else removes the pods: they are deleted without
grace.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from overspill_demo.arrangement import VIRTUAL_NODE
from overspill_demo.ground.inventory import MARKED, is_ours
from overspill_kube.client import Client
from overspill_kube.errors import KubeError
from overspill_kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    KUEUE_GROUP,
    KUEUE_VERSIONS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)

GONE_WITHIN_S: Final = 180.0
LOOK_EVERY_S: Final = 0.5
NODE_LEASES: Final = "kube-node-lease"
NOT_FOUND: Final = 404


async def leftovers(kube: Client) -> list[str]:
    """What marked objects there are, as kind and name."""
    return [f"{resource.kind} {name}" for resource, name in await _found(kube)]


async def clear(kube: Client, *, note: Callable[[str], None]) -> None:
    """Remove everything marked, and wait until it is gone. What is left after GONE_WITHIN_S is told.

    Raises KubeUnavailable and KubeError.
    """
    before = await _found(kube)
    if not before:
        return
    if any(is_ours(space.metadata) for space in (await kube.list(NAMESPACES)).items):
        await kube.delete(NODES, VIRTUAL_NODE)
        await kube.delete(LEASES, VIRTUAL_NODE, NODE_LEASES)
    try:
        async with asyncio.timeout(GONE_WITHIN_S):
            while found := await _found(kube):
                await _remove(kube, found)
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        note(f"still there after {GONE_WITHIN_S:g} s: {', '.join(await leftovers(kube))}; the next demo tries again")
        return
    note(f"the cluster is as it was: {len(before)} objects of the demo are gone (its Events expire by themselves)")


async def _remove(kube: Client, found: list[tuple[Resource[Any], str]]) -> None:
    """One round: whatever is deleted already is only waited for."""
    definitions_wait = any(resource is NAMESPACES for resource, _ in found)
    for resource, name in found:
        if resource is CUSTOM_RESOURCE_DEFINITIONS and definitions_wait:
            continue  # a namespace cannot end while its objects' kind is vanishing
        await kube.delete(resource, name)
    for namespace in [name for resource, name in found if resource is NAMESPACES]:
        for pod in (await kube.list(PODS, namespace=namespace)).items:
            await kube.delete(PODS, pod.metadata.name, namespace, uid=pod.metadata.uid, grace_seconds=0)


async def _found(kube: Client) -> list[tuple[Resource[Any], str]]:
    found: list[tuple[Resource[Any], str]] = []
    for resource, mark in MARKED:
        served = await kube.served(resource, *KUEUE_VERSIONS) if resource.group == KUEUE_GROUP else resource
        if served is not None:
            found += [(served, item.metadata.name) for item in await _list(kube, served, mark)]
    return found


async def _list(kube: Client, resource: Resource[Any], mark: str) -> tuple[Any, ...]:
    try:
        return (await kube.list(resource, labels=mark)).items
    except KubeError as error:
        if error.status == NOT_FOUND:  # the kind itself is gone, or going
            return ()
        raise
