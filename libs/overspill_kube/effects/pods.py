"""Changes to one pod: its status, tolerations and gates, fenced by its UID."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from overspill_kube.client import Client, PatchKind
from overspill_kube.effects.fence import Contended, Document, JsonPatch, Target, patch_tested, replace_list
from overspill_kube.outcomes import Invalid, Outcome, Replaced
from overspill_kube.resources import PODS
from overspill_objects.core import Pod

STATUS_RULES: Final = (PODS.rule("patch", subresource="status"),)
PATCH_RULES: Final = (PODS.rule("get", "patch"),)

OUTAGE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


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


async def set_toleration_seconds(
    client: Client, pod: Target, seconds: int, *, keys: Sequence[str] = OUTAGE_TAINTS
) -> Outcome[Pod] | Contended:
    """Let the pod outlive a node that is not ready or unreachable by `seconds`.

    `tolerationSeconds` is the one part of an existing toleration that may change. A toleration without a limit is left
    as it is, a missing one is added. Done without a write when nothing is to change.
    """

    def build(document: Document) -> JsonPatch | None:
        old = document.get("spec", {}).get("tolerations") or []
        new = _with_seconds(old, seconds, keys)
        return None if new == old else replace_list(document, "spec", "tolerations", new)

    return await patch_tested(client, PODS, name=pod.name, namespace=pod.namespace, uid=pod.uid, build=build)


def _with_seconds(old: list[Document], seconds: int, keys: Sequence[str]) -> list[Document]:
    missing = list(keys)
    result: list[Document] = []
    for entry in old:
        known, effect = entry.get("key") in keys, entry.get("effect", "")
        if known and effect in {"NoExecute", ""}:
            missing = [key for key in missing if key != entry["key"]]
        limited = known and effect == "NoExecute" and "tolerationSeconds" in entry
        result.append({**entry, "tolerationSeconds": seconds} if limited else entry)
    added = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for key in missing]
    return result + added


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
