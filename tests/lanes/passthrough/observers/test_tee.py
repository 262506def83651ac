"""Bodies with a copy: what is forwarded is what it is without one, and the copy is the payload."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.body import Body, ChunkedBody
from gateway.http.response_head import parse_response_head
from gateway.lanes.passthrough.observers.tee import TeedChunkedBody, build_teed_body
from gateway.testing.scripts import LAST_CHUNK, build_chunk

PARTS = st.lists(st.binary(min_size=1, max_size=30), max_size=6)


def forwarded(body: Body, pieces: list[bytes]) -> list[bytes]:
    """The bytes that go on for each piece."""
    told = []
    for piece in pieces:
        told.append(body.feed(piece))
        while body.waiting:
            told.append(body.feed(b""))
    return told


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(PARTS, st.lists(st.integers(0, 500)), st.booleans())
def test_teed_chunked_body_forwards_the_same_bytes(parts: list[bytes], places: list[int], payload_only: bool) -> None:
    """However it is cut, with and without its framing, and with bytes behind it."""
    text = b"".join(map(build_chunk, parts)) + LAST_CHUNK + b"HTTP/1.1 200 OK"
    kept: list[bytes] = []
    plain, teed = ChunkedBody(payload_only=payload_only), TeedChunkedBody(kept.append, payload_only=payload_only)
    for piece in cut(text, places):
        if plain.done:
            break
        assert teed.feed(piece) == plain.feed(piece)
        assert (teed.done, teed.rest, teed.waiting) == (plain.done, plain.rest, plain.waiting)
        assert teed.passes_chunks == plain.passes_chunks
    assert b"".join(kept) == b"".join(parts)


def test_teed_body_copies_very_many_chunks_once() -> None:
    """As the limit of one turn demands."""
    text = build_chunk(b"x") * 5000 + LAST_CHUNK
    kept: list[bytes] = []
    plain, teed = ChunkedBody(), TeedChunkedBody(kept.append, payload_only=False)
    assert forwarded(teed, [text]) == forwarded(plain, [text])
    assert b"".join(kept) == b"x" * 5000


@pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n", b""])
def test_teed_unchunked_bodies_forward_the_same_bytes(framing: bytes) -> None:
    """To their length, or to the end of their connection."""
    kept: list[bytes] = []
    body = build_teed_body(
        parse_response_head(b"HTTP/1.1 200 OK\r\n%b\r\n" % framing, method=b"GET"), kept.append, payload_only=False
    )
    assert forwarded(body, [b"ab", b"cde"]) == [b"ab", b"cde"]
    assert (b"".join(kept), body.done) == (b"abcde", bool(framing))
