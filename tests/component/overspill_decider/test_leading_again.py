"""A process that lost its lease and takes it again goes on deciding."""

from overspill_events.catalog import LeadershipLost, LeadershipTaken
from overspill_kube.client import PatchKind
from overspill_kube.resources import LEASES
from tests.component.overspill_decider.test_deciding import LEASE, decider, gate_is, home, neighbours, told
from tests.support.house import running

__all__ = ["home", "neighbours"]  # fixtures


async def test_a_second_leadership_in_the_same_process_decides(home, neighbours):
    """Metrics and state of the first must not stand in its way."""
    async with running(decider(home)):
        await told(home, LeadershipTaken)
        theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
        await home.kube.patch(LEASES, LEASE, theft, namespace="overspill-system", kind=PatchKind.MERGE)
        await told(home, LeadershipLost)
        await told(home, LeadershipTaken, count=2)
        neighbours.free = 0.0
        await gate_is(home, is_open=True)
