"""Every name that Overspill shows to a cluster, declared once.

Labels, annotations, taints and gates are promises to users: changing one needs an ADR and a migration. This module
holds constants only; it must not know who uses them.
"""

from typing import Final

DOMAIN: Final = "overspill.dev"

# The services: those that act, one leader each by its lease, and the recorder, which only listens.
LEADING: Final = ("sampler", "decider", "evictor", "admitter", "bridge")
SERVICES: Final = (*LEADING, "recorder")

# Taints of a virtual node. The base and preference taints are always there; the switch taint is the gate.
BASE_TAINT: Final = f"{DOMAIN}/external"
PREFERENCE_TAINT: Final = f"{DOMAIN}/prefer-home"
SWITCH_TAINT: Final = f"{DOMAIN}/home-has-room"
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

# Conditions of a virtual node.
PROVIDER_CONDITION: Final = f"{DOMAIN}/provider-"  # + name: on a virtual node, one condition for each provider

# Labels.
SPILLABLE_LABEL: Final = f"{DOMAIN}/spillable"  # "true" on a pod: it may overflow
VIRTUAL_LABEL: Final = f"{DOMAIN}/virtual"  # "true" on a virtual node; soft home affinity asks for its absence
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

# Annotations that users may set on pods or their owners.
FLOOR_ANNOTATION: Final = (
    f"{DOMAIN}/floor"  # on a ReplicaSet's pods or owner: ready replicas that must stay, integer >= 1
)
MAX_PRICE_ANNOTATION: Final = f"{DOMAIN}/max-price-per-hour"  # on a pod: dollars per instance hour, decimal > 0
REGIONS_ANNOTATION: Final = f"{DOMAIN}/regions"  # on a pod: comma-separated regions it may run in
GPU_TYPE_ANNOTATION: Final = f"{DOMAIN}/gpu-type"  # on a pod: comma-separated GPU types it accepts
SECRETS_ANNOTATION: Final = f"{DOMAIN}/secrets-may-leave"  # "true" on a pod: its Secrets and token may go to a provider

# Annotations that the bridge writes on the pods it runs.
PROVIDER_ANNOTATION: Final = f"{DOMAIN}/provider"
INSTANCE_ANNOTATION: Final = f"{DOMAIN}/instance"
PRICE_ANNOTATION: Final = f"{DOMAIN}/price-per-hour"
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"

# Annotations that an operator's order puts on a virtual node; without them its gate follows the marks.
GATE_ANNOTATION: Final = f"{DOMAIN}/gate"  # open | closed
GATE_UNTIL_ANNOTATION: Final = f"{DOMAIN}/gate-until"  # RFC 3339 with a zone; absent: until it is taken back
GATE_BY_ANNOTATION: Final = f"{DOMAIN}/gate-by"
GATE_REASON_ANNOTATION: Final = f"{DOMAIN}/gate-reason"

# Gates, classes, objects.
ADMISSION_GATE: Final = f"{DOMAIN}/admission"
GPU_PRIORITY_CLASS_PREFIX: Final = "overspill-gpu-"  # + number of GPUs, 1 (lowest) to 8 (highest)
SYSTEM_NAMESPACE: Final = "overspill-system"
CONTROL_CONFIG_MAP: Final = "overspill-control"  # in the system namespace: which services are paused
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
PART_OF: Final = "overspill"  # its value on everything that an installation consists of
FIELD_MANAGER_PREFIX: Final = "overspill-"
GPU_RESOURCE: Final = "nvidia.com/gpu"

# Tags on instances at a provider.
CLUSTER_TAG: Final = "overspill-cluster"  # UID of kube-system
NODE_TAG: Final = "overspill-node"
POD_UID_TAG: Final = "overspill-pod-uid"
POD_TAG: Final = "overspill-pod"  # namespace/name, for people
