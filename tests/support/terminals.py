"""A command on a terminal of a certain width, as a person sees it."""

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence


async def on_a_terminal(*arguments: str, columns: int, env: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """Exit code and lines of `overspill`, stdout and stderr as one, without colours."""
    return await asyncio.to_thread(shown, ("-m", "overspill_cli", *arguments), columns=columns, env=env)


def shown(arguments: Sequence[str], *, columns: int, env: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """The same of any Python program."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OVERSPILL_", "KUBECONFIG", "COLUMNS", "LINES"))
    }
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=clean | {"TERM": "dumb", "NO_COLOR": "1"} | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        text = b""
        # Linux tells the end of a terminal by an error.
        while chunk := _read(ours):
            text += chunk
        return process.wait(), text.decode().replace("\r\n", "\n").splitlines()
    finally:
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
