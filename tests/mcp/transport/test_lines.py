"""Lines of a stream in bounded memory."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.mcp.transport.lines import ENDS_BYTES, Line, Lines

LIMIT = 2 * ENDS_BYTES


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b"\r\n", b"a\n\nb"]), max_size=30))
def test_line_splitter_returns_each_line_whole_and_in_order(pieces: list[bytes]) -> None:
    """However the stream was cut, each line comes once, whole and in order."""
    lines = Lines(limit_bytes=1000)
    found = [line.head for piece in pieces for line in lines.feed(piece)]
    *ended, rest = b"".join(pieces).split(b"\n")
    assert found == ended
    left = lines.get_rest()
    assert (b"" if left is None else left.head) == rest


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b"a\n", b"x\n", b"ax"]), max_size=30))
def test_lines_without_the_mark_are_counted(pieces: list[bytes]) -> None:
    """However the stream was cut; those with it come, whole and in order."""
    lines = Lines(limit_bytes=1000, mark=re.compile(b"x"))
    found = [line.head for piece in pieces for line in lines.feed(piece)]
    *ended, _ = b"".join(pieces).split(b"\n")
    assert found == [line for line in ended if b"x" in line]
    assert lines.skipped == len(ended) - len(found)


@given(st.integers(LIMIT + 1, 4 * LIMIT), st.integers(1, LIMIT))
def test_overlong_line_keeps_its_two_ends(size: int, step: int) -> None:
    """Wherever it was cut; what follows is whole again."""
    line = (b"0123456789" * (size // 10 + 1))[:size]
    stream, lines = line + b"\nnext\n", Lines(limit_bytes=LIMIT)
    found = [got for at in range(0, len(stream), step) for got in lines.feed(stream[at : at + step])]
    assert found == [Line(line[:ENDS_BYTES], line[-ENDS_BYTES:], whole=False), Line(b"next")]


def test_transport_line_at_the_size_limit_is_whole() -> None:
    """The end of the line does not count."""
    (line,) = Lines(limit_bytes=5).feed(b"12345\n")
    assert line == Line(b"12345")


def test_endless_line_uses_bounded_memory() -> None:
    """A hundred times the limit without an end of line leaves both its ends behind, and nothing else."""
    lines = Lines(limit_bytes=LIMIT)
    for _ in range(100):
        assert list(lines.feed(b"x" * LIMIT)) == []
    rest = lines.get_rest()
    assert rest is not None
    assert len(rest.head) + len(rest.tail) == 2 * ENDS_BYTES
    assert lines.get_rest() is None
