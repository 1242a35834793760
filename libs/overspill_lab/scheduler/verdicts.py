"""Tells pods why they wait, and where room is made for them: condition PodScheduled=False, and nominatedNodeName.

The first word and every other nomination are written at once. A message that only changes its numbers is written at
most every few seconds, or a queue of hundreds would be rewritten with every pod that comes or goes.
"""

import asyncio
from typing import Any, Final

import structlog
from msgspec import Struct

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.outcomes import Done
from overspill_kube.resources import PODS
from overspill_lab.scheduler.ask import Ask
from overspill_lab.stamps import stamp
from overspill_objects.core import Pod
from overspill_objects.meta import condition_of

REWRITE_AFTER_S: Final = 5.0
LOOK_EVERY_S: Final = 0.1
AT_ONCE: Final = 8


class _Wanted(Struct, frozen=True):
    ask: Ask
    message: str
    nominated: str


class Verdicts:
    """What pods should be told, and what they have been told."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wanted: dict[str, _Wanted] = {}
        self._told: dict[str, tuple[str, str]] = {}  # message and nomination
        self._told_at: dict[str, float] = {}
        self._work = asyncio.Event()
        self._log = structlog.get_logger()

    def want(self, ask: Ask, message: str, *, nominated: str) -> None:
        """This pod waits, this is why, and on that node (or none) room is made for it."""
        if self._told.get(ask.uid) == (message, nominated):
            self._wanted.pop(ask.uid, None)
        else:
            self._wanted[ask.uid] = _Wanted(ask, message, nominated)
            self._work.set()

    def settled(self, uid: str) -> None:
        """The pod waits no longer."""
        self._wanted.pop(uid, None)

    def saw(self, pod: Pod) -> None:
        """What the API server says now; after a restart nothing is said twice."""
        condition = condition_of(pod.status.conditions, "PodScheduled")
        if condition is not None and condition.status == "False":
            self._told[pod.metadata.uid] = (condition.message, pod.status.nominated_node_name)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        for known in (self._wanted, self._told, self._told_at):
            known.pop(uid, None)

    async def run(self) -> None:
        """Write what is due, for ever."""
        now = asyncio.get_running_loop().time
        while True:
            await self._work.wait()
            due = [
                one
                for uid, one in self._wanted.items()
                if uid not in self._told
                or self._told[uid][1] != one.nominated
                or now() - self._told_at.get(uid, 0.0) >= REWRITE_AFTER_S
            ]
            for start in range(0, len(due), AT_ONCE):
                await asyncio.gather(*(self._tell(one) for one in due[start : start + AT_ONCE]))
            if not self._wanted:
                self._work.clear()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _tell(self, wanted: _Wanted) -> None:
        ask = wanted.ask
        if self._wanted.get(ask.uid) != wanted:
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": wanted.message}
        if ask.uid not in self._told:
            condition["lastTransitionTime"] = stamp(self._client.clock.now())
        status: dict[str, Any] = {"conditions": [condition]}
        if self._told.get(ask.uid, ("", ""))[1] != wanted.nominated:
            status["nominatedNodeName"] = wanted.nominated or None
        try:
            outcome = await self._client.patch(
                PODS,
                ask.name,
                {"metadata": {"uid": ask.uid}, "status": status},
                kind=PatchKind.STRATEGIC,
                namespace=ask.namespace,
                subresource="status",
            )
        except (KubeUnavailable, KubeError) as error:
            self._log.warning("condition-not-written", pod=f"{ask.namespace}/{ask.name}", error=str(error))
            self._told_at[ask.uid] = asyncio.get_running_loop().time()
            return
        if self._wanted.get(ask.uid) == wanted:
            del self._wanted[ask.uid]
        if isinstance(outcome, Done):
            self._told[ask.uid] = (wanted.message, wanted.nominated)
            self._told_at[ask.uid] = asyncio.get_running_loop().time()
