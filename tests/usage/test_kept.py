"""What is kept of an answer: its beginning and its end, in bounded memory, however it comes."""

import gzip
import random
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.usage.kept import HEAD_BYTES, LONG_HEAD_BYTES, TAIL_BYTES, Kept, keeper_of

BODY = b'{"model":"m"' + bytes(random.Random(1).choices(b"abcdefgh", k=300_000))


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("length", [0, 1, HEAD_BYTES, 2 * TAIL_BYTES, 2 * TAIL_BYTES + 1, 300_000])
@pytest.mark.parametrize("size", [1000, 100_000])
def test_the_beginning_and_the_end_are_kept(length: int, size: int) -> None:
    """A short answer whole, as one object twice."""
    kept = Kept()
    for piece in pieces(BODY[:length], size):
        kept.keep(piece)
    head, tail = kept.ends()
    assert kept.length == length and (tail is None) == (length <= 2 * TAIL_BYTES)
    if tail is None:
        assert head == BODY[:length]
    else:
        assert head == BODY[:HEAD_BYTES] and BODY[:length].endswith(tail)
        assert TAIL_BYTES <= len(tail) <= 2 * TAIL_BYTES


@pytest.mark.parametrize("named", [True, False])
def test_more_of_the_beginning_is_kept_until_it_names_its_model(named: bool) -> None:
    """Pieces may be left out after that."""
    body = b'{"model":"%b","x":' % (b"m" if named else b"") + BODY[20:]
    most = HEAD_BYTES if named else LONG_HEAD_BYTES
    kept = Kept()
    for piece in pieces(body[:most], 1000):
        assert not kept.is_begun
        kept.keep(piece)
    assert kept.is_begun
    kept.skip(5)
    kept.keep(b"end")
    assert kept.ends() == (body[:most], b"end")


@given(st.lists(st.one_of(st.binary(max_size=50_000), st.integers(0, 9000))))
def test_whatever_is_left_out_is_no_part_of_the_end(steps: list[bytes | int]) -> None:
    """The end is what came behind it; the length counts all."""
    kept, behind, length = Kept(), b"", 0
    for step in steps:
        if isinstance(step, int):
            kept.skip(step)
            behind, length = (b"", length + step) if step else (b"", length)
        else:
            kept.keep(step)
            behind, length = behind + step, length + len(step)
    head, tail = kept.ends()
    assert kept.length == length
    end = head if tail is None else tail
    assert behind.endswith(end) and len(end) <= 2 * TAIL_BYTES
    assert (tail is None) == (len(end) == length)


def raw(body: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(body) + coder.flush()


CODINGS = [(b"gzip", gzip.compress), (b"x-gzip", gzip.compress), (b"deflate", zlib.compress), (b" Deflate ", raw)]


@pytest.mark.parametrize(("coding", "compress"), CODINGS)
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_a_compressed_answer_is_decoded_as_it_comes(
    coding: bytes, compress: Callable[[bytes], bytes], size: int
) -> None:
    """Whatever its pieces are, and whatever stands behind it."""
    kept = Kept()
    keep = keeper_of(kept, coding)
    for piece in pieces(compress(BODY[:200_000]) + b"behind", size):
        keep(piece)
    assert kept.length == 200_000
    head, tail = kept.ends()
    assert head == BODY[:HEAD_BYTES] and tail and BODY[:200_000].endswith(tail)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("part", [100, 30_000])
def test_all_members_of_gzip_are_decoded(part: int, size: int) -> None:
    """RFC 1952 section 2.2: they follow each other. Zeros behind them are padding, also between pieces."""
    body = BODY[:200_000]
    kept = Kept()
    keep = keeper_of(kept, b"gzip")
    for piece in pieces(b"".join(map(gzip.compress, pieces(body, part))) + b"\0" * 30, size):
        keep(piece)
    assert (kept.length, kept.unread) == (200_000, 0)
    head, tail = kept.ends()
    assert head == BODY[:HEAD_BYTES] and tail and body.endswith(tail)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(("coding", "compress"), CODINGS)
def test_what_stands_behind_a_compressed_answer_is_not_read(
    coding: bytes, compress: Callable[[bytes], bytes], size: int
) -> None:
    """The end of the answer stays its end."""
    kept = Kept()
    keep = keeper_of(kept, coding)
    for piece in pieces(compress(b"data: 1\n\n") + b"behind", size):
        keep(piece)
    assert (kept.ends(), kept.length, kept.unread) == ((b"data: 1\n\n", None), 9, 6)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_member_that_is_broken_leaves_no_end(size: int) -> None:
    """Nobody knows what is missing, nor what follows."""
    broken = gzip.compress(b"first") + b"\x1f\x8bno member" + gzip.compress(b"third")
    kept = Kept()
    keep = keeper_of(kept, b"gzip")
    for piece in pieces(broken, size):
        keep(piece)
    assert kept.ends() == (b"first", b"") and kept.unread >= len(broken) - len(gzip.compress(b"first")) - 4


@pytest.mark.parametrize("coding", [b"", b"gzip"])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_byte_order_mark_is_no_part_of_an_answer(coding: bytes, size: int) -> None:
    body = b"\xef\xbb\xbf{}"
    kept = Kept()
    keep = keeper_of(kept, coding)
    for piece in pieces(gzip.compress(body) if coding else body, size):
        keep(piece)
    assert kept.ends() == (b"{}", None)


def test_a_compressed_answer_that_was_cut_is_decoded_as_far_as_it_came() -> None:
    """Its events until then."""
    coder = zlib.compressobj(wbits=31)
    kept = Kept()
    keep = keeper_of(kept, b"gzip")
    keep(coder.compress(b"data: 1\n\n") + coder.flush(zlib.Z_SYNC_FLUSH))
    assert kept.ends() == (b"data: 1\n\n", None)


@pytest.mark.parametrize("body", [b"\x00" * (100 << 20), b"no gzip at all"])
def test_what_cannot_or_must_not_be_decoded_is_left(body: bytes) -> None:
    """A bomb would hold up all other requests; 100 MB of zeros are 450 KB."""
    kept = Kept()
    keep = keeper_of(kept, b"gzip")
    for piece in pieces(gzip.compress(body, 1) if len(body) > 99 else body, 65536):
        keep(piece)
    _head, tail = kept.ends()
    assert kept.length < 32 << 20 and not tail and kept.unread


def test_codings_that_need_a_library_are_not_decoded() -> None:
    """Their requests are estimated; no coding at all is plain."""
    for coding in (b"br", b"gzip, br"):
        kept = Kept()
        keeper_of(kept, coding)(b"compressed")
        assert kept.ends() == (b"", None) and (kept.length, kept.unread) == (0, 10)
    assert keeper_of(kept, b"identity") == kept.keep == keeper_of(kept, b"")
