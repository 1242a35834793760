"""An API server's audit log as it grows, with what Overspill's services asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.rights import MARK, Request, requests_of


class AuditLog:
    """Read on from where the last look ended, at first from the beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    async def news(self) -> list[Request]:
        """The services' requests in the lines that are whole by now and were not read before."""
        return list(requests_of(await asyncio.to_thread(self._new_lines)))

    def _new_lines(self) -> list[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._position)
            lines = file.readlines()
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        self._position += sum(map(len, lines))
        return [line for line in lines if MARK in line]
