"""What the sampler may do in a cluster: look. Compared with deploy/base/sampler/rbac.yaml by a test."""

from typing import Final

from overspill_kube.grants import Grant, everywhere, leadership
from overspill_kube.resources import NODES, PODS
from overspill_sampler import devices
from overspill_sampler.service import LEASE

PERMISSIONS: Final[tuple[Grant, ...]] = (
    *everywhere(NODES.rule("list", "watch"), PODS.rule("list", "watch"), *devices.RULES),
    *leadership(LEASE),
)
