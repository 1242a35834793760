"""`python -m overspill_lab.scheduler`: see `--help`."""

import argparse
import asyncio

from overspill_lab.part import Part, run_part
from overspill_lab.scheduler.service import Scheduler


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler-name", default="default-scheduler", help="pods with this spec.schedulerName are placed"
    )


async def _body(part: Part) -> None:
    synced = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            Scheduler(part.client, scheduler_name=part.arguments.scheduler_name).run(synced), name="scheduler"
        )
        await synced.wait()
        part.ready({})


if __name__ == "__main__":
    run_part("scheduler", _body, arguments=_arguments)
