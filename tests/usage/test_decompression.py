"""Compressed answers are decoded as they come, and a bounded amount of them in each turn of the event loop."""

import asyncio
import gzip
import random
import zlib
from collections.abc import Callable

import brotli
import pytest
from usage.packing import packed
from usage.test_ring_buffer import BODY, pieces

from gateway.usage.codings import zstd
from gateway.usage.decompression import (
    AT_ONCE_BYTES,
    MEMBER_COST,
    MOST_BYTES,
    STEP_BYTES,
    TURN_BYTES,
    AnswerDecoder,
    DecodingQueue,
    build_answer_decoder,
    is_uncompressed,
)
from gateway.usage.ring_buffer import HEAD_BYTES, AnswerBuffer

BLOCK = bytes(random.Random(2).choices(b"abcdefgh", k=400)) + b"a" * 12_000


def decoding(kept: AnswerBuffer, coding: bytes = b"gzip", undecoded: DecodingQueue | None = None) -> AnswerDecoder:
    made = build_answer_decoder(kept, coding, undecoded or DecodingQueue())
    assert made is not None
    return made


async def decoded(body: bytes, size: int, coding: bytes = b"gzip") -> AnswerBuffer:
    """Keep a body that comes in pieces of this size."""
    kept, undecoded = AnswerBuffer(), DecodingQueue()
    one = decoding(kept, coding, undecoded)
    for piece in pieces(body, size):
        one.keep_piece(piece)
    while one.waits:
        await asyncio.sleep(0)
    assert undecoded.size == 0
    return kept


def raw(body: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(body) + coder.flush()


CODINGS = [
    (b"gzip", gzip.compress),
    (b"x-gzip", gzip.compress),
    (b"deflate", zlib.compress),
    (b" Deflate ", raw),
    (b"ZSTD", zstd.compress),
]


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
async def test_brotli_answer_is_decoded_while_streaming(size: int) -> None:
    """The format has no member behind the first one."""
    kept = await decoded(brotli.compress(BODY[:200_000], quality=5), size, b"br")
    assert (kept.length, kept.unread) == (200_000, 0)
    head, tail = kept.get_ends()
    assert head == BODY[:HEAD_BYTES] and tail and BODY[:200_000].endswith(tail)


@pytest.mark.parametrize(("coding", "compress"), CODINGS)
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
async def test_compressed_answer_is_decoded_while_streaming(
    coding: bytes, compress: Callable[[bytes], bytes], size: int
) -> None:
    """Whatever its pieces are, and whatever stands behind it."""
    kept = await decoded(compress(BODY[:200_000]) + b"behind", size, coding)
    assert kept.length == 200_000
    head, tail = kept.get_ends()
    assert head == BODY[:HEAD_BYTES] and tail and BODY[:200_000].endswith(tail)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("part", [100, 30_000])
@pytest.mark.parametrize(("coding", "compress"), [(b"gzip", gzip.compress), (b"zstd", zstd.compress)])
async def test_all_members_are_decoded(coding: bytes, compress: Callable[[bytes], bytes], part: int, size: int) -> None:
    """RFC 1952 section 2.2: they follow each other. Zeros behind them are padding, also between pieces."""
    body = BODY[:200_000]
    kept = await decoded(b"".join(map(compress, pieces(body, part))) + b"\0" * 30, size, coding)
    assert (kept.length, kept.unread) == (200_000, 0)
    head, tail = kept.get_ends()
    assert head == BODY[:HEAD_BYTES] and tail and body.endswith(tail)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(("coding", "compress"), CODINGS)
async def test_bytes_after_a_compressed_answer_are_not_decoded(
    coding: bytes, compress: Callable[[bytes], bytes], size: int
) -> None:
    """The end of the answer stays its end."""
    kept = await decoded(compress(b"data: 1\n\n") + b"behind", size, coding)
    assert (kept.get_ends(), kept.length, kept.unread) == ((b"data: 1\n\n", None), 9, 6)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_broken_gzip_member_leaves_the_end_of_the_answer_unread(size: int) -> None:
    """The missing part, and what follows it, are not known."""
    broken = gzip.compress(b"first") + b"\x1f\x8bno member" + gzip.compress(b"third")
    kept = await decoded(broken, size)
    assert kept.get_ends() == (b"first", b"") and kept.unread >= len(broken) - len(gzip.compress(b"first")) - 4


@pytest.mark.parametrize("size", [1, 1000])
async def test_byte_order_mark_is_stripped_from_a_decoded_answer(size: int) -> None:
    assert (await decoded(gzip.compress(b"\xef\xbb\xbf{}"), size)).get_ends() == (b"{}", None)


async def test_truncated_compressed_answer_is_decoded_as_far_as_received() -> None:
    """Its events until then."""
    coder = zlib.compressobj(wbits=31)
    kept = await decoded(coder.compress(b"data: 1\n\n") + coder.flush(zlib.Z_SYNC_FLUSH), 1000)
    assert kept.get_ends() == (b"data: 1\n\n", None)


@pytest.mark.parametrize("body", [gzip.compress(b"\x00" * (100 << 20), 1), b"no gzip at all"], ids=["bomb", "none"])
async def test_undecodable_or_bomb_answer_stops_decoding(body: bytes) -> None:
    """Of a bomb little is decoded; 100 MB of zeros are 450 KB."""
    kept = await decoded(body, 65536)
    _head, tail = kept.get_ends()
    assert kept.length < 32 << 20 and not tail and kept.unread


def test_codings_that_nothing_decodes_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the libraries of the extra, and those that are unknown; no coding at all is plain."""
    undecoded = DecodingQueue()
    for library in ("brotli", "zstd"):
        monkeypatch.setattr(f"gateway.usage.codings.{library}", None)
    for coding in (b"br", b" ZSTD", b"gzip, br", b"br", b"made up"):
        assert build_answer_decoder(AnswerBuffer(), coding, undecoded) is None and not is_uncompressed(coding)
    for coding in (b"", b" Identity "):
        assert build_answer_decoder(AnswerBuffer(), coding, undecoded) is None and is_uncompressed(coding)
    assert {labels[0]: count for (_, labels), (count,) in undecoded.collect_counts()} == {
        "br": 2,
        "zstd": 1,
        "other": 2,
    }
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3 and "pip install 'twolane[codings]'" in lines[0] and "Content-Encoding br" in lines[0]


@pytest.mark.parametrize("count", [1, 4, 20])
async def test_decoding_per_event_loop_turn_is_limited(count: int) -> None:
    """Nor however much they grow, or how many members they have."""
    long = packed(BLOCK, 300)
    undecoded = DecodingQueue()
    many = [AnswerBuffer() for _ in range(count)]
    ones = [decoding(kept, undecoded=undecoded) for kept in many]

    def all_decoded() -> int:
        return sum(kept.length for kept in many)

    before = all_decoded()
    for one in ones:
        one.keep_piece(long.body)
    assert all_decoded() - before <= TURN_BYTES + STEP_BYTES + count * (AT_ONCE_BYTES + STEP_BYTES)
    turns = 0
    while any(one.waits for one in ones):
        before = all_decoded()
        await asyncio.sleep(0)
        turns += 1
        assert all_decoded() - before <= TURN_BYTES + STEP_BYTES
        assert max(kept.length for kept in many) - min(kept.length for kept in many) <= 2 * (TURN_BYTES + STEP_BYTES)
    assert turns >= count * long.length // TURN_BYTES // 2
    assert all((kept.length, kept.unread) == (long.length, 0) for kept in many)


@pytest.mark.parametrize(("coding", "compress"), [(b"gzip", gzip.compress), (b"zstd", zstd.compress)])
async def test_empty_members_also_yield_to_the_event_loop(coding: bytes, compress: Callable[[bytes], bytes]) -> None:
    """Each of them costs something, although it grows to nothing: its decoder is made anew."""
    kept, undecoded = AnswerBuffer(), DecodingQueue()
    one = decoding(kept, coding, undecoded)
    one.keep_piece(compress(b"") * 5000 + compress(b"end"))
    turns = 0
    while one.waits:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5000 * MEMBER_COST // TURN_BYTES and kept.get_ends() == (b"end", None)


async def test_decoding_completion_callback_fires_after_the_answer_is_decoded() -> None:
    one, told = decoding(kept := AnswerBuffer()), asyncio.Event()
    one.keep_piece((long := packed(BLOCK, 100)).body)
    one.call_when_done(told.set)
    await told.wait()
    assert kept.length == long.length and not one.waits


async def test_answers_over_the_decoding_queue_limit_are_skipped() -> None:
    """The one that comes last, with what follows; those before it are decoded to their ends."""
    undecoded, long = DecodingQueue(), packed(BLOCK, 1000)
    many: list[tuple[AnswerBuffer, AnswerDecoder]] = []
    while undecoded.size <= MOST_BYTES - len(long.body):
        one = decoding(kept := AnswerBuffer(), undecoded=undecoded)
        one.keep_piece(long.body)
        many.append((kept, one))
    last = decoding(kept := AnswerBuffer(), undecoded=undecoded)
    last.keep_piece(long.body)
    last.keep_piece(b"more")
    assert not last.waits and kept.unread > len(long.body) // 2 and kept.get_ends()[1] == b""
    assert len(many) > 3
    first_kept, first = many[0]
    for _, one in many[1:]:
        one.skip_rest()
    while first.waits:
        await asyncio.sleep(0)
    assert (first_kept.length, first_kept.unread, undecoded.size) == (long.length, 0, 0)


async def test_finishing_the_queue_decodes_some_and_notifies_all() -> None:
    """And leaves out the rest, of which everybody is told."""
    undecoded, long, told = DecodingQueue(), packed(BLOCK, 8000), []
    short = packed(BLOCK, 100)
    many = [AnswerBuffer() for _ in range(4)]
    ones = [decoding(kept, undecoded=undecoded) for kept in many]
    for number, one in enumerate(ones):
        one.keep_piece(short.body if number == 0 else long.body)
        one.call_when_done(lambda number=number: told.append(number))  # type: ignore[misc]
    undecoded.finish()
    assert sorted(told) == [0, 1, 2, 3] and not any(one.waits for one in ones) and undecoded.size == 0
    lengths = [(kept.length, bool(kept.unread)) for kept in many]
    assert lengths[0] == (short.length, False) and any(left for _, left in lengths)
