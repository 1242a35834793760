"""Is Kueue's own controller at work in this cluster? Then it admits, and we only observe.

Its lease is renewed as long as it lives. Renewal times come from another clock, so that only their change between two
looks counts; a lease seen for the first time is taken for alive.
"""

from typing import Final

from overspill_kube.client import Client
from overspill_kube.resources import DEPLOYMENTS, LEASES
from overspill_objects.coordination import Lease

NAMESPACE: Final = "kueue-system"
LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
DEPLOYMENT: Final = "kueue-controller-manager"
MISSED: Final = 3  # lease durations without a renewal: its holder is gone


class KueueWatch:
    """Looks at Kueue's lease and Deployment; remembers when the lease was last seen to change."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: Lease | None = None
        self._changed_at = 0.0

    async def is_alive(self) -> bool:
        """Whether Kueue's controller works here. Raises KubeUnavailable, KubeError."""
        deployment = await self._client.get(DEPLOYMENTS, DEPLOYMENT, NAMESPACE)
        if deployment is not None and deployment.status.ready_replicas > 0:
            return True
        lease = await self._client.get(LEASES, LEASE, NAMESPACE)
        return self._lease_is_alive(lease, now=self._client.clock.monotonic())

    def _lease_is_alive(self, lease: Lease | None, *, now: float) -> bool:
        if lease is None or not lease.spec.holder_identity:
            self._seen = None
            return False
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen, self._changed_at = lease, now
        return now - self._changed_at < MISSED * max(1, lease.spec.lease_duration_seconds)
