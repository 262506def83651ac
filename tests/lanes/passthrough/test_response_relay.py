"""The response on its way to the client: the same bytes, and visibly broken if they break."""

import asyncio

import pytest
from functional.through import breathe
from lanes.assembled import assembled

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_chunk, build_head

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n{}"
SSE = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


async def test_chunks_are_relayed_byte_for_byte() -> None:
    """Whole, in pieces, with extensions, in a row, too long for a table: passed on as they come, and all accounted."""
    event = build_chunk(b"data: " + bytes(100) + b"\n\n")
    pieces = [
        *(event, event, event[:1], event[1:], event[:-1], event[-1:], event, event + event, event + event[:50]),
        *(event[50:], event, event.replace(b"\r", b";a=b\r", 1), b"00" + event, event, b"a\r\n0123456789\r\n"),
        *(
            b"A\r\n\r\n012345\r\n\r\n",
            b"f\r\n" + bytes(15) + b"\r\n",
            build_chunk(bytes(5000)),
            build_chunk(b"x"),
            event,
        ),
    ]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        for piece in [SSE, *pieces, LAST_CHUNK]:
            await peer.send(piece)
            await breathe(10)
            lane.later(200)

    async with assembled(script, idle_s=300.0) as lane, lane.client() as client:
        await client.send(POST)
        body = b"".join(pieces) + LAST_CHUNK
        assert await client.read_exactly(len(SSE) + len(body)) == SSE + body
        assert [record["bytes_out"] for record in lane.log] == [len(body)]
        assert not lane.metrics.deadlines


@pytest.mark.parametrize(
    "bad", [b"6\r\nhello\r\n", b"4\r\nhello\r\n", b"5\r\nhello\n\r", b"-5\r\nhello\r\n", b"\r\nabcde\r\n"]
)
async def test_malformed_chunk_ends_the_answer(bad: bytes) -> None:
    """The certain part goes to the client, and the cut shows; the upstream connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SSE + build_chunk(b"hello"))
        await sent.wait()
        await peer.send(bad)
        await peer.send(build_chunk(b"hello") + b"0\r\n\r\n")
        await peer.wait_end()

    sent = asyncio.Event()
    async with assembled(script) as lane, lane.client() as client:
        await client.send(POST)
        assert await client.read_exactly(len(SSE) + 10) == SSE + build_chunk(b"hello")
        sent.set()
        rest = await client.read_rest()
        assert b"0\r\n\r\n" not in rest and bad.startswith(rest)
        assert lane.metrics.get_upstream("up").outcomes == {"invalid": 1}
        await lane.upstream.wait_open(0)
