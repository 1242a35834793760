"""Which of a pod's wishes the lab's scheduler does not model.

A wish that is silently ignored would make the lab lie about where a pod can run. So a pod that has one stays Pending,
and its condition says why.
"""

from typing import Final

from overspill_lab.scheduler.constraints import unmodelled_spread
from overspill_objects.core import Pod

# Volumes that are the same on every node, or come with the pod; any other kind may tie a pod to some nodes.
FREE_VOLUMES: Final = frozenset(
    {"emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "csi", "image", "gitRepo"}
)


def what_is_refused(pod: Pod) -> str | None:
    """The first feature this pod asks for that the lab does not schedule, or None."""
    spec, affinity = pod.spec, pod.spec.affinity
    if affinity is not None and affinity.pod_affinity:
        return "pod affinity"
    if affinity is not None and affinity.pod_anti_affinity:
        return "pod anti-affinity"
    if (spread := unmodelled_spread(spec)) is not None:
        return spread
    if spec.resource_claims:
        return "resource claims"
    for volume in spec.volumes:
        kinds = set(volume) - {"name"} - FREE_VOLUMES
        if kinds:
            return f"volumes of kind {min(kinds)}"
    return None
