"""`python -m overspill_lab.metrics`: see `--help`."""

import argparse
import asyncio

from aiohttp import web

from overspill_lab.metrics.service import Metrics
from overspill_lab.part import Part, run_part


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0: a free one, told in the ready line")


async def _body(part: Part) -> None:
    metrics = Metrics(part.client)
    runner = web.AppRunner(metrics.application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", part.arguments.port).start()
        async with asyncio.TaskGroup() as group:
            for informer in metrics.informers:
                group.create_task(informer.run())
            for informer in metrics.informers:
                await informer.wait_synced()
            part.ready({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"})
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    run_part("metrics", _body, arguments=_arguments)
