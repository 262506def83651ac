"""Segments mean nothing: however bytes are cut on their way, they are read alike and passed on when they come."""

import asyncio

import pytest

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head
from gateway.testing.upstream import FakeUpstream

from .malformed import BAD_CHUNKS, BAD_CODINGS, BAD_HEADS, BAD_HOSTS, BAD_LENGTHS, BAD_LINES, REQUEST_LINES
from .through import FINE, ask, client_of, get, in_pieces, post_chunked, says, through

MALFORMED = [
    *(get(b"/v1/x", b"Content-Length: " + length, method=b"POST") for length in BAD_LENGTHS),
    *(get(b"/v1/x", b"Transfer-Encoding: " + coding, method=b"POST") for coding in BAD_CODINGS),
    *(get(b"/v1/x", *lines) for lines in BAD_LINES),
    *(line + b"\r\nHost: h\r\n\r\n" for line in REQUEST_LINES),
    *(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n" for host in BAD_HOSTS),
]
WELL_FORMED = [
    get(b"/v1/x", b"X: \xff\x80 \t end", b"Y:", b"Z:\t"),
    get(b"/v1/" + bytes(range(0x21, 0x7F)).replace(b"#", b""), version=b"1.0"),
    b"\r\n" + get(b"/v1/x", b"!#$%&'*+-.^_`|~: odd name"),
    get(b"http://h/v1/x", method=b"M-SEARCH"),
]


async def status_of(data: bytes, *, one_by_one: bool, gateway: LocalGateway, upstream: FakeUpstream) -> bytes:
    requests = len(upstream.requests)
    async with client_of(gateway) as client:
        pieces = [bytes((byte,)) for byte in data] if one_by_one else [data]
        for piece in pieces:
            if client.n_received or client.ended != "open":
                break
            await client.send(piece)
            for _ in range(3):
                await asyncio.sleep(0)
            if client.ended != "open":
                break
        raw = await client.read_head()
        assert raw.startswith(b"HTTP/1.1 200 ") or len(upstream.requests) == requests
        return raw.split(b" ")[1]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
async def test_malformed_head_is_refused_in_any_segmentation(data: bytes) -> None:
    """In one segment or byte by byte; perhaps before its end."""
    async with through() as (gateway, upstream):
        for one_by_one in (False, True):
            status = await status_of(data, one_by_one=one_by_one, gateway=gateway, upstream=upstream)
            assert status[:1] in b"45"


@pytest.mark.parametrize("data", WELL_FORMED, ids=range(len(WELL_FORMED)))
async def test_well_formed_head_is_accepted_in_any_segmentation(data: bytes) -> None:
    """With all the bytes that the grammar allows."""
    async with through() as (gateway, upstream):
        for one_by_one in (False, True):
            assert await status_of(data, one_by_one=one_by_one, gateway=gateway, upstream=upstream) == b"200"


@pytest.mark.parametrize("bad", [bad for bad in BAD_CHUNKS if len(bad) < 1000])
async def test_malformed_chunk_is_refused_in_any_segmentation(bad: bytes) -> None:
    """Byte by byte, behind a good one: the upstream never sees the request's end."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await in_pieces(client, post_chunked(b"5\r\nhello\r\n"), *[bytes((byte,)) for byte in bad + b"\r\n\r\n"])
        assert (await client.read_head()).startswith(b"HTTP/1.1 400 ")
        await upstream.wait_open(0)
        assert not upstream.requests


@pytest.mark.parametrize("raw", [raw for raw in BAD_HEADS if len(raw) < 1000])
async def test_malformed_answer_becomes_a_502_in_any_segmentation(raw: bytes) -> None:
    """Byte by byte: nothing of it reaches the client."""

    async def drips(peer: Peer) -> None:
        await peer.read_request()
        await in_pieces(peer, *[bytes((byte,)) for byte in raw + b"\r\n\r\n"])
        await peer.wait_end()

    async with through(drips, FINE) as (gateway, _):
        assert (await ask(gateway, get())).status == 502
        assert (await ask(gateway, get())).payload == b"fine"


PLAIN = {
    "length": build_answer(200, b"0123456789", [("X", "1")]),
    "chunked": build_head(200, [("Transfer-Encoding", "chunked")])
    + b"a;x\r\n0123456789\r\n5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n",
    "continued": build_head(103, [("Link", "</a>")]) + build_head(102) + build_answer(200, b"hi"),
    "no content": build_answer(204),
    "not modified": build_head(304, [("Content-Length", "1234"), ("ETag", '"x"')]),
}


@pytest.mark.parametrize("raw", PLAIN.values(), ids=PLAIN)
async def test_an_answer_may_be_cut_anywhere(raw: bytes) -> None:
    """In two segments at every byte: the same bytes, and the connections can be used again."""

    async def script(peer: Peer) -> None:
        for at in range(1, len(raw)):
            await peer.read_request()
            await in_pieces(peer, raw[:at], raw[at:])

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(1, len(raw)):
            await client.send(get())
            assert await client.read_exactly(len(raw)) == raw
        assert len(upstream.connections) == 1
        assert client.n_received == (len(raw) - 1) * len(raw)


@pytest.mark.parametrize("raw", PLAIN.values(), ids=PLAIN)
async def test_an_answer_may_come_byte_by_byte(raw: bytes) -> None:
    """And is passed on as it comes."""
    async with through(says(*[bytes([byte]) for byte in raw])) as (gateway, _), client_of(gateway) as client:
        await client.send(get())
        assert await client.read_exactly(len(raw)) == raw


async def test_answer_bytes_are_forwarded_on_arrival() -> None:
    """Each event of a stream, each byte of a body: nothing waits for more."""
    sent = asyncio.Event()
    parts = [
        build_head(200, [("Transfer-Encoding", "chunked")]),
        b"3\r\nabc\r\n",
        b"5\r\nx",
        b"y",
        b"zab\r\n",
        b"0\r\n\r\n",
    ]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        for part in parts:
            await peer.send(part)
            await sent.wait()
            sent.clear()

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(get())
        for part in parts:
            assert await client.read_exactly(len(part)) == part
            sent.set()
