"""The state that the connections of a worker share: limits, draining, reloads, the look after paused ones."""

import asyncio

import pytest
from aiohttp import web
from functional.through import breathe
from measuring import LoopTime

from gateway.lanes.router import AcceptLimits
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_chunk, build_head, build_ok_answer, serve

from .assembled import Lane, assembled, endpoint, keyring, router
from .test_aiohttp_adapter import GET as OWN
from .test_aiohttp_adapter import pages

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"


class Gate:
    """An upstream that answers when told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await self.open.wait()
            await peer.send(build_ok_answer())


async def answered(lane: Lane, request: bytes = GET) -> int:
    async with lane.client() as client:
        await client.send(request)
        return (await client.read_response()).status


async def test_requests_over_the_concurrency_limit_return_503() -> None:
    """503 with Retry-After for whatever is beyond it, remembered head or not; what was accepted finishes."""
    gate = Gate()
    async with assembled(gate, limits=AcceptLimits(concurrent=2)) as lane, lane.client() as one, lane.client() as two:
        for client in (one, two):
            await client.send(GET)
        await lane.upstream.wait_requests(2)
        for request in (GET, GET, GET.replace(b"/x", b"/y")):
            async with lane.client() as three:
                asked = LoopTime()
                await three.send(request)
                response = await three.read_response()
                asked.within(1)
                assert (response.status, response.list_values(b"retry-after")) == (503, [b"1"])
        assert lane.listener.inflight == 2
        assert await answered(lane, GET.replace(b"/v1/x", b"/own")) == 404  # our own pages are answered all the same
        gate.open.set()
        for client in (one, two):
            assert (await client.read_response()).status == 200
        assert await answered(lane) == 200
        assert lane.listener.inflight == 0


async def test_request_count_in_flight_returns_to_zero_after_any_end() -> None:
    """Answers, errors, resets, leaving clients: nothing is under way in the end."""

    async def dies(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Length", "5")]) + b"x")

    async with assembled(serve(build_ok_answer()), dies, dies, serve(build_ok_answer())) as lane:
        for request in (
            GET,
            GET,
            GET.replace(b"GET", b"BAD METHOD"),
            GET.replace(b"/v1", b"/v9"),
            GET.replace(b"/v1/x", b"/own"),
        ):
            async with lane.client() as client:
                await client.send(request)
                await client.read_some()
        for how in ("close", "reset"):
            client = await lane.client()
            await client.send(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"))
            getattr(client, how)()
        await lane.until_idle()
        assert lane.listener.inflight == 0


async def test_draining_lets_requests_finish() -> None:
    """Idle connections close, busy ones finish with `Connection: close`, and then draining ends."""
    gate = Gate()
    async with assembled(gate) as lane, lane.client() as busy, lane.client() as fresh:
        await busy.send(GET)
        await lane.upstream.wait_requests(1)
        draining = asyncio.create_task(lane.listener.drain(600))
        assert await fresh.read_rest() == b""
        assert not draining.done()
        gate.open.set()
        response = await busy.read_response()
        assert (response.status, response.list_values(b"connection")) == (200, [b"close"])
        await asyncio.wait_for(draining, 120)
        assert not lane.listener.connections


async def test_drain_limit_cuts_unfinished_requests() -> None:
    """What is not finished then is cut, so that nobody takes it for whole."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(b"x"))
        await peer.wait_end()

    async with assembled(endless) as lane, lane.client() as client:
        await client.send(GET)
        await client.read_until(b"x\r\n")
        await lane.listener.drain(0.2)
        assert await client.wait_end() == "reset"
        await lane.upstream.wait_open(0)


async def test_unanswered_requests_get_503_with_retry_after_when_draining_ends() -> None:
    """At the limit of draining, by a whole 503. Its client may be sending its body still."""
    post = GET.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 10\r\n\r\n") + b"half"
    async with assembled(Gate()) as lane, lane.client() as client, lane.client() as sending:
        await client.send(GET)
        await sending.send(post)
        await lane.upstream.wait_requests(1)
        await lane.until_inflight(2)
        await lane.listener.drain(0.0)
        for one in (client, sending):
            response = await one.read_response()
            assert response.status == 503 and b'"gateway_stopping"' in response.payload
            assert response.list_values(b"retry-after") == [b"1"] and response.list_values(b"connection") == [b"close"]
        assert not lane.listener.inflight


async def test_a_request_that_comes_while_draining_is_served() -> None:
    """A busy client is never cut between two requests: it is told to close."""
    async with assembled() as lane, lane.client() as client:
        await client.send(GET)
        await client.read_response()
        draining = asyncio.create_task(lane.listener.drain(600))
        await breathe()
        await client.send(GET)
        response = await client.read_response()
        assert (response.status, response.list_values(b"connection")) == (200, [b"close"])
        await asyncio.wait_for(draining, 120)


async def test_own_page_during_drain_answers_with_connection_close() -> None:
    """So does any page of ours; one whose head was out before is followed by a last request."""
    gate = asyncio.Event()

    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a")
        await gate.wait()
        return response

    async with assembled(pages=pages(page)) as lane, lane.client() as client:
        await client.send(OWN)
        assert b"connection" not in (await client.read_until(b"a\r\n")).lower()
        draining = asyncio.create_task(lane.listener.drain(600))
        await asyncio.sleep(0)
        gate.set()
        await client.read_until(b"0\r\n\r\n")
        await client.send(OWN)
        response = await client.read_response()
        assert (response.status, response.list_values(b"connection")) == (200, [b"close"])
        await asyncio.wait_for(draining, 120)


async def test_a_reload_holds_from_the_next_request_on() -> None:
    """Those under way end as they began; old idle upstream connections are closed, a revoked key is no key any more."""
    gate = Gate()
    authorised = GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer old\r\n\r\n")
    async with assembled(gate, keys=keyring("old"), api_key=b"sk") as lane, lane.client() as client:
        await client.send(authorised)
        await lane.upstream.wait_requests(1)
        new = router(endpoint(lane.upstream.port, api_key=b"sk2"), keys=keyring("new"), metrics=lane.metrics)
        lane.listener.swap_router(new)
        gate.open.set()
        assert (await client.read_response()).status == 200
        await client.send(authorised)
        assert (await client.read_response()).status == 401
        await client.send(authorised.replace(b"old", b"new"))
        assert (await client.read_response()).status == 200
        assert [r.list_values(b"authorization") for r in lane.upstream.requests] == [[b"Bearer sk"], [b"Bearer sk2"]]
        await lane.upstream.wait_open(1)


async def test_listener_stop_is_idempotent() -> None:
    """Everything ends at once, and nothing fails."""
    async with assembled() as lane, lane.client() as client:
        await client.send(GET)
        await client.read_response()
        lane.listener.stop()
        lane.listener.stop()
        assert await client.wait_end() in ("eof", "reset")
        await lane.upstream.wait_open(0)


async def test_gauges_count_open_connections_requests_and_pool_states() -> None:
    """Connections, requests by lane, pool by state."""
    gate = Gate()
    async with assembled(gate) as lane, lane.client() as client:
        await client.send(GET)
        await lane.upstream.wait_requests(1)
        assert gauges(lane) == {"connections": 1, "passthrough": 1, "busy": 1, "idle": 0, "up": 1}
        gate.open.set()
        await client.read_response()
        assert gauges(lane) == {"connections": 1, "passthrough": 0, "busy": 0, "idle": 1, "up": 1}
    assert gauges(lane)["connections"] == 0


def gauges(lane: Lane) -> dict[str, float]:
    samples = [sample for family in lane.listener.collect_families() for sample in family.samples]

    def value(name: str, **labels: str) -> float:
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    return {
        "connections": value("gateway_client_connections"),
        "passthrough": value("gateway_inflight_requests", mode="passthrough"),
        "busy": value("gateway_upstream_pool_connections", state="busy"),
        "idle": value("gateway_upstream_pool_connections", state="idle"),
        "up": value("gateway_upstream_up", upstream="up"),
    }


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_disconnect_of_a_paused_connection_is_detected(how: str) -> None:
    """Reading is paused, so the loop does not tell that the client left."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with assembled(silent) as lane:
        client = await lane.client()
        await client.send(GET)
        await lane.upstream.wait_requests(1)
        (connection,) = lane.listener.connections
        connection.pause(1)
        assert lane.listener.paused == {connection}
        await client.send(b"x" * 1000)
        left = LoopTime()
        getattr(client, how)()
        await lane.upstream.wait_open(0)
        left.within(0.5)
        await lane.until_idle()
        assert not lane.listener.paused


async def test_connection_after_listener_stop_is_closed() -> None:
    """Such as a page of the console that connects again while the console ends."""
    async with assembled(serve(lambda _: build_ok_answer())) as lane:
        lane.listener.stop()
        async with lane.client() as client:
            assert await client.read_rest() == b""
        await lane.until_idle()
        assert not lane.listener.connections
