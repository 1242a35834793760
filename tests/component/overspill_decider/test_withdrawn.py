"""A decision that the stream did not take is not carried out, and is never told later as if it had been made."""

from overspill_decider.service import LEASE, SERVICE, body
from overspill_decider.settings import Settings
from overspill_events.catalog import GateDecided, GateOpened
from overspill_events.names import GATE_ANNOTATION, SWITCH_TAINT
from overspill_events.reasons import GateReason
from overspill_kube.client import PatchKind
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_runtime.process import process
from overspill_runtime.settings import load
from overspill_service import serve
from tests.component.overspill_decider.test_deciding import (
    NODE,
    OPENED,
    decided,
    env_of,
    flips,
    home,
    neighbours,
    taints,
    told,
)
from tests.support.house import eventually, running

__all__ = ["home", "neighbours"]  # fixtures


class Gauges:
    """What the decider counts: how it is with the bus, and how often that made it hold still."""

    def __init__(self, registry):
        self._registry = registry

    async def cut_off(self):
        async def is_cut():
            return self._registry.get_sample_value("overspill_nats_connected") == 0.0

        await eventually(is_cut, describe="the decider knows that the bus is away")

    async def refused(self, times):
        """Wait until the stream has not taken an event so many times more. One of them may have been under way before."""
        before = self._count()

        async def so_often():
            return self._count() >= before + times

        await eventually(so_often, describe=f"{times} events refused")

    def _count(self):
        return self._registry.get_sample_value("overspill_decider_holds_total", {"what": "bus"}) or 0.0


async def order(home, verdict):
    """An operator's order, which needs no samples; None takes it back."""
    body = {"metadata": {"annotations": {GATE_ANNOTATION: verdict}}}
    assert isinstance(await home.kube.patch(NODES, NODE, body, kind=PatchKind.MERGE), Done)


async def test_a_decision_refused_by_the_stream_is_withdrawn(home, neighbours):
    settings = load(Settings, service=SERVICE, env=env_of(home))
    async with (
        process(settings, service=SERVICE) as own,
        running(serve(SERVICE, settings, body, lease=LEASE, process=own)),
    ):
        gauges = Gauges(own.registry)
        await decided(home, GateReason.ALREADY)
        await home.nats.kill()
        await gauges.cut_off()
        await order(home, "open")
        await gauges.refused(2)  # the second was decided by the order
        assert SWITCH_TAINT in await taints(home), "opened, and the stream does not have it"
        await order(home, None)
        await gauges.refused(1)  # what was under way then was about the order still
        await home.nats.restart()
        neighbours.free = 0.0
        (opened,) = await told(home, GateOpened)
    decisions = {one.envelope.id: one.event for one in await home.events(GateDecided)}
    assert GateReason.BY_OPERATOR not in [one.reason for one in decisions.values()], "told, and it never happened"
    assert decisions[opened.envelope.causation_id].reason is GateReason.HOME_FULL
    assert await flips(home) == [OPENED]
