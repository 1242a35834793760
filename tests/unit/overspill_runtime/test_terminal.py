"""Where a line ends on a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from overspill_runtime.terminal import tell, wrapped


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 10, [""]),
        ("one two three", 20, ["one two three"]),
        ("one two three", 7, ["one two", "  three"]),
        ("  1.0 s  the gate opens", 14, ["1.0 s  the", "  gate opens"]),
        ("at nats://127.0.0.1:4222 now", 10, ["at", "  nats://127.0.0.1:4222", "  now"]),
        ("try `overspill resume decider`: it", 12, ["try", "  `overspill resume decider`:", "  it"]),
        ("a ` b", 3, ["a `", "  b"]),
        ("größe 模型 模型", 10, ["größe 模型", "  模型"]),
    ],
)
def test_lines_end_between_words(text: str, width: int, lines: list[str]):
    assert list(wrapped(text, width, hanging=2)) == lines


@given(st.lists(st.text("abc.:/", min_size=1, max_size=30)), st.integers(1, 40), st.integers(0, 8), st.integers(0, 8))
def test_no_word_is_ever_broken_and_only_one_that_is_too_long_reaches_beyond(words, width, indent, hanging):
    lines = list(wrapped(" ".join(words), width, indent=indent, hanging=hanging))
    assert " ".join(lines).split() == words
    for number, line in enumerate(lines):
        assert cell_len(line) <= width or len(line.split()) == 1
        assert not words or line.startswith(" " * (hanging if number else indent))


def test_what_is_no_terminal_gets_the_text_as_it_is():
    file = io.StringIO()
    tell(file, "  a long line " * 20 + "\n\nand  another")
    assert file.getvalue() == "  a long line " * 20 + "\n\nand  another\n"
