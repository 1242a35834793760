"""What a process and the whole machine spent while something was measured, as the kernel counts it.

A figure that was taken while the machine was busy all the time measures the machine; so each is told with its share.
Where the kernel has no /proc everything here is unknown (None), never zero.
"""

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


async def with_machine(work: Awaitable[dict[str, Any]], *, pid: int | None = None) -> dict[str, Any]:
    """The figures of `work`, and beside them how busy the machine was; of `pid` its CPU seconds and resident memory."""
    before, spent = _machine(), _cpu_seconds(pid)
    figures = await work
    beside: dict[str, Any] = {"machine_busy": busy_share(before, _machine())}
    if pid is not None:
        now = _cpu_seconds(pid)
        beside["process_cpu_s"] = None if now is None or spent is None else round(now - spent, 1)
        beside["process_rss_mib"] = _resident(pid)
    return figures | beside


def busy_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """The share of time in which the cores were not idle, between two readings of (idle, total) ticks."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return round(1 - (after[0] - before[0]) / (after[1] - before[1]), 2)


def _machine() -> tuple[int, int] | None:
    text = _read("/proc/stat")
    if text is None:
        return None
    ticks = [int(number) for number in text.splitlines()[0].split()[1:9]]  # guests' time is within the user's
    return ticks[3] + ticks[4], sum(ticks)


def _cpu_seconds(pid: int | None) -> float | None:
    text = None if pid is None else _read(f"/proc/{pid}/stat")
    if text is None:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(pid: int) -> float | None:
    lines = (_read(f"/proc/{pid}/status") or "").splitlines()
    kib = next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), None)
    return None if kib is None else round(kib / 1024, 1)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
