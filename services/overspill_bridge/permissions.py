"""What the bridge may do in a cluster. Compared with deploy/base/bridge/rbac.yaml by a test.

RBAC cannot say "only virtual nodes and what is bound to them": deploy/base/policies/validating.yaml does. The lease of
leadership carries the node's name, which is a setting.
"""

from typing import Final

from overspill_bridge.nodekeeping import LEASE_NAMESPACE
from overspill_bridge.service import IDENTITY_NAMESPACE
from overspill_events.names import CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE
from overspill_kube.effects import RULES
from overspill_kube.grants import Grant, everywhere, leadership, within
from overspill_kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS, SECRETS
from overspill_service import pausing

PERMISSIONS: Final[tuple[Grant, ...]] = (
    *everywhere(
        NODES.rule("get", "list", "watch", "create", "patch"),
        NODES.rule("patch", subresource="status"),
        PODS.rule("get", "list", "watch", "patch", "delete"),
        CONFIG_MAPS.rule("get"),
        SECRETS.rule("get"),
        *RULES["set_taints"],
        *RULES["patch_pod_status"],
        *RULES["record_event"],
    ),
    Grant(rule=NAMESPACES.rule("get"), names=(IDENTITY_NAMESPACE,)),
    *within(LEASE_NAMESPACE, LEASES.rule("create", "patch")),
    *within(SYSTEM_NAMESPACE, pausing.RULE, names=(CONTROL_CONFIG_MAP,)),
    *leadership(),
)
