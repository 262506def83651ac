"""A request of our own: its answer is whole, or an error; its connection goes back, or is gone."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from gateway.contracts.errors import GatewayError
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import Script
from gateway.upstream.call import TURN_BYTES, Take, UpstreamCall
from gateway.upstream.pool import Pool

from .turns import pooled

ASK = b"POST /v1/x HTTP/1.1\r\nHost: u\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


async def fetch(pool: Pool, *, silence_s: float | None = None, is_once: bool = False) -> tuple[int, bytes]:
    call = UpstreamCall(pool, silence_s=silence_s, is_once=is_once)
    try:
        status = (await call.send(ASK)).status
        return status, await rest(call)
    finally:
        call.close()


async def rest(call: UpstreamCall) -> bytes:
    pieces = []
    while piece := await call.read_more():
        pieces.append(piece)
    return b"".join(pieces)


async def silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end()


async def stops(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(CHUNKED + build_chunk(b"x"))
    await peer.wait_end()


async def test_upstream_answer_is_read_whole_and_its_connection_reused() -> None:
    """With a length, and in chunks, whose framing is taken off."""
    answers = iter(
        (
            build_answer(200, b"one"),
            CHUNKED + build_chunk(b"t") + build_chunk(b"wo") + b"0\r\nX: y\r\n\r\n",
            build_answer(404, b"no"),
        )
    )
    script = serve(lambda _: next(answers))
    async with pooled(script) as (pool, upstream, _):
        assert [await fetch(pool) for _ in range(3)] == [(200, b"one"), (200, b"two"), (404, b"no")]
        assert len(upstream.connections) == 1


async def test_answer_pieces_are_returned_on_arrival() -> None:
    """Nothing waits for more; interim answers are not the answer."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED + build_chunk(b"first"))
        await go.wait()
        await peer.send(build_chunk(b"second") + b"0\r\n\r\n")

    async with pooled(script) as (pool, _, _):
        call = UpstreamCall(pool)
        await call.send(ASK)
        assert await call.read_more() == b"first"
        go.set()
        assert [await call.read_more() for _ in range(3)] == [b"second", b"", b""]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"zz\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_broken_upstream_answer_raises_an_error(raw: bytes) -> None:
    """Cut anywhere, malformed, or of another protocol: never a whole answer; the connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)

    async with pooled(script) as (pool, _, _):
        with pytest.raises(GatewayError) as failed:
            await fetch(pool)
        assert failed.value.code == "upstream_error"
        assert not pool.idle


async def test_stale_connection_is_replaced_and_the_request_resent() -> None:
    """It closed as the request came: the request goes over another one, once."""

    async def closes(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_head()

    async with pooled(closes, serve(build_answer(200, b"again"))) as (pool, upstream, _):
        await fetch(pool)
        assert await fetch(pool) == (200, b"again")
        assert len(upstream.connections) == 2


async def test_send_once_request_is_not_resent_after_its_connection_closes() -> None:
    """It may have had an effect before its connection closed, so it does not go over another one."""

    async def closes(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_head()

    async with pooled(closes, serve(build_answer(200, b"again"))) as (pool, upstream, _):
        await fetch(pool)
        with pytest.raises(GatewayError, match="it did not answer") as failed:
            await fetch(pool, is_once=True)
        assert failed.value.code == "upstream_error"
        assert len(upstream.connections) == 1
        assert await fetch(pool, is_once=True) == (200, b"again")


async def test_stale_idle_connections_fail_only_the_first_send_once_request() -> None:
    """Those that waited for as long are gone with the first, also for requests that are sent once."""

    async def closes(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_head()
        peer.reset()

    async with pooled(closes, closes, closes, serve(build_answer(200, b"again"))) as (pool, upstream, _):
        await asyncio.gather(*(fetch(pool) for _ in range(3)))
        assert len(upstream.connections) == 3
        with pytest.raises(GatewayError, match="it did not answer"):
            await fetch(pool, is_once=True)
        for _ in range(2):
            assert await fetch(pool, is_once=True) == (200, b"again")
        assert len(upstream.connections) == 4


async def answers_once(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(build_ok_answer())
    await peer.read_request()
    await peer.wait_end()


async def test_timed_out_request_on_a_reused_connection_is_not_repeated() -> None:
    """The limit is over once, and the model is paid for once."""
    async with pooled(answers_once, serve(build_answer(200, b"again")), first_byte_s=0.05) as (pool, upstream, _):
        await fetch(pool)
        with pytest.raises(GatewayError, match=r"did not answer within 0\.05 s"):
            await fetch(pool)
        assert len(upstream.connections) == 1


async def test_call_closed_before_its_answer_is_not_resent() -> None:
    """Also where its connection was used before."""
    async with pooled(answers_once, serve(build_answer(200, b"again"))) as (pool, upstream, _):
        await fetch(pool)
        call = UpstreamCall(pool)
        waiting = asyncio.create_task(call.send(ASK))
        await upstream.wait_requests(2)
        call.close()
        with pytest.raises(GatewayError, match="given up"):
            await waiting
        assert call.given_up and len(upstream.connections) == 1


async def test_answer_sent_on_accept_is_returned_to_the_call() -> None:
    """Before the request was read, or could be sent: the call has it, and the connection is not used again."""

    async def busy(peer: Peer) -> None:
        await peer.send(build_answer(503, b"at my limit"))

    async with pooled(busy) as (pool, upstream, _):
        for _ in range(10):
            assert await fetch(pool) == (503, b"at my limit")
        assert len(upstream.connections) == 10


async def test_silent_upstream_times_out() -> None:
    """Before the head, and within the body."""
    for script, limits in ((silent, {"first_byte_s": 0.05}), (stops, {"idle_s": 0.05})):
        async with pooled(script, **limits) as (pool, upstream, _):
            with pytest.raises(GatewayError) as failed:
                await fetch(pool)
            assert failed.value.code == "upstream_timeout"
            await upstream.wait_open(0)


@pytest.mark.parametrize(
    ("script", "limits", "said"),
    [
        (silent, {"first_byte_s": 0.15, "idle_s": 0.05}, r"did not answer within 0\.15 s"),
        (silent, {"first_byte_s": 0.05, "idle_s": 600}, r"did not answer within 0\.05 s"),
        (stops, {"first_byte_s": 600, "idle_s": 0.05}, r"was silent for 0\.05 s"),
        (stops, {"first_byte_s": 0.05, "idle_s": 0.15}, r"was silent for 0\.15 s"),
    ],
)
async def test_first_byte_and_idle_timeouts_apply_independently(
    script: Script, limits: dict[str, float], said: str
) -> None:
    """One timer serves both."""
    async with pooled(script, **limits) as (pool, _, _):
        with pytest.raises(GatewayError, match=said):
            await fetch(pool)


async def test_call_timeout_overrides_the_endpoint_timeout() -> None:
    """For the first byte and within the body, in place of the endpoint's."""
    for script in (silent, stops):
        async with pooled(script) as (pool, upstream, _):
            with pytest.raises(GatewayError, match=r"0\.05 s") as failed:
                await fetch(pool, silence_s=0.05)
            assert failed.value.code == "upstream_timeout"
            await upstream.wait_open(0)


@pytest.mark.parametrize(("before", "other"), [(b"", silent), (CHUNKED + build_chunk(b"x"), stops)])
async def test_call_without_a_silence_limit_outlasts_the_endpoint_timeouts(before: bytes, other: Script) -> None:
    """It waits on, past the endpoint's limits, at which another call ends."""
    over = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(before)
        await over.wait()
        await peer.send((CHUNKED + build_chunk(b"x")).removeprefix(before) + b"0\r\n\r\n")

    async with pooled(slow, other, first_byte_s=0.05, idle_s=0.05) as (pool, upstream, _):
        waiting = asyncio.create_task(fetch(pool, silence_s=math.inf))
        await upstream.wait_requests(1)
        with pytest.raises(GatewayError):
            await fetch(pool)
        over.set()
        assert await waiting == (200, b"x")


async def test_closed_call_closes_its_connection() -> None:
    """At once: the upstream need not go on."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + build_chunk(b"x"))
        await peer.wait_end()

    async with pooled(endless) as (pool, upstream, _):
        call = UpstreamCall(pool)
        await call.send(ASK)
        call.close()
        call.close()
        assert call.given_up
        await upstream.wait_open(0)


async def test_closing_a_call_raises_an_error_in_its_reader() -> None:
    """It does not wait on; what had come before is still read."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + build_chunk(b"x"))
        await peer.wait_end()

    async with pooled(endless) as (pool, _, _):
        call = UpstreamCall(pool)
        await call.send(ASK)
        assert await call.read_more() == b"x"
        waiting = asyncio.create_task(call.read_more())
        await asyncio.sleep(0)
        call.close()
        with pytest.raises(GatewayError):
            await waiting


async def test_bounded_body_read_stops_shortly_after_its_limit() -> None:
    """All of a short one; of a long one a little more than the limit, and its connection is not used again."""
    answers = iter((build_answer(200, b"x" * 1000), build_answer(200, b"y" * 5_000_000)))
    async with pooled(serve(lambda _: next(answers))) as (pool, _, _):
        for limit, whole in ((1000, True), (1000, False)):
            call = UpstreamCall(pool)
            await call.send(ASK)
            content = await call.read_within(limit)
            call.close()
            assert (len(content) == 1000) is whole and len(content) < 2_000_000
            assert call.given_up is not whole
        assert not pool.idle


async def test_paused_reader_stops_reading_from_the_upstream() -> None:
    """What is held stays small, and nothing of it is lost."""
    total = 20_000_000

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(200):
            await peer.send(bytes(total // 200))

    async with pooled(flood) as (pool, upstream, _):
        call = UpstreamCall(pool)
        await call.send(ASK)
        (connection,) = pool.open
        async with asyncio.timeout(120):
            while not connection.paused:
                await asyncio.sleep(0)
        assert upstream.connections[0].n_sent < total
        assert len(await rest(call)) == total


# Handed over as it comes.


async def each(call: UpstreamCall, take: Take) -> None:
    try:
        await call.send(ASK)
        await call.read_each(take)
    finally:
        call.close()


async def test_pieces_are_handed_to_the_callback_on_arrival() -> None:
    """Those that were there before as well; it returns at the end, and the connection is used again."""
    taken: list[bytes] = []
    second = asyncio.Event()

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request()
            await peer.send(CHUNKED + build_chunk(b"first"))
            await second.wait()
            await peer.send(build_chunk(b"second"))
            await peer.send(build_chunk(b"last") + b"0\r\n\r\n")

    def take(piece: bytes) -> None:
        taken.append(piece)
        second.set()

    async with pooled(script) as (pool, upstream, _):
        await each(UpstreamCall(pool), take)
        assert b"".join(taken) == b"firstsecondlast" and taken[0] == b"first"
        await each(UpstreamCall(pool), take)
        assert len(upstream.connections) == 1


async def test_chunks_are_handed_over_whatever_their_packet_boundaries() -> None:
    """Whole, several at once, cut anywhere, of any size, and an end that comes with the last of them or by itself."""
    texts = [b"a", b"bc" * 40, b"d" * 3000, b"e", b"f" * 17]
    body = b"".join(map(build_chunk, texts))
    cuts = [
        [build_chunk(text) for text in texts],
        [body],
        [body[:1], body[1:-1], body[-1:]],
        [
            build_chunk(texts[0]) + build_chunk(texts[1])[:2],
            build_chunk(texts[1])[2:],
            b"".join(map(build_chunk, texts[2:])),
        ],
        [body[i : i + 7] for i in range(0, len(body), 7)],
    ]
    for pieces in cuts:
        for last in ([*pieces, b"0\r\n\r\n"], [*pieces[:-1], pieces[-1] + b"0\r\n\r\n"]):
            taken: list[bytes] = []

            async def script(peer: Peer, last: list[bytes] = last) -> None:
                await peer.read_request()
                await peer.send(CHUNKED)
                for piece in last:
                    await peer.send(piece)
                    await asyncio.sleep(0)  # our side, on the same event loop, reads it by itself

            async with pooled(script) as (pool, _, _):
                await each(UpstreamCall(pool), taken.append)
            assert b"".join(taken) == b"".join(texts)


@pytest.mark.parametrize("size", [1, 9, 60_000])
async def test_flood_of_tiny_events_yields_to_the_event_loop(size: int) -> None:
    """However they are cut into chunks, only so much is handed over in one turn of the event loop."""
    events = b"data:{}\n\n" * 60_000
    body = b"".join(build_chunk(events[at : at + size]) for at in range(0, len(events), size)) + b"0\r\n\r\n"
    turn, taken = 0, dict[int, int]()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + body, timeout_s=None)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def take(piece: bytes) -> None:
        taken[turn] = taken.get(turn, 0) + len(piece)

    async with pooled(script) as (pool, _, _):
        counting = asyncio.create_task(count_turns())
        await each(UpstreamCall(pool), take)
        counting.cancel()
    assert sum(taken.values()) == len(events)
    assert max(taken.values()) <= 2 * TURN_BYTES  # the pieces that came before somebody took them come with the next


async def test_piece_callback_may_pause_the_stream() -> None:
    """Nothing is handed over before the pause is over, and nothing is lost meanwhile."""
    taken: list[bytes] = []
    paused, go = asyncio.Event(), asyncio.Event()
    sent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED)
        for number in range(3):
            await peer.send(build_chunk(b"%d" % number))
            await paused.wait()
        sent.set()
        await peer.send(b"0\r\n\r\n")

    async def pause() -> None:
        paused.set()
        await go.wait()

    def take(piece: bytes) -> Callable[[], Awaitable[None]]:
        taken.append(piece)
        return pause

    async with pooled(script) as (pool, _, _):
        running = asyncio.create_task(each(UpstreamCall(pool), take))
        await sent.wait()
        assert taken == [b"0"]
        go.set()
        await running
        assert b"".join(taken) == b"012"


async def test_consumer_error_ends_the_call_and_closes_its_connection() -> None:
    """With its own error, whether the piece was there before or came later; the connection is gone."""
    for first in (b"", build_chunk(b"first")):
        seen = asyncio.Event()

        async def script(peer: Peer, first: bytes = first, seen: asyncio.Event = seen) -> None:
            await peer.read_request()
            await peer.send(CHUNKED + first)
            if first:
                await seen.wait()
            await peer.send(build_chunk(b"bad"))
            await peer.wait_end()

        def take(piece: bytes, seen: asyncio.Event = seen) -> None:
            seen.set()
            if b"bad" in piece:
                raise ValueError("not to my taste")

        async with pooled(script) as (pool, upstream, _):
            with pytest.raises(ValueError, match="not to my taste"):
                await each(UpstreamCall(pool), take)
            await upstream.wait_open(0)


async def test_truncated_streamed_answer_raises_an_error() -> None:
    """So is silence."""

    async def cut(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + build_chunk(b"first"))

    async with pooled(cut) as (pool, _, _):
        with pytest.raises(GatewayError) as failed:
            await each(UpstreamCall(pool), lambda _: None)
        assert failed.value.code == "upstream_error"

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + build_chunk(b"first"))
        await peer.wait_end()

    async with pooled(silent, idle_s=0.05) as (pool, _, _):
        with pytest.raises(GatewayError) as failed:
            await each(UpstreamCall(pool), lambda _: None)
        assert failed.value.code == "upstream_timeout"
