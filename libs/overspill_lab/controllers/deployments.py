"""Deployments: one ReplicaSet per pod template, scaled step by step towards the present one."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from overspill_kube.client import PatchKind
from overspill_kube.errors import KubeError
from overspill_kube.informer import Change, Key
from overspill_kube.outcomes import AlreadyExists, Conflict, Done, NotFound, Replaced
from overspill_lab.controllers.cluster import DEPLOYMENTS, REPLICA_SETS, Cluster, Workload, key_of
from overspill_lab.controllers.deployment_rules import (
    DESIRED_REPLICAS,
    HASH_LABEL,
    MAX_REPLICAS,
    REVISION,
    Replicas,
    deployment_status,
    first_scale,
    next_scales,
    same_template,
    surge,
    template_hash,
)
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.controllers.writing import OutrunError, owner_reference, write_status
from overspill_objects.meta import controller_of

HISTORY_LIMIT: Final = 10
EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)


class Deployments:
    """The controller; `queue.run` works."""

    def __init__(self, cluster: Cluster) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("deployments", self._sync)
        self._cluster = cluster
        cluster.deployments.subscribe(lambda change: self.queue.add(key_of(change.object)))
        cluster.replica_sets.subscribe(self._on_set)

    def _on_set(self, change: Change[Workload]) -> None:
        owner = controller_of(change.object.metadata)
        if owner is not None and owner.kind == DEPLOYMENTS.kind:
            self.queue.add((change.object.metadata.namespace, owner.name))

    async def _sync(self, key: Key) -> None:
        found = self._cluster.deployments.get(*key)
        if found is None:
            return
        sets = self._cluster.replica_sets_of.of(found.metadata.uid)
        new = next((one for one in sets if same_template(one.spec["template"], found.spec["template"])), None)
        old = [one for one in sets if one is not new]
        if found.metadata.deletion_timestamp is None:
            if new is None and not found.spec.get("paused"):
                new = await self._create_set(found, old)
            await self._scale(found, new, old)
            await self._mark_revision(found, new, old)
            await self._clean_up(found, old)
        status = deployment_status(
            found.spec,
            found.status,
            generation=found.metadata.generation,
            new=replicas_of(new) if new else None,
            old=[replicas_of(one) for one in old],
            now=self._cluster.client.clock.now(),
        )
        await write_status(self._cluster.client, DEPLOYMENTS, found, found.status, status)

    async def _create_set(self, found: Workload, old: Sequence[Workload]) -> Workload:
        collisions = found.status.get("collisionCount") or 0
        template_digest = template_hash(found.spec["template"], collisions)
        name = f"{found.metadata.name}-{template_digest}"
        body = self._set_body(found, old, name=name, template_digest=template_digest)
        outcome = await self._cluster.client.create(REPLICA_SETS, body, found.metadata.namespace)
        match outcome:
            case Done(object=created):
                return created
            case AlreadyExists():
                return await self._existing(found, name, collisions)
        raise KubeError(f"replica set {name} not created: {outcome}", status=0)

    def _set_body(self, found: Workload, old: Sequence[Workload], *, name: str, template_digest: str) -> dict[str, Any]:
        template = found.spec["template"]
        metadata = template.get("metadata", {})
        labels = {**metadata.get("labels", {}), HASH_LABEL: template_digest}
        selector = found.spec["selector"]
        return {
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {**self._counts(found), REVISION: str(_last_revision(old) + 1)},
                "ownerReferences": [owner_reference(DEPLOYMENTS, found)],
            },
            "spec": {
                "replicas": first_scale(found.spec, [replicas_of(one) for one in old]),
                "minReadySeconds": found.spec.get("minReadySeconds", 0),
                "selector": {
                    **selector,
                    "matchLabels": {**selector.get("matchLabels", {}), HASH_LABEL: template_digest},
                },
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }

    async def _existing(self, found: Workload, name: str, collisions: int) -> Workload:
        """A ReplicaSet of that name is there: ours that the watch has not shown yet, or a collision of the hash."""
        client = self._cluster.client
        existing = await client.get(REPLICA_SETS, name, found.metadata.namespace)
        if existing is None:
            raise OutrunError(f"replica set {name} came and went")
        owner = controller_of(existing.metadata)
        is_ours = owner is not None and owner.uid == found.metadata.uid
        if is_ours and same_template(existing.spec["template"], found.spec["template"]):
            return existing
        await write_status(client, DEPLOYMENTS, found, found.status, {**found.status, "collisionCount": collisions + 1})
        raise OutrunError(f"replica set {name} is another's: trying the next name")

    async def _scale(self, found: Workload, new: Workload | None, old: Sequence[Workload]) -> None:
        wanted = next_scales(found.spec, replicas_of(new) if new else None, [replicas_of(one) for one in old])
        for one in (*([new] if new else []), *old):
            if one.metadata.name in wanted:
                body = {
                    "metadata": {
                        "uid": one.metadata.uid,
                        "resourceVersion": one.metadata.resource_version,
                        "annotations": self._counts(found),
                    },
                    "spec": {"replicas": wanted[one.metadata.name]},
                }
                await self._patch_set(one, body)

    async def _patch_set(self, one: Workload, body: dict[str, Any]) -> None:
        outcome = await self._cluster.client.patch(
            REPLICA_SETS, one.metadata.name, body, kind=PatchKind.MERGE, namespace=one.metadata.namespace
        )
        match outcome:
            case Done() | NotFound() | Replaced():
                return
            case Conflict(message=message):
                raise OutrunError(message)
        raise KubeError(f"replica set {one.metadata.name} not changed: {outcome}", status=0)

    async def _mark_revision(self, found: Workload, new: Workload | None, old: Sequence[Workload]) -> None:
        """The present template's revision is the highest, also when it is an old one again; users read it."""
        if new is None:
            return
        revision = max(_revision(new), _last_revision(old) + 1)
        if revision != _revision(new):
            await self._patch_set(
                new, {"metadata": {"uid": new.metadata.uid, "annotations": {REVISION: str(revision)}}}
            )
        if found.metadata.annotations.get(REVISION) != str(revision):
            await self._cluster.client.patch(
                DEPLOYMENTS,
                found.metadata.name,
                {"metadata": {"uid": found.metadata.uid, "annotations": {REVISION: str(revision)}}},
                kind=PatchKind.MERGE,
                namespace=found.metadata.namespace,
            )

    async def _clean_up(self, found: Workload, old: Sequence[Workload]) -> None:
        limit = found.spec.get("revisionHistoryLimit", HISTORY_LIMIT)
        empty = [one for one in old if not one.spec["replicas"] and not one.status.get("replicas")]
        excess = sorted(empty, key=_revision)[: max(0, len(old) - limit)]
        for one in excess:
            meta = one.metadata
            await self._cluster.client.delete(REPLICA_SETS, meta.name, meta.namespace, uid=meta.uid)

    def _counts(self, found: Workload) -> dict[str, str]:
        wanted = found.spec["replicas"]
        return {DESIRED_REPLICAS: str(wanted), MAX_REPLICAS: str(wanted + surge(found.spec)[0])}


def replicas_of(found: Workload) -> Replicas:
    """A ReplicaSet in numbers."""
    status = found.status
    return Replicas(
        name=found.metadata.name,
        created=found.metadata.creation_timestamp or EPOCH,
        wanted=found.spec["replicas"],
        present=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        observed=status.get("observedGeneration", 0) >= found.metadata.generation,
    )


def _revision(found: Workload) -> int:
    text = found.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _last_revision(sets: Sequence[Workload]) -> int:
    return max((_revision(one) for one in sets), default=0)
