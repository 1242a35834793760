"""Changes to one pod: its status and its gates, fenced by its UID."""

from collections.abc import Mapping
from typing import Any, Final

from overspill_kube.client import Client, PatchKind
from overspill_kube.effects.fence import Contended, Document, JsonPatch, Target, patch_tested, replace_list
from overspill_kube.outcomes import Invalid, Outcome, Replaced
from overspill_kube.resources import PODS
from overspill_objects.core import Pod

STATUS_RULES: Final = (PODS.rule("patch", subresource="status"),)
PATCH_RULES: Final = (PODS.rule("get", "patch"),)


async def patch_pod_status(
    client: Client, pod: Target, status: Mapping[str, Any], resource_version: str | None = None
) -> Outcome[Pod]:
    """Merge into the status of exactly this pod: conditions by type, other lists whole, absent fields stay.

    With `resource_version` only if nobody has written the pod since (Conflict otherwise). Never a PUT: fields that we
    do not know would be lost.
    """
    meta: dict[str, Any] = {"uid": pod.uid}
    if resource_version is not None:
        meta["resourceVersion"] = resource_version
    outcome = await client.patch(
        PODS,
        pod.name,
        {"metadata": meta, "status": dict(status)},
        kind=PatchKind.STRATEGIC,
        namespace=pod.namespace,
        subresource="status",
    )
    return _replaced_if_uid(outcome)


async def remove_gate(client: Client, pod: Target, gate: str) -> Outcome[Pod] | Contended:
    """Remove one scheduling gate of exactly this pod; Done without a write when it has none of that name."""

    def build(document: Document) -> JsonPatch | None:
        old = document.get("spec", {}).get("schedulingGates") or []
        new = [entry for entry in old if entry["name"] != gate]
        return None if new == old else replace_list(document, "spec", "schedulingGates", new)

    return await patch_tested(client, PODS, name=pod.name, namespace=pod.namespace, uid=pod.uid, build=build)


def _replaced_if_uid(outcome: Outcome[Pod]) -> Outcome[Pod]:
    """A patch that names another UID may be refused as a change of an immutable field: it means Replaced."""
    if isinstance(outcome, Invalid) and "metadata.uid" in outcome.fields:
        return Replaced(outcome.message)
    return outcome
