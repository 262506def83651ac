"""No connection holds the event loop: while one sends a flood of tiny pieces, the requests of others are answered."""

import asyncio

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_chunk, build_head, serve

from .through import FINE, client_of, get, post_chunked, through

#: As many chunks as one read of 256,000 bytes holds, the most that uvloop reads at once, a few times over.
CHUNKS = 200_000
FLOOD = build_chunk(b"x") * CHUNKS + b"0\r\n\r\n"
#: A reader that took a whole read at once, and 32 reads in one turn of the loop, would leave room for a few at most.
ANSWERED_MEANWHILE = 25


async def flooding(peer: Peer) -> None:
    """Answers `/v1/flood` with tiny chunks, and everything else like an ordinary upstream."""
    while True:
        request = await peer.read_request(timeout_s=None)
        if request.target.endswith(b"/flood"):
            await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + FLOOD, timeout_s=None)
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def answered_while(gateway: LocalGateway, flood: asyncio.Task[None]) -> int:
    """How many requests of another client are answered until `flood` is over."""
    answered = 0
    async with client_of(gateway) as other:
        while not flood.done():
            await other.send(get())
            assert (await other.read_response()).status == 200
            answered += 1
    await flood
    return answered


async def test_request_of_tiny_chunks_does_not_starve_other_requests() -> None:
    """200,000 chunks of one byte: they arrive as they were sent, and another client goes on meanwhile."""
    async with through(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as (gateway, upstream):

        async def send() -> None:
            async with client_of(gateway) as client:
                await client.send(post_chunked(FLOOD, b"/v1/flood"))
                assert (await client.read_response(timeout_s=120)).status == 200

        assert await answered_while(gateway, asyncio.create_task(send())) > ANSWERED_MEANWHILE
        (flood,) = [request for request in upstream.requests if request.target == b"/v1/flood"]
        assert flood.raw_body == FLOOD


async def test_answer_of_tiny_chunks_does_not_starve_other_requests() -> None:
    """The other way: from an upstream to a client."""
    async with through(flooding) as (gateway, _):

        async def receive() -> None:
            async with client_of(gateway) as client:
                await client.send(get(b"/v1/flood"))
                response = await client.read_response(timeout_s=120)
                assert response.raw_body == FLOOD

        assert await answered_while(gateway, asyncio.create_task(receive())) > ANSWERED_MEANWHILE


async def test_page_request_of_tiny_chunks_does_not_starve_other_requests() -> None:
    """A request to one of our own pages, which is read by somebody else behind our grammar."""
    request = post_chunked(
        FLOOD, b"/v1/chat/completions", b"X-Context-Mode: context", b"Content-Type: application/json"
    )
    async with through(FINE) as (gateway, _):

        async def send() -> None:
            async with client_of(gateway) as client:
                await client.send(request.replace(b"gw.example", b"localhost"))
                assert (await client.read_response(timeout_s=120)).status == 400

        assert await answered_while(gateway, asyncio.create_task(send())) > ANSWERED_MEANWHILE


async def test_answer_sent_before_the_upstream_closed_is_delivered_whole() -> None:
    """The last read waits for its turns when the connection behind it is already gone."""
    body = build_chunk(b"x") * 5000 + b"0\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + body)

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(get())
        assert (await client.read_response()).raw_body == body
