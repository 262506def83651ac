"""What is kept of an answer: its beginning and its end, in bounded memory, however it comes."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.usage.ring_buffer import HEAD_BYTES, LONG_HEAD_BYTES, TAIL_BYTES, AnswerBuffer

BODY = b'{"model":"m"' + bytes(random.Random(1).choices(b"abcdefgh", k=300_000))


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("length", [0, 1, HEAD_BYTES, 2 * TAIL_BYTES, 2 * TAIL_BYTES + 1, 300_000])
@pytest.mark.parametrize("size", [1000, 100_000])
def test_answer_buffer_keeps_beginning_and_end(length: int, size: int) -> None:
    """A short answer whole, as one object twice."""
    kept = AnswerBuffer()
    for piece in pieces(BODY[:length], size):
        kept.keep_piece(piece)
    head, tail = kept.get_ends()
    assert kept.length == length and (tail is None) == (length <= 2 * TAIL_BYTES)
    if tail is None:
        assert head == BODY[:length]
    else:
        assert head == BODY[:HEAD_BYTES] and BODY[:length].endswith(tail)
        assert TAIL_BYTES <= len(tail) <= 2 * TAIL_BYTES


@pytest.mark.parametrize("named", [True, False])
def test_answer_buffer_keeps_a_longer_beginning_until_model_is_named(named: bool) -> None:
    """Pieces may be left out after that."""
    body = b'{"model":"%b","x":' % (b"m" if named else b"") + BODY[20:]
    most = HEAD_BYTES if named else LONG_HEAD_BYTES
    kept = AnswerBuffer()
    for piece in pieces(body[:most], 1000):
        assert not kept.is_begun
        kept.keep_piece(piece)
    assert kept.is_begun
    kept.skip_bytes(5)
    kept.keep_piece(b"end")
    assert kept.get_ends() == (body[:most], b"end")


@given(st.lists(st.one_of(st.binary(max_size=50_000), st.integers(0, 9000))))
def test_buffer_tail_excludes_skipped_bytes_but_length_counts_them(steps: list[bytes | int]) -> None:
    """The end is what came behind it; the length counts all."""
    kept, behind, length = AnswerBuffer(), b"", 0
    for step in steps:
        if isinstance(step, int):
            kept.skip_bytes(step)
            behind, length = (b"", length + step) if step else (b"", length)
        else:
            kept.keep_piece(step)
            behind, length = behind + step, length + len(step)
    head, tail = kept.get_ends()
    assert kept.length == length
    end = head if tail is None else tail
    assert behind.endswith(end) and len(end) <= 2 * TAIL_BYTES
    assert (tail is None) == (len(end) == length)


def test_buffer_strips_a_byte_order_mark() -> None:
    kept = AnswerBuffer()
    for piece in pieces(b"\xef\xbb\xbf{}", 1):
        kept.keep_piece(piece)
    assert kept.get_ends() == (b"{}", None)
