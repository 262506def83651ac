"""Requests that try an endpoint whose breaker is half-open, over the wire: none of them keeps all others out."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from functional.several import Several, chat, several
from functional.through import ask, breathe, client_of, error_of, get
from gateways import until

from gateway.testing.clock import ManualClock
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_ok_answer, serve
from gateway.testing.upstream import Script

OPEN_S = 10.0


async def resets(peer: Peer) -> None:
    await peer.read_request()
    peer.reset()


async def says_nothing(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end(timeout_s=None)


@asynccontextmanager
async def half_open(*then: Script, **rules: object) -> AsyncIterator[tuple[Several, ManualClock]]:
    """An endpoint whose breaker has opened, and may be tried now."""
    breaker = {"failures": 1, "open": f"{OPEN_S:g}s"}
    async with several([resets, *then], breaker=breaker, retry={"tries": 1}, **rules) as up:
        up.group.clock = clock = ManualClock()
        assert (await ask(up.gateway, chat())).status == 502
        assert error_of(await ask(up.gateway, chat()))["code"] == "circuit_open"
        clock.advance(OPEN_S)
        yield up, clock


def state(up: Several) -> str:
    return up.group.members[0].breaker.get_state(up.group.clock())


async def test_unanswered_probe_allows_another_probe() -> None:
    """Once the probe had its time. What becomes of it later does no harm."""
    async with half_open(says_nothing, serve(build_ok_answer())) as (up, clock), client_of(up.gateway) as silent:
        await silent.send(chat())
        await up.endpoints[0].wait_requests(2)
        refused = await ask(up.gateway, chat())
        assert error_of(refused)["code"] == "circuit_open" and refused.list_values(b"retry-after") == [b"10"]
        clock.advance(OPEN_S)
        assert (await ask(up.gateway, chat())).status == 200 and state(up) == "closed"
        up.endpoints[0].connections[1].reset()
        assert (await silent.read_response()).status == 502
        assert state(up) == "closed" and (await ask(up.gateway, chat())).status == 200
        assert up.inflight == [0]


async def test_incomplete_request_body_does_not_occupy_the_half_open_probe() -> None:
    """Its request is the probe only once it is whole."""
    async with half_open(says_nothing, serve(build_ok_answer())) as (up, _), client_of(up.gateway) as slow:
        whole = chat()
        await slow.send(whole[:-3])
        await up.endpoints[0].wait_connections(2)
        assert (await ask(up.gateway, chat())).status == 200 and state(up) == "closed"
    async with half_open(says_nothing, serve(build_ok_answer())) as (up, _), client_of(up.gateway) as slow:
        await slow.send(whole[:-3])
        await up.endpoints[0].wait_connections(2)
        await slow.send(whole[-3:])
        await up.endpoints[0].wait_requests(2)
        assert error_of(await ask(up.gateway, chat()))["code"] == "circuit_open"


async def test_partially_sent_requests_probe_a_half_open_endpoint_singly() -> None:
    """One that its client is still sending keeps out others like it, for a second."""
    whole = chat()
    async with half_open(says_nothing) as (up, clock), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(up.gateway)) for _ in range(4)]
        await clients[0].send(whole[:-3])
        await up.endpoints[0].wait_connections(2)
        for client in clients[1:3]:
            await client.send(whole[:-3])
            assert error_of(await client.read_response())["code"] == "circuit_open"
        clock.advance(1.0)
        await clients[3].send(whole[:-3])
        await up.endpoints[0].wait_connections(3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("on", [["503"], ["400", "401", "403", "404", "429", "500", "503"]])
async def test_any_probe_answer_closes_the_breaker(status: int, on: list[str]) -> None:
    """Also one that refuses the request, and whether or not such a request is sent again."""
    async with several(
        [resets, serve(build_answer(status, b"no", [("Retry-After", "600")]))],
        breaker={"failures": 1, "open": "10s"},
        retry={"tries": 1, "on": on},
    ) as up:
        up.group.clock = clock = ManualClock()
        assert (await ask(up.gateway, chat())).status == 502
        clock.advance(OPEN_S)
        assert (await ask(up.gateway, chat())).status == status
        assert state(up) == "closed" and up.group.members[0].find_obstacle(clock()) is None


async def test_rate_limited_probe_closes_the_breaker() -> None:
    """With the gateway's own key its pause holds, for all, but the breaker is closed."""
    limited = serve(build_answer(429, b"", [("Retry-After", "20")]))
    async with half_open(limited) as (up, _):
        assert (await ask(up.gateway, chat())).status == 429
        assert state(up) == "closed" and (await ask(up.gateway, chat())).status == 429
        assert up.counts == [3]
    async with half_open(limited, api_key="k") as (up, clock):
        assert (await ask(up.gateway, chat())).status == 429
        assert state(up) == "closed" and error_of(await ask(up.gateway, chat()))["code"] == "upstream_limited"
        clock.advance(20.0)
        await ask(up.gateway, chat())
        assert up.counts == [3]


async def test_client_disconnect_frees_the_half_open_probe() -> None:
    """At once."""
    async with half_open(says_nothing, serve(build_ok_answer())) as (up, _):
        async with client_of(up.gateway) as leaves:
            await leaves.send(get())
            await up.endpoints[0].wait_requests(2)
        await until(lambda: up.inflight == [0])
        await breathe()
        assert (await ask(up.gateway, chat())).status == 200 and state(up) == "closed"
