"""Changes to workloads that the admitter holds back or lets go."""

from typing import Final

from overspill_kube.client import Client
from overspill_kube.effects.fence import Contended, Document, JsonPatch, Target, patch_tested
from overspill_kube.outcomes import Outcome
from overspill_kube.resources import JOBS
from overspill_objects.batch import Job

RULES: Final = (JOBS.rule("get", "patch"),)


async def set_suspend(client: Client, job: Target, suspend: bool) -> Outcome[Job] | Contended:  # noqa: FBT001
    """Suspend exactly this Job or let it run; Done without a write when it is so already."""

    def build(document: Document) -> JsonPatch | None:
        spec = document["spec"]
        if bool(spec.get("suspend", False)) is suspend:
            return None
        if "suspend" not in spec:
            return [{"op": "add", "path": "/spec/suspend", "value": suspend}]
        return [
            {"op": "test", "path": "/spec/suspend", "value": not suspend},
            {"op": "replace", "path": "/spec/suspend", "value": suspend},
        ]

    return await patch_tested(client, JOBS, name=job.name, namespace=job.namespace, uid=job.uid, build=build)
