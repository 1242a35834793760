"""How a command ends: its exit code, and one line on stderr instead of a traceback."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from overspill_cli.output import Exit, UsageError


def finish(work: Coroutine[Any, Any, int]) -> int:
    """Run a command; what the caller can put right is one line on stderr, not a traceback.

    Ctrl-C and SIGTERM cancel it, so that it leaves nothing behind; a second one ends the process as it is.
    """
    from overspill_cli.operating import CommandError
    from overspill_demo.arrangement import ArrangementError
    from overspill_demo.scenario import ScenarioError
    from overspill_kube.errors import KubeError, KubeUnavailable
    from overspill_lab.programs import LabError
    from overspill_recorder.schema import LedgerError
    from overspill_runtime.settings import SettingsError

    try:
        return int(asyncio.run(_until_terminated(work)))
    except (UsageError, ArrangementError, ScenarioError, SettingsError, LedgerError) as error:
        print(error, file=sys.stderr)
        return Exit.USAGE
    except UnicodeEncodeError as error:  # bytes of the command line or the environment that are no text
        print(f"{error.object!r} is no text in UTF-8", file=sys.stderr)
        return Exit.USAGE
    except (LabError, CommandError, KubeError, KubeUnavailable) as error:
        print(error, file=sys.stderr)
        return Exit.BROKEN
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM does what asyncio.run makes of SIGINT; the exit code tells them apart."""
    loop, command, terminated = asyncio.get_running_loop(), asyncio.ensure_future(work), False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        loop.remove_signal_handler(signal.SIGTERM)
        command.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await command
    except asyncio.CancelledError:
        if not terminated:
            raise
        return Exit.TERMINATED
