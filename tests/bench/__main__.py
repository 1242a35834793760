"""`make bench`: figures as one JSON document on stdout, progress on stderr. No figure passes or fails."""

import asyncio
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import api, bridge, bus


async def _all() -> dict[str, Any]:
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    figures: dict[str, Any] = {"machine": machine}
    with tempfile.TemporaryDirectory(prefix="overspill-bench-") as folder:
        for name, work in (
            ("events", bus.measure),
            ("list_and_watch", lambda: api.measure(Path(folder))),
            ("bridge", lambda: bridge.measure(Path(folder))),
        ):
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            figures[name] = await work()
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_all()), indent=2))
