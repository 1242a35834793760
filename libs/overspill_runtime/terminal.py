"""Text on a terminal: broken between words, because a terminal breaks wherever its line ends.

What a person copies stays whole: a word that is longer than a line, and a command in backticks, are left for the
terminal to break, which joins them again when they are copied. Not for services: it needs the extra `cli`.
"""

import os
import re
from collections.abc import Iterator
from typing import Final, TextIO

from rich.cells import cell_len

_WORD: Final = re.compile(r"(\s*)(`[^`]*`\S*|\S+)")  # and the blanks before it
_USUAL_COLUMNS: Final = 80


def columns_of(stream: TextIO) -> int | None:
    """How wide the terminal is that a stream leads to, or what COLUMNS says of it; None for a file or a pipe."""
    if not stream.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS


def wrapped(text: str, width: int, *, indent: int = 0, hanging: int = 0) -> Iterator[str]:
    """One line of text as several of at most `width`: the first indented by `indent`, the others by `hanging`."""
    line, begun = " " * indent, False
    for blanks, word in _WORD.findall(text):
        if begun and cell_len(line + blanks + word) > width:
            yield line
            line = " " * hanging + word
        else:
            line += blanks + word if begun else word
        begun = True
    yield line if begun else ""


def tell(stream: TextIO, text: str) -> None:
    """Write lines of prose, each with its own indentation; in a file or a pipe they stay as they are."""
    width = columns_of(stream)
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        parts = [line] if width is None else wrapped(line, width, indent=indent, hanging=indent + 2)
        stream.writelines(f"{part}\n" for part in parts)
    stream.flush()
