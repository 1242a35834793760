"""What the admitter may do in a cluster. Compared with deploy/base/admitter/rbac.yaml by a test.

Kueue's lease and Deployment are named in a rule for the whole cluster: a Role could not be applied where there is no
namespace of Kueue's.
"""

from typing import Final

from overspill_admitter import kueue
from overspill_admitter.service import LEASE
from overspill_events.names import CONTROL_CONFIG_MAP, SYSTEM_NAMESPACE
from overspill_kube.effects import RULES
from overspill_kube.grants import Grant, everywhere, leadership, within
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
)
from overspill_service import pausing

PERMISSIONS: Final[tuple[Grant, ...]] = (
    *everywhere(
        *(kind.rule("list", "watch") for kind in (JOBS, PODS, NODES, NAMESPACES, PRIORITY_CLASSES)),
        *(kind.rule("get", "list", "watch") for kind in (CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS)),
        *RULES["set_suspend"],
        *RULES["remove_gate"],
        *RULES["record_event"],
    ),
    Grant(rule=DEPLOYMENTS.rule("get"), names=(kueue.DEPLOYMENT,)),
    Grant(rule=LEASES.rule("get"), names=(kueue.LEASE,)),
    *within(SYSTEM_NAMESPACE, pausing.RULE, names=(CONTROL_CONFIG_MAP,)),
    *leadership(LEASE),
)
