"""A passthrough request: which upstream connection it takes, when it may be sent again, how long its body may take."""

import asyncio
import socket

import pytest
from functional.through import breathe
from lanes.assembled import HOST, Lane, assembled

from gateway.lanes.router import Timeouts
from gateway.testing.peer import Peer
from gateway.testing.scripts import ok, serve

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n{}"


async def race(lane: Lane, request: bytes) -> int:
    """Sends `request` and ends the idle upstream connection in the same instant; the status that the client gets."""
    loop = asyncio.get_running_loop()
    with socket.create_connection((HOST, lane.port)) as client:
        client.setblocking(False)
        await breathe(10)
        client.send(request)
        for peer in lane.upstream.connections:
            peer.close()
        raw = await asyncio.wait_for(loop.sock_recv(client, 65536), 120)
    return int(raw.split(b" ")[1])


def closes_on_second(peer_end: str) -> object:
    """Answers one request, takes a second one, and ends without an answer."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(ok())
        await peer.read_request()
        if peer_end == "reset":
            peer.reset()
        elif peer_end == "byte":
            await peer.send(b"H")

    return script


async def test_a_thousand_requests_need_one_upstream_connection() -> None:
    """On one client connection, of any kind; and a thousand clients one after the other too."""
    requests = (GET, POST, POST.replace(b"2\r\n\r\n{}", b"4\r\n\r\n[{}]"), GET.replace(b"GET", b"HEAD"))
    async with assembled() as lane:
        async with lane.client() as client:
            for i in range(1000):
                request = requests[i % 4]
                await client.send(request)
                response = await client.read_response(method=request.split(b" ")[0].decode())
                assert response.status == 200
        for _ in range(100):
            async with lane.client() as client:
                await client.send(GET)
                await client.read_response()
        assert len(lane.upstream.connections) == 1 == lane.pool.counts.opened
        assert lane.metrics.upstream("up").outcomes == {"ok": 1100}
        assert not lane.metrics.upstream("up").retries


async def test_the_connection_used_last_is_used_first() -> None:
    """So that the others may grow old."""
    async with assembled() as lane:
        clients = [await lane.client() for _ in range(5)]
        for client in clients:
            await client.send(GET)
        for client in clients:
            await client.read_response()
        assert len(lane.upstream.connections) == 5
        for _ in range(10):
            await clients[0].send(GET)
            await clients[0].read_response()
        busiest = max(peer.n_received for peer in lane.upstream.connections)
        assert sum(peer.n_received == busiest for peer in lane.upstream.connections) == 1
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    "request_",
    [
        GET,
        POST,
        GET.replace(b"GET", b"DELETE"),
        POST.replace(b"POST", b"PUT"),
        POST.replace(b"2\r\n\r\n{}", b"9\r\n\r\n{}"),
    ],
    ids=["get", "post", "delete", "put", "unfinished post"],
)
async def test_a_fin_that_meets_a_request_costs_nothing(request_: bytes) -> None:
    """The idle connection ends just as a request comes: it goes over another one, whatever its method."""

    async def reads_head(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(ok())
        await peer.wait_end()

    async with assembled(serve(ok()), reads_head) as lane:
        async with lane.client() as client:
            await client.send(GET)
            await client.read_response()
        assert await race(lane, request_) == 200
        assert len(lane.upstream.connections) == 2
        assert lane.upstream.connections[1].n_received > 0


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS"])
async def test_a_safe_request_is_sent_again_when_a_reused_connection_dies(end: str, method: bytes) -> None:
    """Once, on a fresh connection, with its whole body; the client notices nothing."""
    request = POST.replace(b"POST", method)
    async with assembled(closes_on_second(end), serve(ok())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for one in (POST, request):
            await client.send(one)
            assert (await client.read_response(method=one.split(b" ")[0].decode())).status == 200
        assert [r.raw for r in lane.upstream.requests[1:]] == [lane.upstream.requests[1].raw] * 2
        assert lane.metrics.upstream("up").retries == {"stale": 1}


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("method", [b"POST", b"PATCH", b"QUERY", b"get"])
async def test_an_unsafe_request_is_never_sent_twice(end: str, method: bytes) -> None:
    """502: whoever sent it decides."""
    async with assembled(closes_on_second(end), serve(ok())) as lane, lane.client() as client:  # type: ignore[arg-type]
        statuses = []
        for _ in range(2):
            await client.send(POST.replace(b"POST", method))
            statuses.append((await client.read_response()).status)
        assert statuses == [200, 502]
        assert len(lane.upstream.requests) == 2
        assert not lane.metrics.upstream("up").retries


async def test_nothing_is_sent_again_after_the_first_byte_of_an_answer() -> None:
    """Nor a second time on a fresh connection, nor a request that came in pieces."""
    async with assembled(closes_on_second("byte"), serve(ok())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for status in (200, 502):
            await client.send(GET)
            assert (await client.read_response()).status == status
        assert len(lane.upstream.requests) == 2

    async def never(peer: Peer) -> None:
        await peer.read_request()

    async with assembled(closes_on_second("close"), never, serve(ok())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for status in (200, 502):
            await client.send(GET)
            assert (await client.read_response()).status == status
        assert len(lane.upstream.requests) == 3
    put = POST.replace(b"POST", b"PUT")
    async with assembled(closes_on_second("close"), serve(ok())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for status in (200, 502):
            await client.send(put[:-1])
            await breathe(10)
            await client.send(put[-1:])
            assert (await client.read_response()).status == status


async def test_a_body_that_stops_is_a_408() -> None:
    """After the time for a body, counted from its last byte; its upstream connection ends."""

    async def silent(peer: Peer) -> None:
        await peer.read_head()
        await peer.wait_end()

    async with assembled(silent, timeouts=Timeouts(body_idle_s=60)) as lane, lane.client() as client:
        await client.send(POST[:-2])
        await lane.upstream.wait_connections(1)
        await breathe(10)
        lane.later(59)
        await client.send(POST[-2:-1])
        await breathe(10)
        lane.later(59)
        lane.later(61)
        assert (await client.read_rest()).startswith(b"HTTP/1.1 408 ")
        assert dict(lane.metrics.deadlines) == {"body": 1}
        await lane.upstream.wait_open(0)


async def test_a_client_that_waits_to_be_invited_is_not_late() -> None:
    """With Expect: 100-continue it is the upstream's turn: its time counts."""

    async def silent(peer: Peer) -> None:
        await peer.read_head()
        await peer.wait_end()

    async with (
        assembled(silent, timeouts=Timeouts(body_idle_s=60), first_byte_s=600.0) as lane,
        lane.client() as client,
    ):
        await client.send(POST[:-2].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        await lane.upstream.wait_connections(1)
        await breathe(10)
        lane.later(599)
        await breathe(10)
        assert client.n_received == 0
        lane.later(601)
        assert (await client.read_rest()).startswith(b"HTTP/1.1 504 ")


async def test_a_client_that_was_invited_may_be_late() -> None:
    """From then on its own time counts, and not its upstream's."""

    async def invites(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.wait_end()

    async with (
        assembled(invites, timeouts=Timeouts(body_idle_s=60), first_byte_s=30.0) as lane,
        lane.client() as client,
    ):
        await client.send(POST[:-2].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        await client.read_head()
        lane.later(59)
        await breathe(10)
        assert client.ended == "open"
        lane.later(61)
        assert (await client.read_rest()).startswith(b"HTTP/1.1 408 ")
        assert dict(lane.metrics.deadlines) == {"body": 1}
