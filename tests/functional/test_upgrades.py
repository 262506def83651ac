"""WebSocket tunnels, and everything else that asks to speak another protocol."""

import asyncio
import hashlib
import random

import pytest
from certificates import Certificates
from gateways import until_still
from measuring import LoopTime

from gateway.testing.messages import split_head
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, build_ok_answer, serve

from .through import breathe, client_of, error_of, get, listener_of, post, through
from .tunnels import HANDSHAKE, SWITCHING, WEBSOCKET, echo, joined

SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_a_websocket_goes_through_byte_for_byte() -> None:
    """The handshake both ways, then everything, in both directions, as it comes."""
    async with through(echo) as (gateway, upstream), client_of(gateway) as client:
        await joined(client)
        assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: " in upstream.requests[0].raw_head
        assert upstream.requests[0].target == b"/v1/realtime?model=x"
        for data in (b"\x81\x05hello", bytes(range(256)), b"GET / HTTP/1.1\r\n\r\n", b"\x00"):
            await client.send(data)
            assert await client.read_exactly(len(data)) == data
        client.close()
        await upstream.wait_open(0)


@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: keep-alive, Upgrade", b"Upgrade: WebSocket"),
        (b"connection: upgrade", b"UPGRADE: websocket"),
        (b"Upgrade: websocket", b"Connection: X-Hop, upgrade", b"X-Hop: 1"),
    ],
)
async def test_websocket_upgrade_accepts_header_variants(lines: tuple[bytes, ...]) -> None:
    """Case, order and company do not matter; what Connection nominates besides ends here."""
    async with through(echo) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get(b"/v1/realtime", *lines, *WEBSOCKET[2:]))
        assert await client.read_head() == SWITCHING
        assert not upstream.requests[0].list_values(b"x-hop")
        assert [value.lower() for value in upstream.requests[0].list_values(b"upgrade")] == [b"websocket"]
        assert len(upstream.requests[0].list_values(b"connection")) == 1


async def test_websocket_bytes_sent_with_the_handshake_are_forwarded() -> None:
    """Frames in the same segment as a handshake or as its answer."""

    async def eager(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING + b"from the server")
        await peer.send(await peer.read_exactly(15))
        await peer.wait_end()

    async with through(eager) as (gateway, _), client_of(gateway) as client:
        await client.send(HANDSHAKE + b"from the client")
        assert await client.read_exactly(len(SWITCHING) + 30) == SWITCHING + b"from the serverfrom the client"


async def test_websocket_half_close_is_forwarded_in_either_direction() -> None:
    """A half-close is passed on, and the other direction goes on."""

    async def talk_after_end(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        assert await peer.read_rest() == b"question"
        await peer.send(b"answer")

    async def stop_first(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING + b"all I say")
        await peer.half_close()
        assert await peer.read_rest() == b"still talking"

    async with through(talk_after_end, stop_first) as (gateway, upstream):
        async with client_of(gateway) as client:
            await joined(client)
            await client.send(b"question")
            await client.half_close()
            assert await client.read_rest() == b"answer"
        async with client_of(gateway) as client:
            await joined(client)
            assert await client.read_rest() == b"all I say"
            await client.send(b"still ")
            await breathe()
            await client.send(b"talking")
            await client.half_close()
            await upstream.wait_open(0)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_websocket_bytes_before_a_half_close_are_delivered(direction: str) -> None:
    """Megabytes followed by FIN, towards a slow reader that has itself stopped sending: none are dropped."""
    data = random.Random(3).randbytes(6_000_000)
    sha = hashlib.sha256(data).digest()
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def drain(peer: Peer) -> bytes:
        await asyncio.sleep(0.2)  # a reader that is late is the case: the bytes and the FIN wait in the gateway
        return hashlib.sha256(await peer.read_rest(timeout_s=120)).digest()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        if direction == "up":
            await peer.half_close()
            got.set_result(await drain(peer))
        else:
            sending = asyncio.create_task(peer.send(data))
            assert await peer.read_rest() == b""
            await sending

    async with through(script, rcvbuf=8192) as (gateway, upstream), client_of(gateway, rcvbuf=8192) as client:
        await joined(client)
        if direction == "up":
            assert await client.read_rest() == b""
            await client.send(data, timeout_s=120)
            await client.half_close()
            assert await asyncio.wait_for(got, 120) == sha
        else:
            await client.half_close()
            assert await drain(client) == sha
        await upstream.wait_open(0)


async def test_half_closed_client_receives_the_last_buffered_bytes() -> None:
    """Both have sent FIN while the gateway still holds bytes for the client: they are delivered."""
    sent = 0

    async def fills_up(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(SWITCHING)
        (connection,) = listener_of(gateway).connections
        while connection.transport.get_write_buffer_size() == 0:
            await peer.send(bytes(4096))
            sent += 4096
            await breathe()
        await peer.half_close()
        await breathe()
        filled.set()
        assert await peer.read_rest() == b""

    filled = asyncio.Event()
    async with through(fills_up) as (gateway, upstream), client_of(gateway, rcvbuf=8192) as client:
        await joined(client)
        await filled.wait()
        await client.half_close()
        await upstream.wait_open(0)
        assert len(await client.read_rest()) == sent


async def test_websocket_bytes_before_a_close_are_delivered() -> None:
    """The other side closes at once after its last bytes, as most programs do: they still arrive."""
    data = bytes(range(256)) * 8000

    async def says_goodbye(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await peer.send(data)

    async def listens(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await asyncio.sleep(0.1)  # a reader that is late is the case, here and below
        assert await peer.read_rest() == data

    async with through(says_goodbye, listens, rcvbuf=8192, keep_bytes=0) as (gateway, upstream):
        async with client_of(gateway, rcvbuf=8192) as client:
            await joined(client)
            await asyncio.sleep(0.1)
            assert await client.read_rest() == data
        async with client_of(gateway) as client:
            await joined(client)
            await client.send(data)
        await upstream.wait_open(0)


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_reset_of_an_upgraded_connection_ends_both_sides(who: str) -> None:
    """Nothing is left half open."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        if who == "upstream":
            await go.wait()
            peer.reset()
        await peer.wait_end()

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        await joined(client)
        left = LoopTime()
        if who == "client":
            client.reset()
        else:
            go.set()
            assert await client.wait_end() == "reset"
        await upstream.wait_open(0)
        left.within(1)


async def test_websocket_tunnel_applies_backpressure() -> None:
    """Whoever does not read, in either direction; then everything arrives."""
    go = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await go.wait()
        await peer.discard(64_000_000, timeout_s=120)
        await peer.send(b"done")

    async with through(slow, rcvbuf=8192) as (gateway, _), client_of(gateway) as client:
        await joined(client)
        sending = asyncio.create_task(client.send(bytes(64_000_000), timeout_s=None))
        await until_still(lambda: client.n_sent)
        assert client.n_sent < 48_000_000
        go.set()
        await sending
        assert await client.read_exactly(4) == b"done"


async def test_silent_upgraded_connection_ends_after_the_idle_time() -> None:
    """After the upstream's idle time; one that talks does not."""

    async def quiet(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await peer.wait_end(timeout_s=120)

    async with (
        through(quiet, upstream={"timeouts": {"idle": "1s"}}) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        await joined(client)
        for _ in range(12):
            await client.send(b"x")
            await asyncio.sleep(0.2)  # a side that talks slowly, for longer than the idle time, is the case
        assert client.ended == "open"
        await client.wait_end(timeout_s=120)
        await upstream.wait_open(0)


async def test_many_tunnels_do_not_mix() -> None:
    """Each has its own bytes."""

    async def one(number: int) -> None:
        async with client_of(gateway) as client:
            await joined(client)
            for turn in range(20):
                text = b"%d-%d;" % (number, turn) * 10
                await client.send(text)
                assert await client.read_exactly(len(text)) == text

    async with through(echo) as (gateway, upstream):
        await asyncio.gather(*(one(number) for number in range(30)))
        await upstream.wait_open(0)


async def test_a_declined_upgrade_is_an_ordinary_answer() -> None:
    """The status is the upstream's, the connections can be used again, and what is pipelined behind is answered."""
    for raw in (
        build_answer(400, b"no"),
        build_answer(200, b"what?"),
        build_answer(426, b"", [("Upgrade", "h2c")]),
        build_ok_answer(),
    ):
        async with through(serve(raw)) as (gateway, upstream), client_of(gateway) as client:
            await client.send(HANDSHAKE + SMUGGLED)
            for _ in range(2):
                response = await client.read_response()
                assert response.payload == raw.partition(b"\r\n\r\n")[2]
                assert not response.list_values(b"upgrade")
            assert [request.target for request in upstream.requests] == [b"/v1/realtime?model=x", b"/v1/smuggled"]
            assert len(upstream.connections) == 1


NOT_WEBSOCKET = {
    "other": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: foo"),
    "h2c": get(b"/v1/x", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    "list": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket, foo"),
    "twice": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: websocket"),
    "unconnected": get(b"/v1/x", b"Upgrade: websocket"),
    "closing": get(b"/v1/x", b"Connection: close", b"Upgrade: websocket"),
    "tls": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: TLS/1.0"),
    "post": post(b"", b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket"),
    "body": post(b"x" * 10, b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket", method=b"GET"),
    "old": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket", version=b"1.0"),
}


@pytest.mark.parametrize("request_", NOT_WEBSOCKET.values(), ids=NOT_WEBSOCKET)
async def test_other_upgrade_headers_are_not_forwarded(request_: bytes) -> None:
    """The upstream sees an ordinary request; bytes behind it are the next one, never part of it (CVE-2026-2833)."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(request_ + SMUGGLED)
        assert (await client.read_response()).status == 200
        first = upstream.requests[0]
        assert (
            not first.list_values(b"upgrade")
            and not first.list_values(b"connection")
            and not first.list_values(b"http2-settings")
        )
        assert len(first.raw_body) in (0, 10)
        if b"HTTP/1.0" not in request_ and b"close" not in request_:
            assert (await client.read_response()).status == 200
            assert upstream.requests[1].target == b"/v1/smuggled"


@pytest.mark.parametrize("request_", NOT_WEBSOCKET.values(), ids=NOT_WEBSOCKET)
async def test_unrequested_protocol_switch_becomes_a_502(request_: bytes) -> None:
    """101 to a request that did not ask for WebSocket: no tunnel, whatever the client then sends."""

    async def switches(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await peer.wait_end()

    async with through(switches) as (gateway, upstream), client_of(gateway) as client:
        await client.send(request_)
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        await upstream.wait_open(0)


async def test_cached_handshake_plan_is_not_used_for_requests_with_bodies() -> None:
    """Equal heads but for the length: the second one has a body, so it is no handshake."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        for body in (b"", b"12345", b""):
            await client.send(post(body, b"/v1/x", *WEBSOCKET, method=b"GET"))
            assert (await client.read_response()).status == 200
        assert [bool(request.list_values(b"upgrade")) for request in upstream.requests] == [True, False, True]
        assert [request.raw_body for request in upstream.requests] == [b"", b"12345", b""]


async def test_websocket_handshake_forwards_a_preceding_interim_answer() -> None:
    """103 before 101."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(103, [("Link", "x")]) + SWITCHING + b"hello")

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(HANDSHAKE)
        assert await client.read_head() == build_head(103, [("Link", "x")])
        assert await client.read_head() == SWITCHING
        assert await client.read_rest() == b"hello"


async def test_websocket_handshake_replaces_the_gateway_key(certificates: Certificates) -> None:
    """The key is checked at the handshake and replaced, over TLS to the upstream; closing either way ends it."""
    key = {"name": "ci", "sha256": hashlib.sha256(b"gk").hexdigest(), "scopes": ["passthrough"]}
    upstream_settings = {"api_key": "sk-up", "tls": {"ca_file": str(certificates.ca)}}
    async with through(echo, upstream=upstream_settings, tls=certificates.server_context(), keys=[key]) as (
        gateway,
        upstream,
    ):
        async with client_of(gateway) as client:
            await client.send(HANDSHAKE)
            assert (await client.read_response()).status == 401
            await client.send(get(b"/v1/realtime", *WEBSOCKET, b"Authorization: Bearer gk"))
            assert await client.read_head() == SWITCHING
            await client.send(b"ping" * 1000)
            assert await client.read_exactly(4000) == b"ping" * 1000
            await client.half_close()
            await upstream.wait_open(0)
        _, fields = split_head(upstream.requests[0].raw_head)
        assert (b"Authorization", b"Bearer sk-up") in fields
