"""What `overspill doctor` says about admission policies, and what is missing where there are none: the mutating ones do
for users what they would otherwise write themselves, the validating ones limit our own services.
"""

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
LIMITS: Final = "validating policies"
LIMITING: Final = "validatingadmissionpolicies"
LIMITING_BINDINGS: Final = "validatingadmissionpolicybindings"
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

LIMITS_OF: Final = (
    "overspill-decider-nodes",
    "overspill-bridge-nodes",
    "overspill-bridge-pods",
    "overspill-bridge-leases",
    "overspill-admitter-pods",
    "overspill-admitter-jobs",
    "overspill-protected-namespaces",
    "overspill-crds",
)


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
    absent = await _absent(kube, DOES, POLICIES, BINDINGS)
    if isinstance(absent, _Refused):
        return absent.finding(WHAT, otherwise=f"; without the policies: {GUIDE}")
    if absent:
        return missing(absent, why=f"not installed or not bound: {', '.join(absent)}")
    return Finding(what=WHAT, health=Health.OK, detail=f"{len(DOES)} installed")


async def limits_finding(kube: Client, *, version: str) -> Finding:
    """Whether those that limit our services are installed. Raises KubeUnavailable."""
    if LAB in version:
        return Finding(what=LIMITS, health=Health.OK, detail="the lab limits no service")
    absent = await _absent(kube, LIMITS_OF, LIMITING, LIMITING_BINDINGS)
    if isinstance(absent, _Refused):
        return absent.finding(LIMITS)
    if absent:
        why = f"not installed or not bound: {', '.join(absent)}: their services may change more than they need to"
        return Finding(what=LIMITS, health=Health.WARNING, detail=why, advice="kubectl apply -k deploy/")
    return Finding(what=LIMITS, health=Health.OK, detail=f"{len(LIMITS_OF)} installed")


class _Refused(Struct, frozen=True):
    kind: str
    status: int

    def finding(self, what: str, *, otherwise: str = "") -> Finding:
        """Not known, and what to do about it."""
        detail, advice = f"not known: {self.kind} answers {self.status}", f"let these credentials list {self.kind}"
        return Finding(what=what, health=Health.WARNING, detail=detail, advice=advice + otherwise)


async def _absent(kube: Client, wanted: Collection[str], *kinds: str) -> list[str] | _Refused:
    """Those that are not there in each of the kinds, policies and bindings."""
    names: list[set[str]] = []
    for kind in kinds:
        status, body = await kube.raw("GET", f"{GROUP_VERSION}/{kind}")
        if status != 200:  # noqa: PLR2004
            return _Refused(kind, status)
        names.append({one.metadata.name for one in msgspec.json.decode(body, type=_List).items})
    return [name for name in wanted if not all(name in there for there in names)]


def missing(absent: Collection[str], *, why: str) -> Finding:
    """What is missing without these policies, and where it is written what to do instead."""
    return Finding(
        what=WHAT,
        health=Health.WARNING,
        detail=f"{why}: " + "; ".join(DOES[name] for name in absent),
        advice=f"kubectl apply -k deploy/ where they are served, otherwise users write it themselves: {GUIDE}",
    )
