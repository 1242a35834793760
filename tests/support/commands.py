"""The `overspill` command as a process, as people and programs call it."""

import asyncio
import os
import sys


async def overspill(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; nothing of the caller's shell steers it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OVERSPILL_", "KUBECONFIG"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "overspill_cli",
        *arguments,
        env=clean | (env or {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
