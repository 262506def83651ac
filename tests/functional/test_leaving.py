"""A client that leaves takes its upstream connection with it, at once and in every phase; nobody else notices."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from gateways import until, until_still
from measuring import LoopTime
from unanswered_ports import silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve

from .through import HOSTS, breathe, client_of, get, listener_of, post, post_chunked, through

#: The promise, and what comes to it where a paused client must be looked for, every 0.05 s.
AT_ONCE_S, NOTICED_S = 0.1, 0.15

CHUNKED = build_head(200, [("Transfer-Encoding", "chunked")])
STREAM = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


async def silent(peer: Peer) -> None:
    await peer.read_head()
    await peer.wait_end()


def begins(raw: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)
        await peer.wait_end()

    return script


PHASES: dict[str, tuple[Callable[[Peer], Awaitable[None]], bytes, int]] = {
    "waiting": (silent, get(), 0),
    "uploading": (silent, post(bytes(1000))[:-500], 0),
    "uploading chunks": (silent, post_chunked(b"5\r\nhello\r\n"), 0),
    "head": (begins(b"HTTP/1.1 200 OK\r\nX-"), get(), 0),
    "length": (begins(build_head(200, [("Content-Length", "9")]) + b"1234"), get(), 4),
    "chunked": (begins(CHUNKED + build_chunk(b"abc")), get(), 3),
    "streaming": (begins(STREAM + build_chunk(b"data: 1\n\n")), post(b"{}"), 9),
    "open": (begins(build_head(200) + b"abc"), get(), 3),
    "interim": (begins(build_head(103)), get(), 3),
}


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("phase", PHASES)
async def test_the_upstream_connection_ends_with_the_client(phase: str, how: str) -> None:
    """Whether it closes, resets or stops sending; what it left behind is counted, not answered."""
    script, request, some = PHASES[phase]
    async with through(script) as (gateway, upstream):
        client = await client_of(gateway)
        await client.send(request)
        await upstream.wait_connections(1)
        if some:
            await client.read_exactly(some)
        await breathe()
        left = LoopTime()
        if how == "half_close":
            await client.half_close()
        else:
            getattr(client, how)()
        await upstream.wait_open(0)
        left.within(AT_ONCE_S)
        client.close()
        assert gateway.metrics.client_disconnects == 1
        assert gateway.metrics.get_upstream("up").outcomes == {"cancelled": 1}


async def test_client_leaving_during_connect_stops_the_attempt() -> None:
    """No connection is made for it later on."""
    with silent_port() as port:
        config = {"upstreams": [{"name": "up", "base_url": f"http://127.0.0.1:{port}", "timeouts": {"connect": "30s"}}]}
        async with LocalGateway({**config, "allowed_hosts": HOSTS}) as gateway:
            async with client_of(gateway) as client:
                await client.send(get())
                await breathe(20)
            left = LoopTime()
            await until(lambda: gateway.metrics.client_disconnects)
            left.within(AT_ONCE_S)
            assert gateway.metrics.get_upstream("up").outcomes == {"cancelled": 1}


async def test_departure_of_a_client_that_does_not_read_is_noticed() -> None:
    """While its answer is stuck: reading is paused nowhere, or looked after."""

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED)
        while True:
            await peer.send(build_chunk(bytes(50_000)), timeout_s=None)

    async with through(flood) as (gateway, upstream):
        client = await client_of(gateway, rcvbuf=4096)
        await client.send(get())
        await client.read_some()
        await stuck(upstream.connections[0])
        left = LoopTime()
        client.reset()
        await upstream.wait_open(0)
        left.within(NOTICED_S)


async def test_client_reset_is_noticed_while_its_upload_is_stuck() -> None:
    """While the upstream does not read, neither does the gateway; so it looks. (A FIN would wait behind the body.)"""
    done = asyncio.Event()

    async def deaf(peer: Peer) -> None:
        await peer.read_head()
        await done.wait()

    async with through(deaf, rcvbuf=4096) as (gateway, upstream):
        client = await client_of(gateway)
        sending = asyncio.create_task(client.send(post_chunked(build_chunk(bytes(64_000_000))), timeout_s=None))
        await upstream.wait_connections(1)
        await stuck(client)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        left = LoopTime()
        client.reset()
        await until(lambda: gateway.metrics.client_disconnects)
        left.within(NOTICED_S)


async def stuck(peer: Peer) -> None:
    """Waits until what `peer` sends has stopped moving."""
    await until_still(lambda: peer.n_sent)


async def test_pipelined_requests_of_a_departed_client_are_not_sent() -> None:
    """The one under way ends, those behind it never begin."""
    async with through(silent) as (gateway, upstream):
        client = await client_of(gateway)
        await client.send(get(b"/v1/1") + get(b"/v1/2") + post(b"{}", b"/v1/3"))
        await upstream.wait_connections(1)
        await breathe()
        left = LoopTime()
        client.close()
        await upstream.wait_open(0)
        left.within(AT_ONCE_S)
        await breathe(20)
        assert len(upstream.connections) == 1


async def test_cancelled_requests_do_not_affect_other_clients() -> None:
    """1,000 requests cancelled at odd moments: no answer goes astray, nothing is left open or counted as under way."""

    def slow(delay_s: float) -> Callable[[Peer], Awaitable[None]]:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.read_request(timeout_s=None)
                await asyncio.sleep(delay_s)  # the client leaves before, while or after this
                await peer.send(build_answer(200, request.target))

        return script

    async def leaver(gateway: LocalGateway, number: int) -> None:
        client = await client_of(gateway)
        await client.send(get(b"/v1/leaver-%d" % number) if number % 2 else post(bytes(number))[: -number % 40 or None])
        await asyncio.sleep(number % 13 / 1000)  # the moment is the case
        client.reset() if number % 3 else client.close()

    async def stayer(gateway: LocalGateway) -> None:
        async with client_of(gateway) as client:
            for turn in range(30):
                await client.send(get(b"/v1/stayer-%d" % turn))
                assert (await client.read_response()).payload == b"/v1/stayer-%d" % turn

    async with through(slow(0.004)) as (gateway, upstream):
        staying = [asyncio.create_task(stayer(gateway)) for _ in range(5)]
        for start in range(0, 1000, 50):
            await asyncio.gather(*(leaver(gateway, number) for number in range(start, start + 50)))
        await asyncio.gather(*staying)
        listener = listener_of(gateway)
        pool = listener.router.groups[0].members[0].pool
        await until(lambda: not listener.inflight and not listener.connections)
        await until(lambda: pool.open == set(pool.idle))  # the loop tells of an aborted connection a turn later
        await upstream.wait_open(len(pool.idle))


async def test_client_leaving_after_a_whole_answer_cancels_nothing() -> None:
    """`Connection: close` clients that leave right after the answer do not cost the upstream its connection."""
    async with through(serve(build_answer(200, b"x"))) as (gateway, upstream):
        for _ in range(20):
            async with client_of(gateway) as client:
                await client.send(get(b"/v1/x", b"Connection: close"))
                await client.read_response()
        assert len(upstream.connections) == 1
        assert gateway.metrics.client_disconnects == 0
