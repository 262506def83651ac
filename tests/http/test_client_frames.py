"""The frames of a WebSocket's client, in whatever pieces they come: handed on unchanged, bounded, or refused."""

from itertools import pairwise

import pytest
from functional.talking import BINARY, CLOSE, PING, TEXT, close_frame, frame
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.client_frames import (
    FRAMES_AT_ONCE,
    LONG_BYTES,
    MANY_FRAMES,
    REFUSED,
    SMALL_A_SWEEP,
    SMALL_BYTES,
    SMALL_MOST,
    ClientFrames,
    build_frame_head,
)

SIZES = (0, 1, 125, 126, 127, 65_535, 65_536)


def fed(frames: ClientFrames, data: bytes, *, cuts: list[int] | None = None) -> bytes:
    """Return the bytes that the reader gets of data that comes in these pieces."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return b"".join(frames.feed(data[start:end]) for start, end in pairwise(places) if end > start)


def read(data: bytes) -> list[tuple[int, bool, bytes]]:
    """Frames of a client as a server reads them: opcode, whether it is the last of its message, payload."""
    found, at = [], 0
    while at < len(data):
        first, length = data[at], data[at + 1] & 0x7F
        size = {126: 2, 127: 8}.get(length, 0)
        if size:
            length = int.from_bytes(data[at + 2 : at + 2 + size])
        at += 2 + size
        mask, payload = data[at : at + 4], data[at + 4 : at + 4 + length]
        at += 4 + length
        found.append((first & 0x0F, bool(first & 0x80), bytes(b ^ mask[i % 4] for i, b in enumerate(payload))))
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", [b"mask", b""], ids=["client", "server"])
def test_frame_head_encodes_size_and_mask(size: int, mask: bytes) -> None:
    whole = frame(TEXT, bytes(size), mask=mask or None)
    assert build_frame_head(0x80 | TEXT, size, mask) == whole[: len(whole) - size]


@given(
    st.lists(st.tuples(st.sampled_from((TEXT, BINARY, PING, CLOSE)), st.sampled_from(SIZES)), max_size=6),
    st.lists(st.integers(min_value=0)),
)
def test_frame_splits_do_not_change_forwarded_bytes(sent: list[tuple[int, int]], cuts: list[int]) -> None:
    """All bytes of a client go on as they came."""
    data = b"".join(frame(opcode, bytes(size)) for opcode, size in sent)
    assert fed(ClientFrames(), data, cuts=cuts) == data
    frames = ClientFrames(limit_bytes=1 << 30, most=100)
    assert fed(frames, data, cuts=cuts) == data and not frames.waits


@given(st.lists(st.integers(min_value=0, max_value=60), min_size=1, max_size=20), st.lists(st.integers(min_value=0)))
def test_forwarded_messages_stay_within_count_and_byte_limits(sizes: list[int], cuts: list[int]) -> None:
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
        got += frames.finish_message()
        ended += 1
    assert got == data and not frames.waits


def test_fragmented_message_counts_as_one() -> None:
    """Control frames between the pieces count as none."""
    first = frame(TEXT, b"ab", fin=False) + frame(PING, b"x") + frame(0, b"cd")
    frames = ClientFrames(limit_bytes=10, most=2)
    assert frames.feed(first + first + frame(PING) + first) == first + first + frame(PING)
    assert frames.waits
    assert frames.finish_message() == first and not frames.waits


def test_message_fragments_count_together_toward_the_limit() -> None:
    """The one that would be too much waits, and not the whole message."""
    frames, small = ClientFrames(limit_bytes=10, most=5), frame(TEXT, bytes(4))
    begins, ends = frame(TEXT, bytes(5), fin=False), frame(0, bytes(2))
    assert frames.feed(small + begins + ends) == small + begins and frames.waits
    assert frames.finish_message() == ends and not frames.waits


def test_single_message_over_the_limit_is_passed_on_unbuffered() -> None:
    """The reader refuses a message that is too long: nothing would ever make room for it."""
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
def test_invalid_client_frame_is_replaced_and_ends_the_stream(bad: bytes, most: int | None) -> None:
    """The reader gets one to refuse in its place, once, and nothing that follows."""
    frames, good = ClientFrames(limit_bytes=1000, most=most), frame(TEXT, b"good")
    assert frames.feed(good + bad + good) == good + REFUSED
    assert frames.feed(good) == frames.finish_message() == frames.feed(close_frame(1000)) == b""


@given(st.lists(st.integers(min_value=0), min_size=1, max_size=8), st.booleans())
def test_long_frame_is_forwarded_in_fragments(cuts: list[int], fin: bool) -> None:
    """As fragments of its message, which between them are the frame, and no piece is longer than what came."""
    payload = bytes(range(251)) * (LONG_BYTES // 251 + 5)
    data = frame(TEXT, payload, fin=fin) + frame(0, b"next", fin=True) * (not fin)
    frames = ClientFrames(limit_bytes=1 << 30, most=2)
    pieces = read(fed(frames, data, cuts=cuts))
    assert b"".join(piece for _, _, piece in pieces) == payload + b"next" * (not fin)
    assert [opcode for opcode, _, _ in pieces] == [TEXT] + [0] * (len(pieces) - 1)
    assert [last for _, last, _ in pieces] == [False] * (len(pieces) - 1) + [True]
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    assert max(len(piece) for _, _, piece in pieces) <= max(end - start for start, end in pairwise(places))


@pytest.mark.parametrize(("limit_bytes", "most"), [(LONG_BYTES, 2), (0, None)])
def test_oversized_frame_head_is_forwarded_undivided(limit_bytes: int, most: int | None) -> None:
    """The head says that the frame is too long, and is enough."""
    head = frame(TEXT, bytes(LONG_BYTES + 1))[:14]
    assert ClientFrames(limit_bytes=limit_bytes, most=most).feed(head) == head


def test_many_frames_are_forwarded_over_several_turns() -> None:
    """Frames of all kinds: nothing is lost, and their order stays."""
    sent = (frame(PING, b"ab") + frame(TEXT, b"c")) * FRAMES_AT_ONCE + frame(TEXT, b"end")
    frames = ClientFrames()
    turns = [frames.feed(sent)]
    while frames.yields:
        turns.append(frames.feed(b""))
    assert b"".join(turns) == sent
    assert [len(read(turn)) for turn in turns] == [FRAMES_AT_ONCE, FRAMES_AT_ONCE, 1]


def test_many_short_reads_take_several_turns() -> None:
    """An event loop may read a connection several times in one turn."""
    frames = ClientFrames()
    assert len(frames.feed(frame(PING) * MANY_FRAMES)) and not frames.yields
    assert len(frames.feed(frame(PING) * (MANY_FRAMES + 1))) and frames.yields
    assert frames.feed(b"") == b"" and not frames.yields


SMALL = {
    "pings": frame(PING),
    "pongs": frame(0xA, bytes(SMALL_BYTES - 1)),
    "pieces": frame(0, b"", fin=False),
}


def all_of(frames: ClientFrames, data: bytes) -> bytes:
    """Return the bytes that the reader gets of data in as many turns as it takes."""
    got = frames.feed(data)
    while frames.yields:
        got += frames.feed(b"")
    return got


@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL)
def test_endless_small_frames_are_refused(small: bytes) -> None:
    """As many as a patient client may have sent are not, and time makes room for more."""
    frames, most = ClientFrames(), small * SMALL_MOST
    assert all_of(frames, most) == most and not frames.flooded
    frames.sweep()
    more = small * SMALL_A_SWEEP
    assert all_of(frames, more) == more and not frames.flooded
    assert all_of(frames, small) == b"" and frames.flooded and not frames.waits
    frames.sweep()
    assert frames.feed(small) == frames.finish_message() == b"" and frames.flooded


@pytest.mark.parametrize("one", [frame(TEXT, b"x"), frame(0, bytes(SMALL_BYTES), fin=False)], ids=["message", "piece"])
def test_longer_messages_and_fragments_are_not_a_flood(one: bytes) -> None:
    """A page answers each message, and a message in pieces has a limit."""
    frames, sent = ClientFrames(), one * (SMALL_MOST + 1)
    assert all_of(frames, sent) == sent and not frames.flooded
