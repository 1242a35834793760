"""Bind → Running on the virtual node, beside the same pods on a node without delay: paced, and as a burst.

Both in one run, on one control plane, with pods of one shape. The cloud provisions at once, so what is left is the
bridge, its provider's answers (`bridge.POLL_S` apart) and the API server.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any, Final

from overspill_bus.testing import nats_server
from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.client import Client
from overspill_kube.outcomes import Done
from overspill_kube.resources import NAMESPACES
from tests.bench import bridge
from tests.bench.figures import ratios
from tests.bench.machine import with_machine
from tests.bench.pacing import bind_to_running, clear
from tests.bench.real_floor import MACHINES
from tests.support.bridge_place import NODE, Place
from tests.support.cloud import cloud

PACED: Final = 1000
PER_SECOND: Final = 100.0
BURST: Final = 2000


async def measure(kubeconfig: Path, client: Client, folder: Path, *, share: float) -> dict[str, Any]:
    """The floor first; then the bridge, which need not run for it."""
    async with contextlib.AsyncExitStack() as stack:
        nats = await stack.enter_async_context(nats_server())
        clouds = await stack.enter_async_context(cloud(*bridge.CLOUD, "--offerings", str(bridge.offerings(folder))))
        place = Place(kubeconfig=kubeconfig, nats_url=nats.url, clouds=clouds, client=client, folder=folder)
        stack.push_async_callback(place.stop_bridge)
        floor = await _both(place, MACHINES[0], share=share)
        made = await client.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        assert isinstance(made, Done), made
        pid = await bridge.start(place)
        ours = await _both(place, NODE, share=share, pid=pid)
    return {
        "provider_poll_s": bridge.POLL_S,
        **{
            name: {
                "bridge": ours[name],
                "floor": floor[name],
                "ratio": ratios(ours[name]["bind_to_running"], floor[name]["bind_to_running"]),
            }
            for name in ours
        },
    }


async def _both(place: Place, node: str, *, share: float, pid: int | None = None) -> dict[str, Any]:
    figures = {}
    for name, pods, per_second in (("paced", PACED, PER_SECOND), ("burst", BURST, None)):
        print(f"  {name} on {node} …", file=sys.stderr, flush=True)
        binding = bind_to_running(
            place.client,
            lambda name: place.pod(name, nodeName=node),
            pods=round(pods * share),
            per_second=per_second,
        )
        figures[name] = await with_machine(binding, pid=pid)
        await clear(place.client)
        await place.eventually(lambda: _nothing_runs(place))
    return figures


async def _nothing_runs(place: Place) -> bool:
    return not await place.cloud.living()
