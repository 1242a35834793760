"""What `overspill doctor` says about the MutatingAdmissionPolicies, and what is missing where there are none."""

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from overspill_cli.findings import Finding, Health
from overspill_kube.client import Client

WHAT: Final = "admission policies"
GROUP_VERSION: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = "mutatingadmissionpolicies"
BINDINGS: Final = "mutatingadmissionpolicybindings"
GUIDE: Final = "docs/without-admission-policies.md"
LAB: Final = "+overspill-lab"  # the lab's API server does the same by itself

# Policy → what nobody does for users without it.
DOES: Final = {
    "overspill-tolerate-external": "spillable pods get no toleration of overspill.dev/external and never overflow",
    "overspill-prefer-home": "spillable pods get no affinity for home; the preference taint alone keeps them there",
    "overspill-gate-queued-pods": "queued pods get no gate and start without a quota",
    "overspill-prioritise-queued-pods": "queued pods get no priority by GPUs",
    "overspill-hold-queued-jobs": "queued Jobs are not suspended and start without a quota",
    "overspill-prioritise-queued-jobs": "queued Jobs get no priority by GPUs",
}


class _Resource(Struct):
    name: str


class _Resources(Struct):
    resources: tuple[_Resource, ...] = ()


class _Meta(Struct):
    name: str


class _Object(Struct):
    metadata: _Meta


class _List(Struct):
    items: tuple[_Object, ...] = ()


async def policies_finding(kube: Client, *, version: str) -> Finding:
    """Whether they are served and installed. Raises KubeUnavailable."""
    if LAB in version:
        return Finding(what=WHAT, health=Health.OK, detail="the lab does the same by itself")
    status, body = await kube.raw("GET", GROUP_VERSION)
    served = {one.name for one in msgspec.json.decode(body, type=_Resources).resources} if status == 200 else set()  # noqa: PLR2004
    if not {POLICIES, BINDINGS} <= served:
        return missing(DOES, why="this API server has no MutatingAdmissionPolicies (v1, Kubernetes 1.36)")
    names: list[set[str]] = []
    for kind in (POLICIES, BINDINGS):
        status, body = await kube.raw("GET", f"{GROUP_VERSION}/{kind}")
        if status != 200:  # noqa: PLR2004
            return Finding(
                what=WHAT,
                health=Health.WARNING,
                detail=f"not known: {kind} answers {status}",
                advice=f"let these credentials list {kind}; without the policies: {GUIDE}",
            )
        names.append({one.metadata.name for one in msgspec.json.decode(body, type=_List).items})
    absent = [name for name in DOES if not all(name in there for there in names)]
    if absent:
        return missing(absent, why=f"not installed or not bound: {', '.join(absent)}")
    return Finding(what=WHAT, health=Health.OK, detail=f"{len(DOES)} installed")


def missing(absent: Collection[str], *, why: str) -> Finding:
    """What is missing without these policies, and where it is written what to do instead."""
    return Finding(
        what=WHAT,
        health=Health.WARNING,
        detail=f"{why}: " + "; ".join(DOES[name] for name in absent),
        advice=f"kubectl apply -k deploy/ where they are served, otherwise users write it themselves: {GUIDE}",
    )
