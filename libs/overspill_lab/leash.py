"""Replaces itself by a program that must not outlive whoever started it.

Run as a script, by path: `python leash.py STARTER_PID COMMAND…`. The lab starts a dozen processes; when it is itself
killed the hard way nobody is left to stop them, so on Linux the kernel does it. Elsewhere only the orderly ways out
(the end of the lab's block, Ctrl-C, an exception) stop them. It must import nothing of ours: it runs before the
program's own interpreter and costs every start its import time.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(starter_pid: int, command: list[str]) -> None:
    """Tie this process to its starter, then become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter_pid:  # it died between the fork and the line above
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 (there is no shell to want: the command is a list)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
