"""How long it takes to open and close a gate: the taint of one node set and removed, each a read and a tested patch."""

import time
from typing import Any, Final

from overspill_events.names import SWITCH_TAINT
from overspill_kube.client import Client
from overspill_kube.effects import TaintsSet, set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_objects.core import Taint
from tests.bench.figures import milliseconds

FLIPS: Final = 200
NODE: Final = "bench-taints"


async def measure(client: Client, *, share: float) -> dict[str, Any]:
    """One flip after the other, as the decider does."""
    made = await client.create(NODES, {"metadata": {"name": NODE}})
    assert isinstance(made, Done), made
    taint = Taint(key=SWITCH_TAINT, effect="NoSchedule")
    flips = round(FLIPS * share)
    times = []
    for number in range(flips):
        change = {"remove": [taint]} if number % 2 else {"add": [taint]}
        start = time.perf_counter()
        outcome = await set_taints(client, NODE, expect_uid=made.object.metadata.uid, **change)
        times.append(time.perf_counter() - start)
        assert isinstance(outcome, TaintsSet), outcome
        assert outcome.changed
    return {"flips": flips, "set_taints": milliseconds(times)}
