"""What the evictor may do in a cluster. Compared with deploy/base/evictor/rbac.yaml by a test."""

from typing import Final

from overspill_events.names import CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE
from overspill_evictor.service import LEASE
from overspill_kube.effects import RULES
from overspill_kube.grants import Grant, everywhere, leadership, within
from overspill_kube.resources import NODES, PDBS, PODS, REPLICA_SETS, RESOURCE_QUOTAS
from overspill_service import pausing

PERMISSIONS: Final[tuple[Grant, ...]] = (
    *everywhere(
        NODES.rule("get", "list", "watch"),
        PODS.rule("get", "list", "watch"),
        REPLICA_SETS.rule("get", "list", "watch"),
        RESOURCE_QUOTAS.rule("list", "watch"),
        PDBS.rule("get"),
        *RULES["evict"],
        *RULES["record_event"],
    ),
    *within(SYSTEM_NAMESPACE, pausing.RULE, names=(CONTROL_CONFIG_MAP,)),
    *leadership(LEASE),
)
