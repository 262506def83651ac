"""Streams go through as they come: at once, unchanged, and never with an end that the upstream did not send."""

import asyncio
import gzip
import json
from collections.abc import Sequence

import pytest
from functional.through import breathe, client_of, error_of, get, post, through
from gateways import Stopwatch, exchange, scrape

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import (
    LAST_CHUNK,
    build_answer,
    build_chunk,
    build_event,
    build_event_stream,
    build_event_stream_answer,
    build_head,
)
from gateway.testing.upstream import Script

REQUEST = post(b'{"stream": true}', b"/v1/chat/completions", b"Accept: application/json")
STREAM_HEAD = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


async def stream_then_end(peer: Peer, pieces: Sequence[bytes], *, then: str) -> None:
    """The head and each piece in a segment of its own, and the end of the connection."""
    for piece in (STREAM_HEAD, *pieces):
        await peer.send(piece)
        await asyncio.sleep(0)
    if then == "reset":
        await breathe()  # an RST would overtake what the gateway has not read yet
        peer.reset()


def stream_of(*pieces: bytes, then: str = "close") -> Script:
    """Answers one request with a stream and ends the connection."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await stream_then_end(peer, pieces, then=then)

    return script


async def test_the_head_and_each_event_go_through_at_once() -> None:
    """The upstream says the next thing only when the client has the one before."""
    seen = asyncio.Semaphore(0)
    events = [build_chunk(build_event(f"{n}")) for n in range(5)]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD)
        for one in (*events, LAST_CHUNK):
            await seen.acquire()
            await peer.send(one)

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(REQUEST)
        assert await client.read_head() == STREAM_HEAD
        for one in (*events, LAST_CHUNK):
            seen.release()
            assert await client.read_exactly(len(one), timeout_s=120) == one


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([b": comment\n\n", b": \n\n", build_event("1")], id="comments"),
        pytest.param([b"id: 1\ndata: a\n\n", b"retry: 3000\n\n", b"event: ping\ndata: {}\n\n"], id="other-fields"),
        pytest.param([b"data: a\r\n\r\n", b"data: b\r\r", b"data: c\n\n"], id="all-line-ends"),
        pytest.param([b"\xef\xbb\xbfdata: a\n\n"], id="byte-order-mark"),
        pytest.param([b"data: \xff\xfe\x00\n\n", b"data: {not json}\n\n"], id="not-utf-8-not-json"),
        pytest.param([build_event('{"error":{"message":"overloaded","code":429}}')], id="error-event"),
        pytest.param([build_event("1"), build_event("[DONE]"), build_event("2")], id="event-after-done"),
        pytest.param([build_event("1")], id="no-done"),
        pytest.param([], id="no-event"),
        pytest.param([b"data: x\n" * 10_000 + b"\n"], id="ten-thousand-lines"),
        pytest.param([b"data: " + b"x" * 4_000_000 + b"\n\n"], id="one-huge-event"),
    ],
)
async def test_streams_go_through_unchanged(events: list[bytes]) -> None:
    """Bytes and chunks are the upstream's: nothing is read into them, nothing added, nothing mended."""
    whole = build_event_stream_answer(events)
    async with (
        through(stream_of(build_event_stream(events))) as (gateway, _),
        client_of(gateway, keep_bytes=1 << 23) as client,
    ):
        await client.send(REQUEST)
        await client.read_response()
        assert bytes(client.received) == STREAM_HEAD + whole.partition(b"\r\n\r\n")[2]


async def test_a_stream_in_single_bytes_goes_through_unchanged() -> None:
    """Wherever TCP cuts: within a chunk size, a character, a line end."""
    body = build_event_stream([build_event("héllo, 世界 🌍".encode()), build_event("[DONE]")])
    pieces = [body[i : i + 1] for i in range(len(body))]
    async with through(stream_of(*pieces)) as (gateway, _), client_of(gateway) as client:
        response = await exchange(client, REQUEST)
        assert response.raw_body == body


async def test_a_compressed_stream_stays_compressed() -> None:
    """Nothing is decompressed on the way, whatever the client accepts."""
    packed = gzip.compress(build_event("1") + build_event("[DONE]"))
    headers = [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, headers) + build_chunk(packed[:9]) + build_chunk(packed[9:]) + LAST_CHUNK)

    async with through(script) as (gateway, _), client_of(gateway) as client:
        response = await exchange(client, REQUEST)
        assert response.payload == packed and response.raw_head == build_head(200, headers)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 529])
async def test_upstream_error_in_place_of_a_stream_is_forwarded(status: int) -> None:
    """Status, body and Retry-After are the upstream's own; it is not turned into a stream."""
    reply = build_answer(status, b'{"error":{"message":"no"}}', [("Retry-After", "7"), ("x-ratelimit-remaining", "0")])

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(reply)

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        response = await exchange(client, REQUEST)
        assert response.raw == reply
        assert len(upstream.requests) == 1


async def test_a_connection_takes_the_next_request_after_a_stream() -> None:
    """Both sides: the client's connection, and the one upstream connection."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await peer.send(build_event_stream_answer([build_event("1"), build_event("[DONE]")]))

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(5):
            assert (await exchange(client, REQUEST)).payload == build_event("1") + build_event("[DONE]")
        assert len(upstream.connections) == 1


BODY = build_event_stream([build_event('{"choices":[{"delta":{"content":"a"}}]}'), build_event("[DONE]")])


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_chunked_stream_that_was_cut_never_looks_finished(then: str) -> None:
    """Wherever it is cut: what arrived is delivered, the last chunk is missing, the connection ends."""

    async def script(peer: Peer) -> None:
        offset = int((await peer.read_request()).payload)
        await stream_then_end(peer, [BODY[:offset]], then=then)

    async def one(offset: int) -> None:
        async with client_of(gateway) as client:
            await client.send(post(b"%d" % offset))
            await client.wait_end()
            got = bytes(client.received)
            assert got.startswith(STREAM_HEAD)
            assert BODY[:offset].startswith(got[len(STREAM_HEAD) :]), "what arrived is the upstream's"
            assert not got.endswith(LAST_CHUNK), f"a clean end after {offset} bytes"

    async with through(script) as (gateway, _):
        await asyncio.gather(*(one(offset) for offset in range(len(BODY))))


async def test_an_answer_of_stated_length_that_was_cut_never_looks_finished() -> None:
    """Fewer bytes than stated arrive, then the connection ends."""
    whole = build_answer(200, b'{"text":"hello"}', [("Content-Type", "application/json")])
    body_at = whole.index(b"\r\n\r\n") + 4

    def cut_at(offset: int) -> Script:
        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(whole[:offset])

        return script

    offsets = range(body_at, len(whole))
    async with through(*(cut_at(offset) for offset in offsets)) as (gateway, _):
        for offset in offsets:
            async with client_of(gateway) as client:
                await client.send(REQUEST)
                await client.wait_end()
                assert bytes(client.received) == whole[:offset]


async def test_a_close_delimited_stream_that_was_reset_is_reset() -> None:
    """Its framing cannot show the cut, so the connection does: an RST, after what arrived was delivered."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Type", "text/event-stream")]) + build_event("1"))
        await delivered.wait()
        peer.reset()

    delivered = asyncio.Event()
    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(REQUEST)
        await client.read_until(build_event("1"))
        delivered.set()
        assert await client.wait_end() == "reset"


async def test_close_delimited_stream_ends_with_the_upstream() -> None:
    """With a FIN, and the client is told beforehand that the connection ends."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(
            build_head(200, [("Content-Type", "text/event-stream")]) + build_event("1") + build_event("[DONE]")
        )

    async with through(script) as (gateway, _), client_of(gateway) as client:
        response = await exchange(client, REQUEST)
        assert response.payload == build_event("1") + build_event("[DONE]")
        assert response.list_values(b"connection") == [b"close"] and client.ended == "eof"


async def test_bytes_after_the_last_chunk_are_not_forwarded() -> None:
    """It belongs to nobody: the upstream connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(
            build_event_stream_answer([build_event("1")]) + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
        )
        await peer.wait_end()

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(2):
            assert (await exchange(client, REQUEST)).payload == build_event("1")
        assert b"EVIL" not in client.received and len(upstream.connections) == 2


async def test_a_silent_stream_is_cut_after_the_idle_time() -> None:
    """`timeouts.idle` counts from the last byte, and the cut is visible."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD)
        for n in range(6):
            last.append(Stopwatch())
            await peer.send(build_chunk(build_event(f"{n}")))
            await asyncio.sleep(0.3)  # an upstream that talks slowly, but within the idle time, is the case
        await peer.wait_end(timeout_s=None)

    last: list[Stopwatch] = []
    timeouts = {"timeouts": {"idle": 1}}
    async with through(script, upstream=timeouts) as (gateway, upstream), client_of(gateway) as client:
        await client.send(REQUEST)
        await client.read_until(build_event("5"))
        await client.wait_end()
        assert last[-1].s >= 1
        assert not client.received.endswith(LAST_CHUNK)
        await upstream.wait_open(0)
        assert (await scrape(gateway))['gateway_deadlines_total{deadline="idle"}'] == 1


async def test_upstream_without_first_byte_returns_504() -> None:
    """`timeouts.first_byte`: 504 in our shape, the upstream connection closed, the client's kept."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    timeouts = {"timeouts": {"first_byte": 0.3}}
    async with through(silent, upstream=timeouts) as (gateway, upstream), client_of(gateway) as client:
        waited = Stopwatch()
        response = await exchange(client, REQUEST)
        assert waited.s >= 0.3
        assert response.status == 504 and error_of(response)["code"] == "upstream_timeout"
        await upstream.wait_open(0)
        assert not response.list_values(b"connection")
        assert (await exchange(client, get(b"/nowhere"))).status == 404


async def test_streams_at_the_same_time_do_not_mix() -> None:
    """50 streams, each with words of its own, interleaved on both sides."""

    async def script(peer: Peer) -> None:
        while True:
            word = (await peer.read_request(timeout_s=None)).payload
            await peer.send(STREAM_HEAD)
            for n in range(10):
                await peer.send(build_chunk(build_event(word + b" %d" % n)))
                await asyncio.sleep(0)
            await peer.send(LAST_CHUNK)

    async def one(number: int) -> None:
        word = b"w%d" % number
        async with client_of(gateway) as client:
            for _ in range(3):
                response = await exchange(client, post(word))
                assert response.payload == b"".join(build_event(word + b" %d" % n) for n in range(10))

    async with through(script) as (gateway, upstream):
        await asyncio.gather(*(one(n) for n in range(50)))
        assert len(upstream.requests) == 150


async def test_open_streams_are_counted() -> None:
    """While they are under way, and by their own duration afterwards."""
    finish = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD)
        await finish.wait()
        await peer.send(LAST_CHUNK)

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(REQUEST)
        await client.read_head()
        during = await scrape(gateway)
        finish.set()
        await client.read_until(LAST_CHUNK)
        after = await scrape(gateway)
    assert (during["gateway_open_streams"], after["gateway_open_streams"]) == (1, 0)
    assert during['gateway_inflight_requests{mode="passthrough"}'] == 1
    labels = 'mode="passthrough",route="/v1/",stream="true"'
    assert after[f"gateway_http_request_duration_seconds_count{{{labels}}}"] == 1


async def test_truncated_stream_is_counted_as_an_upstream_failure() -> None:
    """Cut is not ok: the outcome is `truncated`."""
    async with through(stream_of(build_chunk(build_event("1")))) as (gateway, _), client_of(gateway) as client:
        await client.send(REQUEST)
        await client.wait_end()
        outcomes = await scrape(gateway)
    assert outcomes['gateway_upstream_requests_total{outcome="truncated",upstream="up"}'] == 1
    assert 'gateway_upstream_requests_total{outcome="ok",upstream="up"}' not in outcomes


async def test_streaming_is_the_upstreams_choice() -> None:
    """`stream: true` with a JSON answer, and an event stream nobody asked for: both as they come."""
    plain = build_answer(
        200, json.dumps({"object": "chat.completion"}).encode(), [("Content-Type", "application/json")]
    )

    async def script(peer: Peer) -> None:
        for reply in (plain, build_event_stream_answer([build_event("1")])):
            await peer.read_request()
            await peer.send(reply)

    async with through(script) as (gateway, _), client_of(gateway) as client:
        assert (await exchange(client, REQUEST)).raw == plain
        assert (await exchange(client, get())).payload == build_event("1")


async def test_upstream_receives_a_request_before_its_body_is_complete() -> None:
    """A request that streams its body is not collected first."""
    heard = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        assert await peer.read_exactly(5) == b"hello"
        heard.set()
        await peer.read_exactly(6)
        await peer.send(build_answer(200, b"ok"))

    async with through(script) as (gateway, _), client_of(gateway) as client:
        whole = post(b"hello world")
        await client.send(whole[:-6])
        await asyncio.wait_for(heard.wait(), 120)
        assert (await exchange(client, whole[-6:])).payload == b"ok"


async def test_a_stream_for_http_1_0_ends_with_its_connection() -> None:
    """An HTTP/1.0 client knows no chunks: it gets the events, and the end of the connection as their end."""
    async with through(stream_of(BODY)) as (gateway, _), client_of(gateway) as client:
        await client.send(get(version=b"1.0"))
        received_head = await client.read_head()
        assert b"chunked" not in received_head.lower()
        assert await client.read_rest() == build_event('{"choices":[{"delta":{"content":"a"}}]}') + build_event(
            "[DONE]"
        )


async def test_a_stream_for_http_1_0_that_was_cut_is_reset() -> None:
    """Without chunks only an RST can show that something is missing."""
    async with through(stream_of(BODY[:-5], then="reset")) as (gateway, _), client_of(gateway) as client:
        await client.send(get(version=b"1.0"))
        assert await client.wait_end() == "reset"
