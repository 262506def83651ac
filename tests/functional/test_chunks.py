"""Where a chunked request ends is beyond doubt, or it is refused."""

import pytest

from .malformed import BAD_CHUNKS, SMUGGLED
from .through import ask, client_of, error_of, in_pieces, post, post_chunked, refused, through


@pytest.mark.parametrize("bad", BAD_CHUNKS, ids=range(len(BAD_CHUNKS)))
async def test_a_bad_chunk_is_refused(bad: bytes) -> None:
    """With the head, nothing of the request goes upstream; chunk sizes, extensions, trailers all have one reading."""
    response = await refused(post_chunked(bad) + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


@pytest.mark.parametrize("bad", BAD_CHUNKS, ids=range(len(BAD_CHUNKS)))
async def test_a_bad_chunk_later_on_never_completes_the_request(bad: bytes) -> None:
    """What went upstream stays without its last chunk, and the connection ends."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await in_pieces(client, post_chunked(b"5\r\nhello\r\n"), bad + SMUGGLED)
        raw = await client.read_rest()
        assert raw.startswith(b"HTTP/1.1 400 ") and b"smuggled" not in raw
        await upstream.wait_open(0)
        (peer,) = upstream.connections
        assert peer.received.endswith(b"\r\n\r\n5\r\nhello\r\n")
        assert not upstream.requests


async def test_a_flood_of_small_chunks_is_cheap() -> None:
    """100,000 chunks of one byte with extensions: the same bytes, within seconds."""
    body = b"1;abcdefgh=12345\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    async with through(keep_bytes=0) as (gateway, upstream):
        assert (await ask(gateway, post_chunked(body), timeout_s=120)).status == 200
    assert upstream.requests[0].raw_body == body


async def test_a_chunk_extension_without_end_is_refused() -> None:
    """1 MiB of it is not held."""
    response = await refused(post_chunked(b"3;" + b"x" * (1 << 20)))
    assert response.status == 400


async def test_request_after_a_chunked_one_is_separate() -> None:
    """In the same segment, behind trailers: two requests, two answers, each seen once."""
    first = post_chunked(b"0\r\nX: y\r\n\r\n", b"/v1/first")
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(first + SMUGGLED)
        assert [(await client.read_response()).status for _ in range(2)] == [200, 200]
    assert [request.target for request in upstream.requests] == [b"/v1/first", b"/v1/smuggled"]
    assert upstream.requests[0].trailers == ((b"X", b"y"),)


async def test_bytes_behind_a_body_are_not_part_of_it() -> None:
    """Content-Length counts; what follows is the next request, or a refusal."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(post(b"abc") + SMUGGLED + b"garbage\r\n\r\n")
        assert [(await client.read_response()).status for _ in range(3)] == [200, 200, 400]
        assert await client.wait_end() == "eof"
    assert [request.raw_body for request in upstream.requests] == [b"abc", b""]
