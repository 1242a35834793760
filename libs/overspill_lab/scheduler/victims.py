"""Tells a pod to go because a more important one needs its room: first why, then the deletion.

No budget is asked: that was done when the victims were chosen, as well as it could be.
"""

from typing import Final

from overspill_kube.client import Client, PatchKind
from overspill_kube.resources import PODS
from overspill_lab.scheduler.ask import BY_PREEMPTION, Ask
from overspill_lab.stamps import stamp

WHY: Final = "lab scheduler: preempting to accommodate a higher priority pod"


async def send_away(client: Client, victim: Ask) -> None:
    """Delete a pod with its own grace, its condition DisruptionTarget saying why. A pod that is gone is no error.

    Raises KubeUnavailable and KubeError.
    """
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": BY_PREEMPTION,
        "message": WHY,
        "lastTransitionTime": stamp(client.clock.now()),
    }
    await client.patch(
        PODS,
        victim.name,
        {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}},
        kind=PatchKind.STRATEGIC,
        namespace=victim.namespace,
        subresource="status",
    )
    await client.delete(PODS, victim.name, victim.namespace, uid=victim.uid)
