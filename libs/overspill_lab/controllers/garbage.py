"""The garbage collector: objects go when their owners are gone, before them (foreground), or stay as orphans."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Change, ChangeKind, HasMeta
from overspill_kube.outcomes import Conflict
from overspill_kube.resources import Resource
from overspill_lab.controllers.cluster import Watched
from overspill_lab.controllers.garbage_rules import (
    ORPHAN,
    Clear,
    Delete,
    Disown,
    Graph,
    Item,
    Orphan,
    Release,
    Standing,
    Verdict,
    judge,
    needs_work,
    standing_of,
)
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import OutrunError
from overspill_objects.meta import ObjectMeta, OwnerReference
from overspill_objects.view import View

DISCOVER_EVERY_S: Final = 30.0
NEEDED_VERBS: Final = frozenset({"list", "watch", "delete"})
LEFT_OUT: Final = frozenset({"events"})  # they own nothing and are owned by nobody; there are many


class Thing(View, frozen=True, kw_only=True):
    """Any object: all that matters is its metadata."""

    metadata: ObjectMeta = ObjectMeta()


class Garbage:
    """The controller. `run` discovers what there is to watch; `queue.run` works."""

    def __init__(self, client: Client, shared: Mapping[tuple[str, str], Watched[Any]]) -> None:
        """`shared`: watches that exist already, by group and plural."""
        self.queue: WorkQueue[str] = WorkQueue("garbage", self._sync)
        self._client = client
        self._shared = shared
        self._graph = Graph()
        self._kinds: dict[tuple[str, str], Resource[Any]] = {}  # apiVersion and kind → resource
        self._log = structlog.get_logger(controller="garbage")

    async def run(self) -> None:
        """Watch every kind that can be deleted, those that appear later too, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    for resource in await discover(self._client):
                        self._watch(resource, group)
                except (KubeUnavailable, KubeError) as error:
                    self._log.warning("not-discovered", error=str(error))
                await asyncio.sleep(DISCOVER_EVERY_S)

    def _watch(self, resource: Resource[Thing], group: asyncio.TaskGroup) -> None:
        if (resource.api_version, resource.kind) in self._kinds:
            return
        self._kinds[resource.api_version, resource.kind] = resource
        watched = self._shared.get((resource.group, resource.plural))
        if watched is None:
            watched = Watched(self._client, resource)
            group.create_task(watched.informer.run())
        else:
            for known in watched.all():
                self._note(resource, Change(ChangeKind.ADDED, known))
        watched.subscribe(lambda change: self._note(resource, change))

    def _note(self, resource: Resource[Any], change: Change[HasMeta]) -> None:
        meta = change.object.metadata
        if change.kind is ChangeKind.DELETED:
            self._graph.drop(meta.uid)
        else:
            self._graph.put(Item(resource=resource, meta=meta))
        affected = [*self._graph.dependents_of(meta.uid)] if _is_leaving(change) else []
        for uid in (meta.uid, *(one.meta.uid for one in affected), *(one.uid for one in meta.owner_references)):
            item = self._graph.get(uid)
            if item is not None and needs_work(item.meta):
                self.queue.add(uid)

    async def _sync(self, uid: str) -> None:
        item = self._graph.get(uid)
        if item is None:
            return
        owners = item.meta.owner_references if item.meta.deletion_timestamp is None else ()
        standings = {owner.uid: await self._standing(owner, item) for owner in owners}
        verdict = judge(item, standings, self._graph.dependents_of(uid))
        if verdict is not None:
            await self._carry_out(item, verdict)

    async def _standing(self, owner: OwnerReference, item: Item) -> Standing:
        known = self._graph.get(owner.uid)
        if known is not None:
            return standing_of(known)
        resource = self._kinds.get((owner.api_version, owner.kind))
        if resource is None:
            return Standing.SOLID  # a kind that is not served here: nobody can say that it is gone
        namespace = item.meta.namespace if resource.namespaced else None
        if resource.namespaced and not namespace:
            return Standing.SOLID  # a cluster-wide object cannot have such an owner; the original leaves it alone too
        found = await self._client.get(resource, owner.name, namespace)
        if found is None or found.metadata.uid != owner.uid:
            return Standing.ABSENT
        return standing_of(Item(resource=resource, meta=found.metadata))

    async def _carry_out(self, item: Item, verdict: Verdict) -> None:
        match verdict:
            case Release(finalizer=finalizer):
                await self._release(item, finalizer)
            case Orphan(dependents=dependents):
                for dependent in dependents:
                    await self._disown(dependent, frozenset({item.meta.uid}))
                await self._release(item, ORPHAN)
            case Clear(dependents=dependents):
                for dependent in dependents:
                    has_own = bool(self._graph.dependents_of(dependent.meta.uid))
                    await self._delete(dependent, "Foreground" if has_own else "Background")
            case Delete(propagation=propagation):
                await self._delete(item, propagation)
            case Disown(owner_uids=owner_uids):
                await self._disown(item, owner_uids)

    async def _release(self, item: Item, finalizer: str) -> None:
        await self._patch(item, {"finalizers": [name for name in item.meta.finalizers if name != finalizer]})

    async def _disown(self, item: Item, owner_uids: frozenset[str]) -> None:
        kept = [msgspec.to_builtins(one) for one in item.meta.owner_references if one.uid not in owner_uids]
        await self._patch(item, {"ownerReferences": kept})

    async def _delete(self, item: Item, propagation: str) -> None:
        meta = item.meta
        self._log.debug("delete", kind=item.resource.kind, name=meta.name, namespace=meta.namespace)
        await self._client.delete(
            item.resource, meta.name, meta.namespace or None, uid=meta.uid, propagation=propagation
        )

    async def _patch(self, item: Item, metadata: dict[str, Any]) -> None:
        meta = item.meta
        outcome = await self._client.patch(
            item.resource,
            meta.name,
            {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, **metadata}},
            kind=PatchKind.MERGE,
            namespace=meta.namespace or None,
        )
        if isinstance(outcome, Conflict):
            raise OutrunError(outcome.message)


class _ApiResource(msgspec.Struct, rename="camel"):
    name: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...] = ()


class _ResourceList(msgspec.Struct):
    resources: tuple[_ApiResource, ...] = ()


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version


class _Groups(msgspec.Struct):
    groups: tuple[_Group, ...] = ()


async def discover(client: Client) -> list[Resource[Thing]]:
    """Every kind that can be listed, watched and deleted, in its group's preferred version.

    Raises KubeUnavailable or KubeError.
    """
    groups = msgspec.json.decode(await _read(client, "/apis"), type=_Groups).groups
    found = []
    for path, group, version in [("/api/v1", "", "v1"), *(_split(one.preferred_version) for one in groups)]:
        listed = msgspec.json.decode(await _read(client, path), type=_ResourceList).resources
        found += [
            Resource(
                group=group, version=version, plural=one.name, kind=one.kind, namespaced=one.namespaced, view=Thing
            )
            for one in listed
            if "/" not in one.name and set(one.verbs) >= NEEDED_VERBS and one.name not in LEFT_OUT
        ]
    return found


def _split(version: _Version) -> tuple[str, str, str]:
    group, _, name = version.group_version.partition("/")
    return f"/apis/{version.group_version}", group, name


async def _read(client: Client, path: str) -> bytes:
    status, body = await client.raw("GET", path)
    if status != 200:  # noqa: PLR2004
        raise KubeError(f"GET {path}: {status}", status=status)
    return body


def _is_leaving(change: Change[HasMeta]) -> bool:
    return change.kind is ChangeKind.DELETED or change.object.metadata.deletion_timestamp is not None
