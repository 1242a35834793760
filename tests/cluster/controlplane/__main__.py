"""`make cluster`: one control plane until Ctrl-C or SIGTERM, for `overspill demo --kubeconfig`, kubectl and trying things."""

import asyncio
import signal
import sys

from tests.cluster.controlplane.build import BuildError, binaries, kwok
from tests.cluster.controlplane.program import StartError
from tests.cluster.controlplane.start import control_plane


async def _run() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    player, built = await asyncio.to_thread(kwok), await asyncio.to_thread(binaries)
    async with control_plane(scheduler=True) as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        _say("no kubelet runs, pods stay Pending; the demo brings nodes of KWOK:")
        _say(f"overspill demo --kubeconfig {plane.kubeconfig} --kwok {player}")
        _say(f"kubectl: {built.kubectl}")
        _say("ready; Ctrl-C stops it")
        await stopped.wait()
        _say("stopping")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(_run())
    except (BuildError, StartError) as error:
        _say(str(error))
        sys.exit(1)
