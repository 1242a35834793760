"""Simulated kubelets without any delay: the floor under the bridge's figures, and the home of pods that are evicted.

KWOK where its binary is in the cache, by the lab's own stages, because other projects' figures stand beside it; the
lab's kubelets otherwise. Which it was is told: figures of the two do not compare.
"""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from overspill_lab import kwok
from overspill_lab.kubelets.life import Pace
from overspill_lab.lab import clean_environment, free_ports
from overspill_lab.programs import Program
from overspill_lab.supervisor import Supervisor
from tests.cluster.controlplane import build
from tests.cluster.controlplane.modules import NODES as KWOK

MACHINES: Final = tuple(f"home-{number}" for number in range(8))  # 110 pods each, to a scheduler
AT_ONCE: Final = Pace(start_s=0, stop_s=0)


@contextlib.asynccontextmanager
async def kubelets(kubeconfig: Path, folder: Path) -> AsyncIterator[str]:
    """The nodes MACHINES are registered and their pods run at once; yields who plays their kubelets."""
    file = folder / "nodes.json"
    file.write_text(json.dumps([{"name": name, "cpu": "64", "memory": "256Gi"} for name in MACHINES]))
    async with Supervisor(folder) as supervisor:
        if build.is_built(KWOK):
            await kwok.register(kubeconfig, file)
            await supervisor.start(_kwok(kubeconfig, folder))
            yield f"KWOK {KWOK.version}"
        else:
            await supervisor.start(_lab(kubeconfig, file))
            yield "lab"


def _kwok(kubeconfig: Path, folder: Path) -> Program:
    (port,) = free_ports(1)
    return kwok.program(
        build.kwok(),
        kubeconfig=kubeconfig,
        folder=folder,
        port=port,
        environment=clean_environment(),
        pace=AT_ONCE,
    )


def _lab(kubeconfig: Path, nodes: Path) -> Program:
    command = (sys.executable, "-m", "overspill_lab.kubelets", "--kubeconfig", str(kubeconfig), "--nodes", str(nodes))
    pace = ("--start-seconds", str(AT_ONCE.start_s), "--stop-seconds", str(AT_ONCE.stop_s))
    return Program(name="kubelets", command=(*command, *pace))
