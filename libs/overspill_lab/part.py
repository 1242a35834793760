"""What the lab's parts have in common as processes: arguments, logs, a client, the ready line, an orderly end.

A part is a plain client of the API server that its kubeconfig names. It must not know what any part does.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from overspill_kube.client import Client, connect
from overspill_kube.settings import KubeSettings
from overspill_runtime import logs
from overspill_runtime.settings import LogFormat, LogLevel


class Part(Struct, frozen=True, kw_only=True):
    """What a part's body is given."""

    client: Client
    arguments: argparse.Namespace
    ready: Callable[[Mapping[str, Any]], None]  # call once: tells the starter, on standard output


def run_part(
    name: str, body: Callable[[Part], Awaitable[None]], *, arguments: Callable[[argparse.ArgumentParser], None]
) -> None:
    """The whole of a part's `__main__`: runs the body until it ends, or SIGTERM or SIGINT comes (which is no error)."""
    parser = argparse.ArgumentParser(prog=f"python -m overspill_lab.{name}")
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config, in-cluster")
    parser.add_argument("--context", help="default: the kubeconfig's current one")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    arguments(parser)
    parsed = parser.parse_args()
    logs.configure(service=f"lab-{name}", form=LogFormat.AUTO, level=LogLevel(parsed.log_level))
    asyncio.run(_run(name, body, parsed))


async def _run(name: str, body: Callable[[Part], Awaitable[None]], arguments: argparse.Namespace) -> None:
    settings = KubeSettings(
        kubeconfig=arguments.kubeconfig, context=arguments.context, user_agent=f"overspill-lab-{name}"
    )
    async with connect(settings) as client:
        running = asyncio.ensure_future(body(Part(client=client, arguments=arguments, ready=_announce)))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()


def _announce(what: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"ready": True, **what}) + "\n")
    sys.stdout.flush()
