"""What the decider may do in a cluster. Compared with deploy/base/decider/rbac.yaml by a test.

RBAC cannot say "only the switch taint": deploy/base/policies/validating.yaml does.
"""

from typing import Final

from overspill_decider.service import LEASE
from overspill_events.names import CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE
from overspill_kube.effects import RULES
from overspill_kube.grants import Grant, everywhere, leadership, within
from overspill_kube.resources import NODES
from overspill_service import pausing

PERMISSIONS: Final[tuple[Grant, ...]] = (
    *everywhere(NODES.rule("list"), *RULES["set_taints"], *RULES["record_event"]),
    *within(SYSTEM_NAMESPACE, pausing.RULE, names=(CONTROL_CONFIG_MAP,)),
    *leadership(LEASE),
)
