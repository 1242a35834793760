"""Everything the bridge writes to a pod: its status, its marks, its removal. Each is fenced by the pod's UID.

A pod that is gone or replaced meanwhile is no failure: the informer brings the news. Anything else that was not carried
out is raised, so that its key is tried again. What was written is known at once, before the informer tells it: the next
look at the pod would otherwise write the same again, onto a version that is no more. This module decides nothing.
"""

import asyncio

from overspill_bridge.adoption import Mark, Patch, adoption_patch, release_patch
from overspill_bridge.podstatus import Desired, status_patch
from overspill_bridge.settings import Settings
from overspill_bridge.world import Pods, ref_of
from overspill_kube.client import Client, PatchKind
from overspill_kube.effects import patch_pod_status
from overspill_kube.outcomes import Done, NotFound, Outcome, Refusal, Replaced
from overspill_kube.resources import PODS
from overspill_objects.core import Pod
from overspill_runtime.settings import Mode


class NotCarriedOut(Exception):  # noqa: N818 -- what it says is what happened
    """The API server refused an effect; it is tried again."""


class PodEffects:
    """Writes to pods, at most `status_concurrency` at once. In observe mode nothing is written and all is well."""

    def __init__(self, kube: Client, settings: Settings, pods: Pods) -> None:
        self._kube = kube
        self._pods = pods
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.status_concurrency)

    async def say(self, pod: Pod, desired: Desired) -> bool:
        """Make the status say what is desired; returns whether that took a write.

        Only onto the version that was judged: a status must not go back in time.
        """
        patch = status_patch(pod, desired, now=self._kube.clock.now())
        if patch is None or self._observes:
            return False
        async with self._slots:
            outcome = await patch_pod_status(self._kube, ref_of(pod), patch, pod.metadata.resource_version)
        return self._wrote(pod, outcome, "status")

    async def adopt(self, pod: Pod, mark: Mark) -> bool:
        """Mark a pod with its instance and make it outlive outages of the bridge."""
        settings = self._settings
        patch = adoption_patch(
            pod, mark, outage_tolerance=settings.outage_tolerance, deletion_cost=settings.pod_deletion_cost
        )
        return await self._patch(pod, patch)

    async def release(self, pod: Pod) -> bool:
        """Take the marks off a pod that is to get another instance."""
        return await self._patch(pod, release_patch(pod))

    async def remove(self, pod: Pod) -> None:
        """Remove a deleted pod from the API for good: exactly this one."""
        if self._observes:
            return
        meta = pod.metadata
        async with self._slots:
            outcome = await self._kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0)
        _took_effect(outcome, f"removal of {_name(pod)}")

    @property
    def _observes(self) -> bool:
        return self._settings.mode is Mode.OBSERVE

    async def _patch(self, pod: Pod, patch: Patch | None) -> bool:
        if patch is None or self._observes:
            return False
        meta = pod.metadata
        async with self._slots:
            outcome = await self._kube.patch(PODS, meta.name, patch, kind=PatchKind.JSON, namespace=meta.namespace)
        return self._wrote(pod, outcome, "annotations")

    def _wrote(self, pod: Pod, outcome: Outcome[Pod], what: str) -> bool:
        if isinstance(outcome, Done):
            self._pods.wrote(pod, outcome.object)
        return _took_effect(outcome, f"{what} of {_name(pod)}")


def _took_effect(outcome: Done[Pod] | Done[None] | Refusal, what: str) -> bool:
    if isinstance(outcome, Done):
        return True
    if isinstance(outcome, NotFound | Replaced):
        return False
    raise NotCarriedOut(f"{what}: {outcome}")


def _name(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
