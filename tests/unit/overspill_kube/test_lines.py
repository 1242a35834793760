"""Lines come out as they went in, however the stream was cut into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_kube import lines
from overspill_kube.lines import LineSplitter

LINES = st.lists(
    st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line and line.strip()), max_size=20
)


@given(LINES, st.lists(st.integers(min_value=1, max_value=40), min_size=1), st.binary(max_size=10))
def test_chunks_do_not_matter(whole: list[bytes], sizes: list[int], half: bytes) -> None:
    half = half.replace(b"\n", b"")
    stream = b"".join(line + b"\n" for line in whole) + half
    splitter, found, position = LineSplitter(), [], 0
    for size in sizes * (len(stream) // sum(sizes) + 1):
        found += splitter.feed(stream[position : position + size])
        position += size
    assert found == whole


def test_empty_lines_are_nothing() -> None:
    assert LineSplitter().feed(b"\n\na\n \n") == [b"a"]


def test_a_line_without_an_end_does_not_eat_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    splitter = LineSplitter()
    splitter.feed(b"x" * 90)
    with pytest.raises(ValueError, match="100 bytes"):
        splitter.feed(b"x" * 20)
