"""An answer that the upstream did not finish never looks finished to the client."""

import asyncio

import pytest
from measuring import LoopTime

from gateway.testing.raw_connection import PEER_LEFT, Peer, Response
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import Script

from .through import breathe, client_of, error_of, get, meanwhile, post, through

LENGTH = build_answer(200, b"0123456789" * 2, [("X", "1")])
CHUNKED = (
    build_head(200, [("Transfer-Encoding", "chunked")]) + b"a;x\r\n0123456789\r\n5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n"
)
OPEN = build_head(200, [("Content-Type", "text/event-stream")]) + b"data: 1\n\ndata: [DONE]\n\n"
FRAMINGS = {"length": LENGTH, "chunked": CHUNKED}


def cut_at(raw: bytes, end: str) -> Script:
    """Sends `raw`, and then FIN or RST instead of the rest."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)
        await breathe()
        if end == "reset":
            peer.reset()

    return script


def is_whole(received: bytes, *, method: str = "GET") -> bool:
    """Whether a client would take `received`, and the FIN behind it, for a whole answer."""
    start, sep, body = received.partition(b"\r\n\r\n")
    if not sep:
        return False
    response = Response(start + sep, body)
    if response.list_values(b"transfer-encoding"):
        return body.endswith(b"\r\n\r\n") and b"\r\n0\r\n" in body
    lengths = response.list_values(b"content-length")
    return not lengths or len(body) == int(lengths[0])


async def received_of(client: Peer) -> tuple[bytes, str]:
    ended = await client.wait_end()
    return bytes(client.received), ended


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("raw", FRAMINGS.values(), ids=FRAMINGS)
async def test_a_cut_at_any_byte_is_visible(raw: bytes, end: str) -> None:
    """Content-Length and chunked, by FIN and by RST: before the head is whole a 502, later an unfinished answer."""
    head_bytes = raw.index(b"\r\n\r\n") + 4
    async with through(*[cut_at(raw[:at], end) for at in range(len(raw))]) as (gateway, upstream):
        for at in range(len(raw)):
            async with client_of(gateway) as client:
                await client.send(post(b"{}"))  # POST: never sent twice
                if at < head_bytes:
                    response = await client.read_response()
                    assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
                    continue
                received, _ = await received_of(client)
                assert raw.startswith(received) and len(received) >= head_bytes, at
                assert not is_whole(received), (at, received)
        assert len(upstream.requests) == len(raw)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_reset_of_an_answer_without_framing_is_visible(version: bytes) -> None:
    """Close-delimited: the client's connection is reset too, at every byte."""
    head_bytes = OPEN.index(b"\r\n\r\n") + 4
    cuts = range(head_bytes, len(OPEN) + 1)
    async with through(*[cut_at(OPEN[:at], "reset") for at in cuts]) as (gateway, _):
        for _ in cuts:
            async with client_of(gateway) as client:
                await client.send(get(version=version))
                received, ended = await received_of(client)
                assert ended == "reset", received


async def test_cut_chunked_answer_resets_an_http_1_0_client() -> None:
    """HTTP/1.0 gets the payload without chunks, so only a reset can tell."""
    head_bytes = CHUNKED.index(b"\r\n\r\n") + 4
    cuts = range(head_bytes, len(CHUNKED))
    async with through(*[cut_at(CHUNKED[:at], "fin") for at in cuts]) as (gateway, _):
        for at in cuts:
            async with client_of(gateway) as client:
                await client.send(get(version=b"1.0"))
                received, ended = await received_of(client)
                assert ended == "reset", (at, received)
                assert b"chunked" not in received


async def test_close_delimited_answer_ends_cleanly() -> None:
    """FIN is its end: all of it arrives, and the client is told that the connection closes."""
    async with through(cut_at(OPEN, "fin")) as (gateway, _):
        for version in (b"1.1", b"1.0"):
            async with client_of(gateway) as client:
                await client.send(get(version=version))
                received, ended = await received_of(client)
                assert ended == "eof"
                start, _, body = received.partition(b"\r\n\r\n")
                assert body == OPEN.partition(b"\r\n\r\n")[2]
                assert b"Connection: close" in start.split(b"\r\n")


async def test_bytes_before_the_cut_are_delivered() -> None:
    """A large unfinished answer arrives up to the cut, in both framings."""
    payload = bytes(range(256)) * 4000
    for raw in (
        build_head(200, [("Content-Length", str(len(payload) + 1))]) + payload,
        build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(payload),
    ):
        async with (
            through(cut_at(raw, "fin"), keep_bytes=1 << 22) as (gateway, _),
            client_of(gateway, keep_bytes=1 << 22) as client,
        ):
            await client.send(get())
            received, _ = await received_of(client)
            assert received == raw


async def test_an_unfinished_size_line_or_last_chunk_is_not_passed_on() -> None:
    """The part of a size line that came could be read as another size."""
    for tail in (b"1", b"1f", b"1f\r", b"0", b"0\r\n", b"0\r\nX-T: 1", b"0\r\nX-T: 1\r\n", b"0\r\nX-T: 1\r\n\r"):
        raw = build_head(200, [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n"
        async with through(cut_at(raw + tail, "fin")) as (gateway, _), client_of(gateway) as client:
            await client.send(get())
            received, _ = await received_of(client)
            assert received == raw


BROKEN = [
    b"ZZ\r\n",
    b"-1\r\n",
    b"3\r\nabcd\r\n",
    b"3\nabc\n",
    b"+3\r\nabc\r\n",
    b"0\r\nContent-Length: 4\r\n\r\n",
    b"0\r\nbad\r\n\r\n",
    b"\r\n",
]


@pytest.mark.parametrize("bad", BROKEN)
async def test_broken_chunks_end_the_answer_visibly(bad: bytes) -> None:
    """Before the head is out it is a 502; the upstream connection is not used again."""
    start = build_head(200, [("Transfer-Encoding", "chunked")])

    async def later(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(start + b"3\r\nabc\r\n")
        await breathe()
        await peer.send(bad)
        await peer.wait_end()

    async def at_once(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(start + bad)
        await peer.wait_end()

    async with through(later, at_once, serve(build_answer(200, b"fine"))) as (gateway, upstream):
        async with client_of(gateway) as client:
            await client.send(get())
            received, _ = await received_of(client)
            assert received == start + b"3\r\nabc\r\n"
        await upstream.wait_open(0)
        async with client_of(gateway) as client:
            await client.send(get())
            response = await client.read_response()
            assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
            await client.send(get())
            assert (await client.read_response()).payload == b"fine"
        assert len(upstream.connections) == 3


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_upstream_close_before_any_byte_becomes_a_502(end: str) -> None:
    """On a fresh connection nothing is sent twice, safe method or not; the client's connection goes on."""
    async with through(cut_at(b"", end), cut_at(b"", end), cut_at(b"", end), serve(build_answer(200, b"x"))) as (
        gateway,
        upstream,
    ):
        async with client_of(gateway) as client:
            for request in (get(), post(b"{}"), get(method=b"DELETE")):
                await client.send(request)
                response = await client.read_response()
                assert (response.status, error_of(response)["type"]) == (502, "server_error")
            await client.send(get())
            assert (await client.read_response()).payload == b"x"
        assert len(upstream.requests) == 4


async def test_a_502_to_head_has_no_body() -> None:
    """But the length that it would have."""
    async with (
        through(cut_at(b"", "fin"), serve(build_answer(200, b"x"))) as (gateway, _),
        client_of(gateway) as client,
    ):
        await client.send(get(method=b"HEAD"))
        response = await client.read_response(method="HEAD")
        assert response.status == 502 and int(response.list_values(b"content-length")[0]) > 0
        await client.send(get())
        assert (await client.read_response()).payload == b"x"


async def test_a_stream_under_way_ends_when_its_upstream_dies() -> None:
    """At once, without a terminal chunk, an invented event or an invented [DONE]."""
    started = asyncio.Event()
    raw = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]) + build_chunk(
        b"data: 1\n\n"
    )

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)
        await started.wait()
        peer.reset()

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(post(b'{"stream":true}'))
        assert await client.read_exactly(len(raw)) == raw
        started.set()
        left = LoopTime()
        with pytest.raises(PEER_LEFT):
            await client.read_exactly(1)
        left.within(1)
        assert client.n_received == len(raw)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_upstream_death_during_an_upload_becomes_a_502(end: str) -> None:
    """Told to a client that is still sending; the request is not sent again, whatever its method."""

    async def dies(peer: Peer) -> None:
        await peer.read_head()
        await peer.discard(100_000)
        getattr(peer, end)()

    async with through(dies) as (gateway, upstream):
        for method in (b"POST", b"PUT"):
            async with client_of(gateway) as client:
                async with meanwhile(client.send(post(bytes(5_000_000), method=method))):
                    response = await client.read_response()
                assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        assert len(upstream.connections) == 2
