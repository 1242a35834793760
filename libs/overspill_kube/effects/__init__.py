"""Effects: the few ways in which Overspill changes a cluster, each fenced so that it can only hit what was decided
about.

A fence is a UID, a resourceVersion, or a `test` of the old value inside the patch. Each effect names the permissions
that it needs in `RULES`. None of them judges: whether to act is decided before.
"""

from overspill_kube.effects import annotations, eviction, notes, pods, taints, workloads
from overspill_kube.effects.annotations import annotate, annotate_node
from overspill_kube.effects.eviction import Evicted, EvictionOutcome, Gone, PdbBlocked, Refused, evict
from overspill_kube.effects.fence import Contended
from overspill_kube.effects.notes import record_event
from overspill_kube.effects.pods import patch_pod_status, remove_gate
from overspill_kube.effects.taints import TaintsSet, set_taints
from overspill_kube.effects.workloads import set_suspend
from overspill_kube.rules import Rule

__all__ = [
    "RULES",
    "Contended",
    "Evicted",
    "EvictionOutcome",
    "Gone",
    "PdbBlocked",
    "Refused",
    "TaintsSet",
    "annotate",
    "annotate_node",
    "evict",
    "patch_pod_status",
    "record_event",
    "remove_gate",
    "set_suspend",
    "set_taints",
]

# Effect → the permissions that a service account needs for it.
RULES: dict[str, tuple[Rule, ...]] = {
    "set_taints": taints.RULES,
    "evict": eviction.RULES,
    "patch_pod_status": pods.STATUS_RULES,
    "annotate": annotations.POD_RULES,
    "annotate_node": annotations.NODE_RULES,
    "remove_gate": pods.PATCH_RULES,
    "set_suspend": workloads.RULES,
    "record_event": notes.RULES,
}
