"""A passthrough request: which upstream connection it takes, when it may be sent again, how long its body may take."""

import asyncio
import socket

import pytest
from functional.through import breathe
from lanes.assembled import HOST, Lane, assembled

from gateway.lanes.client import ClientTimeouts
from gateway.lanes.passthrough.request_relay import REPEAT_BYTES
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_chunk, build_ok_answer, serve

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
        await peer.send(build_ok_answer())
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
        assert lane.metrics.get_upstream("up").outcomes == {"ok": 1100}
        assert not lane.metrics.get_upstream("up").retries


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
async def test_request_racing_with_upstream_close_uses_another_connection(request_: bytes) -> None:
    """The idle connection ends just as a request comes: it goes over another one, whatever its method."""

    async def reads_head(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(build_ok_answer())
        await peer.wait_end()

    async with assembled(serve(build_ok_answer()), reads_head) as lane:
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
    async with assembled(closes_on_second(end), serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for one in (POST, request):
            await client.send(one)
            assert (await client.read_response(method=one.split(b" ")[0].decode())).status == 200
        assert [r.raw for r in lane.upstream.requests[1:]] == [lane.upstream.requests[1].raw] * 2
        assert lane.metrics.get_upstream("up").retries == {"stale": 1}


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("method", [b"POST", b"PATCH", b"QUERY", b"get"])
async def test_an_unsafe_request_is_never_sent_twice(end: str, method: bytes) -> None:
    """502: whoever sent it decides."""
    async with assembled(closes_on_second(end), serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        statuses = []
        for _ in range(2):
            await client.send(POST.replace(b"POST", method))
            statuses.append((await client.read_response()).status)
        assert statuses == [200, 502]
        assert len(lane.upstream.requests) == 2
        assert not lane.metrics.get_upstream("up").retries


async def test_nothing_is_sent_again_after_the_first_byte_of_an_answer() -> None:
    """Nor a second time on a fresh connection."""
    async with assembled(closes_on_second("byte"), serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for status in (200, 502):
            await client.send(GET)
            assert (await client.read_response()).status == status
        assert len(lane.upstream.requests) == 2

    async def never(peer: Peer) -> None:
        await peer.read_request()

    async with assembled(closes_on_second("close"), never, serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for status in (200, 502):
            await client.send(GET)
            assert (await client.read_response()).status == status
        assert len(lane.upstream.requests) == 3


CHAT = POST.replace(b"/v1/x", b"/v1/chat/completions")


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    "request_", [CHAT, CHAT.replace(b"chat/completions", b"embeddings")], ids=["chat", "embeddings"]
)
async def test_computing_request_is_resent_on_a_fresh_connection(request_: bytes, end: str) -> None:
    """As a GET is, without any rule: a balancer that forgot an idle connection costs no client its question."""
    async with assembled(closes_on_second(end), serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        for _ in range(2):
            await client.send(request_)
            assert (await client.read_response()).status == 200
        assert [r.raw for r in lane.upstream.requests[1:]] == [lane.upstream.requests[1].raw] * 2
        assert lane.metrics.get_upstream("up").retries == {"stale": 1}


@pytest.mark.parametrize("target", [b"/v1/responses", b"/v1/files", b"/v1/threads/thread_1/messages"])
async def test_request_with_possible_effects_is_never_resent(target: bytes) -> None:
    """Nor with a key that not every server honours."""
    async with assembled(closes_on_second("reset"), serve(build_ok_answer())) as lane, lane.client() as client:  # type: ignore[arg-type]
        statuses = []
        for _ in range(2):
            await client.send(
                POST.replace(b"/v1/x", target).replace(b"\r\nContent", b"\r\nIdempotency-Key: 1\r\nContent")
            )
            statuses.append((await client.read_response()).status)
        assert statuses == [200, 502]
        assert len(lane.upstream.requests) == 2


@pytest.mark.parametrize("chunked", [False, True])
async def test_partially_received_body_is_resent_from_its_beginning(chunked: bool) -> None:
    """Also what came before the connection was lost, and what comes while another one is opened."""
    body = bytes(range(256)) * 1500
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    parts = [body[at : at + 40_000] for at in range(0, len(body), 40_000)]
    sent = [*map(build_chunk, parts), LAST_CHUNK] if chunked else parts
    taken, lost = asyncio.Event(), asyncio.Event()

    async def loses_the_second(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_head()
        await peer.read_exactly(1000)
        taken.set()
        await lost.wait()
        peer.reset()

    async with assembled(loses_the_second, serve(build_ok_answer())) as lane, lane.client() as client:
        await client.send(CHAT)
        await client.read_response()
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\n%b\r\n\r\n" % length)
        for number, part in enumerate(sent):
            await client.send(part)
            await breathe(5)
            if number == 2:
                await taken.wait()
                lost.set()
        assert (await client.read_response()).status == 200
        assert lane.upstream.requests[-1].payload == body
        assert lane.metrics.get_upstream("up").retries == {"stale": 1}


async def test_body_too_long_to_buffer_is_not_resent() -> None:
    """A request is kept up to a bound."""

    async def loses_the_second(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_head()
        await peer.discard(REPEAT_BYTES + 1)
        peer.reset()

    async with assembled(loses_the_second, serve(build_ok_answer())) as lane, lane.client() as client:
        await client.send(CHAT)
        await client.read_response()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n\r\n" % (REPEAT_BYTES + 9)
        await client.send(head + bytes(REPEAT_BYTES + 1))
        assert (await client.read_response()).status == 502


FORGOTTEN = 6


@pytest.mark.parametrize(("request_", "failed"), [(CHAT, 0), (POST, 1)], ids=["computes", "may have an effect"])
async def test_many_stale_connections_fail_at_most_one_request(request_: bytes, failed: int) -> None:
    """The first one that is lost tells of the others, which waited for longer."""
    async with assembled(*[closes_on_second("reset")] * FORGOTTEN, serve(build_ok_answer())) as lane:  # type: ignore[list-item]
        clients = [await lane.client() for _ in range(FORGOTTEN)]
        for client in clients:
            await client.send(GET)
        statuses = [(await client.read_response()).status for client in clients]
        assert len(lane.upstream.connections) == FORGOTTEN
        for client in clients:
            await client.send(request_)
            statuses.append((await client.read_response()).status)
            client.close()
        assert statuses.count(502) == failed
        assert len(lane.upstream.connections) == FORGOTTEN + 1


async def test_recently_used_connection_survives_the_loss_of_an_older_connection() -> None:
    """It works: it was given back after the one that is lost."""

    async def loses_when_told(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_request()
        taken.set()
        await lost.wait()
        peer.reset()

    taken, lost = asyncio.Event(), asyncio.Event()
    async with assembled(loses_when_told, serve(build_ok_answer())) as lane:
        first, second = await lane.client(), await lane.client()
        await first.send(GET)
        await first.read_response()
        await first.send(POST)
        await taken.wait()
        await second.send(GET)
        await second.read_response()
        lost.set()
        assert (await first.read_response()).status == 502
        await second.send(POST)
        assert (await second.read_response()).status == 200
        assert len(lane.upstream.connections) == 2
        first.close()
        second.close()


async def test_stalled_body_returns_408() -> None:
    """After the time for a body, counted from its last byte; its upstream connection ends."""

    async def silent(peer: Peer) -> None:
        await peer.read_head()
        await peer.wait_end()

    async with assembled(silent, timeouts=ClientTimeouts(body_idle_s=60)) as lane, lane.client() as client:
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


async def test_expect_100_client_is_not_late_before_continue() -> None:
    """With Expect: 100-continue it is the upstream's turn: its time counts."""

    async def silent(peer: Peer) -> None:
        await peer.read_head()
        await peer.wait_end()

    async with (
        assembled(silent, timeouts=ClientTimeouts(body_idle_s=60), first_byte_s=600.0) as lane,
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


async def test_expect_100_client_may_be_late_after_continue() -> None:
    """From then on its own time counts, and not its upstream's."""

    async def invites(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.wait_end()

    async with (
        assembled(invites, timeouts=ClientTimeouts(body_idle_s=60), first_byte_s=30.0) as lane,
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
