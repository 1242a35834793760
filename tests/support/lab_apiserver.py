"""The lab's parts as processes of their own, for tests that need a cluster's behaviour and no cluster."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

START_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0


@contextlib.asynccontextmanager
async def lab_apiserver(folder: Path, *arguments: str, controllers: bool = False) -> AsyncIterator[Path]:
    """Start a fresh, empty server on a free loopback port and yield a kubeconfig for it; it ends with the block.

    With `controllers` the lab's controllers run beside it (budget arithmetic, owners, garbage collection).
    """
    kubeconfig = folder / "lab-kubeconfig"
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(lab_part("apiserver", "--kubeconfig-out", str(kubeconfig), *arguments))
        if controllers:
            await stack.enter_async_context(lab_part("controllers", "--kubeconfig", str(kubeconfig)))
        yield kubeconfig


@contextlib.asynccontextmanager
async def lab_part(module: str, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """A process of the lab, ready: yields the line that it printed then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"overspill_lab.{module}", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_WITHIN_S):
            line = await process.stdout.readline()
        told = json.loads(line)
        assert isinstance(told, dict), line
        yield told
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
