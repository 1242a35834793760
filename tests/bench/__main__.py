"""`make bench`: figures as one JSON document on stdout, progress on stderr. No figure passes or fails."""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import api, bridge, bus, real

LAB = {"events": lambda _: bus.measure(), "list_and_watch": api.measure, "bridge": bridge.measure}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--lab", nargs="*", choices=LAB, help="only these of the lab's figures (none: leave all out)")
    parser.add_argument("--real", nargs="*", choices=real.NAMES, help="only these on the real control plane, likewise")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the load on the real control plane; 0.1: for a look"
    )
    arguments = parser.parse_args()
    if not 0.025 <= arguments.share <= 1:
        parser.error(f"--share {arguments.share}: between 0.025 and 1")
    try:
        arguments.left_out = real.why_left_out()
    except ValueError as error:
        parser.error(str(error))
    return arguments


async def _all(arguments: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "load_before": os.getloadavg()[0],
        }
    }
    with tempfile.TemporaryDirectory(prefix="overspill-bench-") as folder:
        for name, measure in LAB.items():
            if arguments.lab is None or name in arguments.lab:
                _say(f"measuring {name} …")
                figures[name] = await measure(Path(folder))
        only = set(real.NAMES if arguments.real is None else arguments.real)
        if only and arguments.left_out:
            _say(f"left out: the real control plane ({arguments.left_out})")
        elif only:
            share = arguments.share
            figures["real"] = {"share": share} | await real.measure(Path(folder), share=share, only=only)
    return figures


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_all(_arguments())), indent=2))
