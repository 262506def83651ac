"""The frames of a WebSocket's client, in whatever pieces they come: handed on unchanged, bounded, or refused."""

from itertools import pairwise

import pytest
from functional.talking import BINARY, CLOSE, PING, TEXT, close_frame, frame
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.client_frames import REFUSED, ClientFrames

SIZES = (0, 1, 125, 126, 127, 65_535, 65_536)


def fed(frames: ClientFrames, data: bytes, *, cuts: list[int] | None = None) -> bytes:
    """What the reader gets of data that comes in these pieces."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return b"".join(frames.feed(data[start:end]) for start, end in pairwise(places) if end > start)


@given(
    st.lists(st.tuples(st.sampled_from((TEXT, BINARY, PING, CLOSE)), st.sampled_from(SIZES)), max_size=6),
    st.lists(st.integers(min_value=0)),
)
def test_pieces_change_nothing(sent: list[tuple[int, int]], cuts: list[int]) -> None:
    """Whatever a client sends goes on as it came."""
    data = b"".join(frame(opcode, bytes(size)) for opcode, size in sent)
    assert fed(ClientFrames(), data, cuts=cuts) == data
    frames = ClientFrames(limit_bytes=1 << 30, most=100)
    assert fed(frames, data, cuts=cuts) == data and not frames.waits


@given(st.lists(st.integers(min_value=0, max_value=60), min_size=1, max_size=20), st.lists(st.integers(min_value=0)))
def test_no_more_is_handed_on_than_the_bounds_allow(sizes: list[int], cuts: list[int]) -> None:
    """Nothing is lost: what waits comes message by message, in its order."""
    frames, messages = ClientFrames(limit_bytes=100, most=3), [frame(TEXT, bytes([65]) * size) for size in sizes]
    data = b"".join(messages)
    got, begun, ended = fed(frames, data, cuts=cuts), 0, 0
    while ended < len(messages):
        while begun < len(messages) and len(got) >= len(b"".join(messages[: begun + 1])):
            begun += 1
        here = sizes[ended:begun]
        assert here and len(here) <= 3 and (len(here) == 1 or sum(here) <= 100)
        assert frames.waits or begun == len(messages)
        got += frames.done()
        ended += 1
    assert got == data and not frames.waits


def test_a_message_in_pieces_counts_as_one() -> None:
    """Its control frames count as none."""
    first = frame(TEXT, b"ab", fin=False) + frame(PING, b"x") + frame(0, b"cd")
    frames = ClientFrames(limit_bytes=10, most=2)
    assert frames.feed(first + first + frame(PING) + first) == first + first + frame(PING)
    assert frames.waits
    assert frames.done() == first and not frames.waits


def test_the_pieces_of_a_message_count_together() -> None:
    """The one that would be too much waits, and not the whole message."""
    frames, small = ClientFrames(limit_bytes=10, most=5), frame(TEXT, bytes(4))
    begins, ends = frame(TEXT, bytes(5), fin=False), frame(0, bytes(2))
    assert frames.feed(small + begins + ends) == small + begins and frames.waits
    assert frames.done() == ends and not frames.waits


def test_a_message_of_its_own_is_not_held_back() -> None:
    """Its reader refuses it where it is too long: nothing would ever make room for it."""
    frames, long = ClientFrames(limit_bytes=10, most=5), frame(TEXT, bytes(100))
    assert frames.feed(long) == long and not frames.waits


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize(
    "bad",
    [
        frame(TEXT, b"bare", mask=None),
        frame(TEXT, b"", mask=None),
        frame(TEXT, bytes(70_000), mask=None),
        frame(PING, b"bare", mask=None),
        frame(0x8, (1000).to_bytes(2, "big"), mask=None),
        b"\xc1\x80mask",
        b"\xff\xff",
    ],
)
def test_a_frame_that_no_client_may_send_ends_all(bad: bytes, most: int | None) -> None:
    """The reader gets one to refuse in its place, once, and nothing that follows."""
    frames, good = ClientFrames(limit_bytes=1000, most=most), frame(TEXT, b"good")
    assert frames.feed(good + bad + good) == good + REFUSED
    assert frames.feed(good) == frames.done() == frames.feed(close_frame(1000)) == b""
