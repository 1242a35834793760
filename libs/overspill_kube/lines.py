"""Cuts a stream of chunks into lines. Pure; it must not know what a line says."""

from typing import Final

LONGEST_LINE: Final = 32 * 1024 * 1024  # bytes; objects are limited to about 1.5 MB, so this is not an object


class LineSplitter:
    """Feed chunks, get whole lines. What remains after the last chunk is half a line and is never handed out."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their newline and without empty ones.

        Raises ValueError for a line that is too long to be an object: memory would grow without end.
        """
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        self._size += len(first)
        if self._size > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest, self._size = [others[-1]], len(others[-1])
        return [line for line in lines if line.strip()]
