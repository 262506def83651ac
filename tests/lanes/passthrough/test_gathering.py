"""A body that is slow to come holds no place that others want, over the wire."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from functional.several import CHAT, Several, several
from functional.through import FINE, ask, breathe, client_of, error_of, get, listener_of, post, post_chunked, through
from gateways import exchange, key, until

from gateway.aio.clock import SystemClock
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head

SLOW, OTHER = b"X-Gateway-Key: sk-slow", b"X-Gateway-Key: sk-other"
BODY = b'{"model": "m", "messages": []}'
KEYS: Sequence[dict[str, object]] = [
    {**key("sk-slow"), "name": "slow", "tenant": "t"},
    {**key("sk-other"), "name": "second", "tenant": "t"},
]
LENGTH = post(BODY, CHAT, SLOW)
CHUNKED = post_chunked(build_chunk(BODY[:9]) + build_chunk(BODY[9:]) + LAST_CHUNK, CHAT, SLOW)
ONE: dict[str, object] = {"concurrent": 1}
BY_MODEL = {"passthrough": {"by_model": True}}

#: Places that others want: rules of the upstream, and more of the configuration.
PLACES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "endpoint": ({"each": ONE}, {}),
    "endpoint, queue": ({"each": ONE, "queue": {"size": 5, "wait": "1s"}}, {}),
    "endpoint, hedged": ({"each": ONE, "hedge": "1h", "retry": {}}, {}),
    "endpoint, by model": ({"each": ONE}, BY_MODEL),
    "upstream": ({"limits": ONE}, {}),
    "upstream, by model": ({"limits": ONE}, BY_MODEL),
    "model": ({}, {"limits": {"models": {"m": ONE}}, **BY_MODEL}),
    "tenant": ({}, {"limits": {"tenants": {"t": ONE}}}),
}


class Later(SystemClock, ManualClock):
    """The system's clock, and the seconds that a test adds."""

    def time(self) -> float:
        return SystemClock.time() + self()


def sweep(gateway: LocalGateway, later_s: float) -> None:
    """Look at the deadlines so much later; the gateway's own looks are at the same time."""
    listener = listener_of(gateway)
    listener.clock = lambda: asyncio.get_running_loop().time() + later_s
    for connection in list(listener.connections):
        connection.sweep(listener.clock())


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("slow", [LENGTH, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("place", PLACES)
async def test_slow_body_does_not_occupy_a_concurrency_slot(place: str, slow: bytes, usage: bool) -> None:
    """It takes its place when it is whole, and arrives as it was sent."""
    rules, more = PLACES[place]
    settings = {"keys": KEYS, "usage": {"enabled": usage}, **more}
    async with several([FINE] * 3, settings=settings, **rules) as up, client_of(up.gateway) as client:
        await client.send(slow[:-9])
        await breathe()
        assert (await ask(up.gateway, post(BODY, CHAT, OTHER))).status == 200
        await client.send(slow[-9:])
        assert (await client.read_response()).status == 200
        assert up.endpoints[0].requests[-1].raw_body == slow[slow.index(b"\r\n\r\n") + 4 :]
        assert up.inflight == [0]


@pytest.mark.parametrize("limit", ["tokens_per_minute", "tokens_per_day"])
@pytest.mark.parametrize("of", ["upstream", "tenant"])
@pytest.mark.parametrize("here", [0, 1 << 21], ids=["held", "long"])
async def test_incomplete_body_reserves_no_tokens(limit: str, of: str, here: int) -> None:
    """It may never come. One that is longer than what is held reserves what is here of it."""
    limits = {limit: 10_000_000}
    rules = {"limits": limits} if of == "upstream" else {}
    more = {"limits": {"tenants": {"t": limits}}} if of == "tenant" else {}
    settings = {"keys": KEYS, "usage": {"enabled": True}, **more}
    async with several([FINE] * 2, settings=settings, **rules) as up, client_of(up.gateway) as client:
        await client.send(get(CHAT, b"Content-Length: 100000000", SLOW, method=b"POST") + BODY + b" " * here)
        await (up.endpoints[0].wait_connections(1) if here else breathe())
        assert (await ask(up.gateway, post(BODY, CHAT, OTHER))).status == 200


async def test_slow_body_limited_by_its_own_key_is_not_held() -> None:
    """Its own limit keeps nobody else out, so its body goes on as it comes."""
    keys = [{**KEYS[0], "limits": ONE}]
    async with several([FINE] * 2, settings={"keys": keys}) as up, client_of(up.gateway) as client:
        await client.send(LENGTH[:-9])
        await up.endpoints[0].wait_connections(1)
        assert (await ask(up.gateway, LENGTH)).status == 429
        await client.send(LENGTH[-9:])
        assert (await client.read_response()).status == 200


async def test_key_expiring_during_a_held_body_returns_401() -> None:
    """Nothing of the request was sent by then."""
    clock = Later()
    keys = [{**KEYS[0], "expires": "2100-01-01T00:00:00Z"}]
    limited = through(FINE, keys=keys, upstream={"limits": ONE}, clock=clock)
    async with limited as (gateway, upstream), client_of(gateway) as client:
        await client.send(LENGTH[:-9])
        await breathe()
        clock.advance(100 * 366 * 86_400)
        await client.send(LENGTH[-9:])
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (401, "invalid_api_key")
        assert not upstream.connections


async def test_gateway_sends_100_continue_once_for_a_held_body() -> None:
    """By the gateway, and once."""

    async def invites(peer: Peer) -> None:
        begun = await peer.read_head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.finish_request(begun)
        await peer.send(build_answer(200, b"fine"))

    async with several(invites, each=ONE) as up, client_of(up.gateway) as client:
        request = post(BODY, CHAT, b"Expect: 100-continue")
        await client.send(request[: -len(BODY)])
        assert (await client.read_head()).startswith(b"HTTP/1.1 100 ")
        assert not up.endpoints[0].connections
        await client.send(BODY)
        response = await client.read_response()
        assert (response.status, response.informational) == (200, ())
        assert up.endpoints[0].requests[0].raw_body == BODY


async def test_stalled_held_body_returns_408() -> None:
    """As any other: it needs 100 bytes a second, and no more, for it holds nothing."""
    async with several(FINE, each=ONE) as up, client_of(up.gateway) as client:
        await client.send(post(b"x" * 10_000, CHAT)[:-9_000])
        await breathe()
        for later_s in (0.0, 50.0):
            sweep(up.gateway, later_s)
        await client.send(b"x" * 6_000)
        await breathe()
        for later_s in (100.0, 119.0):
            sweep(up.gateway, later_s)
        await breathe()
        assert client.n_received == 0
        sweep(up.gateway, 121.0)
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (408, "request_timeout")
        assert "100 bytes a second" in error_of(response)["message"]
        assert not up.endpoints[0].connections and up.inflight == [0]


async def test_client_disconnect_during_a_held_body_releases_everything() -> None:
    """No place, and no request."""
    async with several(FINE, each=ONE) as up:
        async with client_of(up.gateway) as client:
            await client.send(LENGTH[:-9])
            await breathe()
        await until(lambda: not listener_of(up.gateway).connections)
        assert up.inflight == [0] and listener_of(up.gateway).inflight == 0
        assert not up.endpoints[0].connections


async def test_stopping_gateway_answers_503_without_awaiting_held_bodies() -> None:
    """Its client is told to send it again."""
    async with several(FINE, each=ONE) as up, client_of(up.gateway) as client:
        await client.send(LENGTH[:-9])
        await breathe()
        await listener_of(up.gateway).drain(0.0)
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (503, "gateway_stopping")
        assert not up.endpoints[0].connections and up.inflight == [0]


async def _long(up: Several, client: Peer, *, sent: int = 2_000) -> None:
    """Send so much of a long body, whose request then has its place."""
    await client.send(post(b"x" * 1_000_000, CHAT)[: sent - 1_000_000])
    await until(lambda: up.inflight == [1])


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_body_over_the_retry_size_is_forwarded_while_arriving(framing: str) -> None:
    """Once more of it is here than `retry.body`."""
    long = b"x" * 300_000
    request = post(long, CHAT) if framing == "length" else post_chunked(build_chunk(long) + LAST_CHUNK, CHAT)
    async with several(FINE, each=ONE, retry={"body": "64KiB"}) as up, client_of(up.gateway) as client:
        await client.send(request[:60_000])
        await breathe(20)
        assert up.inflight == [0]
        await client.send(request[60_000:100_000])
        await until(lambda: up.inflight == [1])
        await client.send(request[100_000:])
        assert (await client.read_response()).status == 200
        assert up.endpoints[0].requests[0].raw_body == request[request.index(b"\r\n\r\n") + 4 :]
        assert up.inflight == [0]


async def test_long_body_below_the_body_rate_returns_408() -> None:
    """`limits.body_rate`: else it is ended, and its place is free."""
    limits = {"limits": {"body_rate": "1KiB"}}
    async with several(FINE, each=ONE, retry={"body": 1000}, settings=limits) as up, client_of(up.gateway) as client:
        await _long(up, client)
        for later_s in (0.0, 50.0):
            sweep(up.gateway, later_s)
        await client.send(b"x" * 30 * 1024)  # makes up for 30 s
        await breathe(20)
        for later_s in (51.0, 88.0):
            sweep(up.gateway, later_s)
        await breathe()
        assert client.n_received == 0 and up.inflight == [1]
        sweep(up.gateway, 92.0)
        response = await client.read_response()
        assert response.status == 408 and "1024 bytes a second (limits.body_rate)" in error_of(response)["message"]
        assert up.inflight == [0]


async def test_body_at_the_configured_rate_is_never_late() -> None:
    """However long it takes."""
    limits = {"limits": {"body_rate": "1KiB"}}
    async with several(FINE, each=ONE, retry={"body": 1000}, settings=limits) as up, client_of(up.gateway) as client:
        await _long(up, client, sent=1_000_000 - 50 * 10_240)
        for turn in range(50):
            sweep(up.gateway, turn * 10.0)
            await client.send(b"x" * 10_240)
            await breathe(20)
        assert (await client.read_response()).status == 200


async def test_body_waiting_in_the_queue_is_not_late() -> None:
    """The gateway does not read it meanwhile."""
    released = asyncio.Event()

    async def holds(peer: Peer) -> None:
        await peer.read_request()
        await released.wait()
        await peer.send(build_answer(200))

    queue = {"size": 5, "wait": "1h"}
    waiting = several([holds, FINE], each=ONE, retry={"body": 1000}, queue=queue)
    async with waiting as up, client_of(up.gateway) as first, client_of(up.gateway) as client:
        await first.send(LENGTH)
        await until(lambda: up.inflight == [1])
        request = post(b"x" * 10_000, CHAT)
        await client.send(request[:500])
        await breathe()
        sweep(up.gateway, 0.0)
        await client.send(request[500:2000])
        await until(lambda: up.group.queue_length == 1)
        for later_s in range(50, 500, 50):
            sweep(up.gateway, later_s)
        released.set()
        assert (await first.read_response()).status == 200
        await breathe(20)
        sweep(up.gateway, 500.0)
        await client.send(request[2000:])
        assert (await client.read_response()).status == 200


@pytest.mark.parametrize("piece", [1, 8_192])
async def test_slowly_reading_client_releases_its_concurrency_slot(piece: int) -> None:
    """A byte now and then, or a window: it is less than a reader's least rate, and holds the endpoint up."""

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Length", "100000000")]))
        with suppress(ConnectionError):
            while True:
                await peer.send(bytes(1 << 16), timeout_s=None)

    async with several([flood, FINE], each=ONE) as up, client_of(up.gateway, rcvbuf=8192) as client:
        await client.send(LENGTH)
        (connection,) = listener_of(up.gateway).connections
        await until(lambda: connection.blocked_since is not None)
        assert up.inflight == [1]
        for later_s in range(0, 500, 50):
            if client.ended == "open":
                with suppress(ConnectionError, EOFError):
                    await client.discard(piece)
                await breathe(20)
            sweep(up.gateway, later_s)
        assert up.inflight == [0]
        assert (await ask(up.gateway, LENGTH)).status == 200


async def test_request_without_a_body_is_not_held() -> None:
    """It is whole."""
    async with several(FINE, each=ONE) as up, client_of(up.gateway) as client:
        assert (await exchange(client, get(b"/v1/models"))).status == 200


async def test_pipelined_requests_behind_a_held_body_keep_their_order() -> None:
    """Also if they come with its end."""
    async with several([FINE], each=ONE) as up, client_of(up.gateway) as client:
        requests = [post(b'{"model": "m%d"}' % number, CHAT) for number in range(5)]
        sent = b"".join(requests)
        await client.send(sent[:-90])
        await breathe()
        await client.send(sent[-90:])
        for _ in requests:
            assert (await client.read_response()).status == 200
        assert [request.raw_body for request in up.endpoints[0].requests] == [one[-15:] for one in requests]
