"""`python -m overspill_lab.kubelets`: see `--help`."""

import argparse
import asyncio
from pathlib import Path

from overspill_lab.kubelets.life import Pace
from overspill_lab.kubelets.machines import NodesFileError, read_machines
from overspill_lab.kubelets.service import Kubelets
from overspill_lab.part import Part, run_part

PACE = Pace()


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", required=True, type=Path, help="JSON list of name, cpu, memory, gpus, model")
    parser.add_argument("--start-seconds", type=float, default=PACE.start_s, help="from bound to running")
    parser.add_argument("--stop-seconds", type=float, default=PACE.stop_s, help="from deleted to gone")
    parser.add_argument("--renew-seconds", type=float, default=10.0, help="how often each node's lease is renewed")


async def _body(part: Part) -> None:
    arguments = part.arguments
    try:
        machines = read_machines(arguments.nodes)
    except NodesFileError as error:
        raise SystemExit(str(error)) from error
    pace = Pace(start_s=arguments.start_seconds, stop_s=arguments.stop_seconds)
    kubelets = Kubelets(part.client, machines, pace=pace, renew_every_s=arguments.renew_seconds)
    registered = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(kubelets.run(registered), name="kubelets")
        await registered.wait()
        part.ready({"nodes": len(machines)})


if __name__ == "__main__":
    run_part("kubelets", _body, arguments=_arguments)
