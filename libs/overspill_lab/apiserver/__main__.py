"""`python -m overspill_lab.apiserver`: one API server on the loopback interface, until it is told to stop."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from aiohttp import web

from overspill_lab.apiserver import auth, bootstrap
from overspill_lab.apiserver.documents import encode, utc_now
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.server import application
from overspill_lab.apiserver.store import Store

_HOST = "127.0.0.1"
_STOP_SECONDS = 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m overspill_lab.apiserver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--kubeconfig-out", type=Path, required=True, help="where to write a kubeconfig for the server")
    parser.add_argument(
        "--history", type=int, default=10_000, help="changes remembered per kind; watches from older versions get 410"
    )
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    registry = Registry(Store(history=arguments.history), utc_now)
    bootstrap.fill(registry)
    token = auth.new_token()
    runner = web.AppRunner(application(registry, token=token), access_log=None, shutdown_timeout=_STOP_SECONDS)
    await runner.setup()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        await web.TCPSite(runner, _HOST, arguments.port).start()
        url = f"http://{_HOST}:{runner.addresses[0][1]}"
        auth.write_kubeconfig(arguments.kubeconfig_out, url, token)
        sys.stdout.write(encode({"url": url}).decode() + "\n")
        sys.stdout.flush()
        await stopping.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Run the server."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(_serve(_arguments()))


if __name__ == "__main__":
    main()
