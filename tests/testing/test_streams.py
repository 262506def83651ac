"""Nothing is read ahead, plain or with TLS; FIN, RST and close_notify are made as asked."""

import asyncio
import socket
import ssl

import pytest
from certificates import Certificates

from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.streams import require_loopback
from gateway.testing.upstream import FakeUpstream

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
FLOOD, PIECE = 1 << 26, 1 << 16


@pytest.fixture(params=["plain", "tls"])
def contexts(request: pytest.FixtureRequest) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Of the server and of the client."""
    if request.param == "plain":
        return None, None
    certificates: Certificates = request.getfixturevalue("certificates")
    return certificates.server_context(), certificates.client_context()


Contexts = tuple[ssl.SSLContext | None, ssl.SSLContext | None]


async def test_requests_and_answers_pass_over_tcp_and_tls(contexts: Contexts) -> None:
    """The same script, the same calls."""
    server, client_side = contexts
    async with FakeUpstream(serve(build_ok_answer()), ssl=server) as upstream:
        async with connect(upstream.host, upstream.port, ssl=client_side) as client:
            for _ in range(2):
                await client.send(GET)
                assert (await client.read_response()).payload == b'{"ok":true}'
        await upstream.wait_open(0)
        assert upstream.connections[0].ended == "eof"


async def send_in_pieces(peer: Peer) -> None:
    for _ in range(FLOOD // PIECE):
        await peer.send(bytes(PIECE), timeout_s=0.3)


async def test_unread_stream_applies_backpressure_to_the_sender(contexts: Contexts) -> None:
    """Back-pressure is the kernel's, no transport reads ahead."""
    server, client_side = contexts
    sent = asyncio.Event()

    async def flood(peer: Peer) -> None:
        await peer.send(b"!")
        with pytest.raises(TimeoutError, match="room to send"):
            await send_in_pieces(peer)
        sent.set()
        await peer.wait_end()

    async with (
        FakeUpstream(flood, ssl=server) as upstream,
        connect(upstream.host, upstream.port, ssl=client_side, rcvbuf=4096) as client,
    ):
        await client.read_exactly(1)
        received = client.n_received
        await sent.wait()
        assert client.n_received == received
        assert 0 < upstream.connections[0].n_sent < FLOOD
        client.reset()


async def test_megabytes_arrive_as_they_were_sent(contexts: Contexts) -> None:
    """In both directions at once."""
    server, client_side = contexts

    async def echo(peer: Peer) -> None:
        while data := await peer.read_some():
            await peer.send(data)

    payload = bytes(range(256)) * 8192
    async with (
        FakeUpstream(echo, ssl=server) as upstream,
        connect(upstream.host, upstream.port, ssl=client_side) as client,
    ):
        sending = asyncio.create_task(client.send(payload))
        assert await client.read_exactly(len(payload), timeout_s=120) == payload
        await sending
        assert client.n_sent == len(payload)


async def test_half_close_leaves_the_other_direction_open(contexts: Contexts) -> None:
    """FIN, with TLS after a close_notify; the answer still comes."""
    server, client_side = contexts

    async def answer_after_the_end(peer: Peer) -> None:
        assert await peer.wait_end() == "eof"
        await peer.send(b"still here")

    async with (
        FakeUpstream(answer_after_the_end, ssl=server) as upstream,
        connect(upstream.host, upstream.port, ssl=client_side) as client,
    ):
        await client.half_close()
        assert await client.read_rest() == b"still here"


async def test_connection_reset_is_reported_as_reset(contexts: Contexts) -> None:
    """Not as an end."""
    server, client_side = contexts

    async def script(peer: Peer) -> None:
        await peer.read_head()
        peer.reset()

    async with (
        FakeUpstream(script, ssl=server) as upstream,
        connect(upstream.host, upstream.port, ssl=client_side) as client,
    ):
        await client.send(GET)
        assert await client.wait_end() == "reset"


@pytest.mark.parametrize("ending", ["close", "cut"])
async def test_closing_sends_a_close_notify_and_cutting_does_not(certificates: Certificates, ending: str) -> None:
    """A TLS client of the standard library tells the two apart."""

    async def script(peer: Peer) -> None:
        await peer.send(b"data")
        await peer.read_exactly(1)
        getattr(peer, ending)()

    def read_to_the_end(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            context = certificates.client_context()
            with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as client:
                client.sendall(b"!")
                while more := client.recv(100):
                    data = more
        return data

    async with FakeUpstream(script, ssl=certificates.server_context()) as upstream:
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, upstream.port))
        if ending == "close":
            assert await reading == b"data"
        else:
            with pytest.raises(ssl.SSLEOFError):
                await reading


async def test_tls_session_details_are_available(certificates: Certificates) -> None:
    """Protocol negotiated, and certificates asked for."""
    server, client_side = (
        certificates.server_context(require_client=True),
        certificates.client_context(with_certificate=True),
    )
    server.set_alpn_protocols(["http/1.1"])
    client_side.set_alpn_protocols(["h2", "http/1.1"])
    async with FakeUpstream(ssl=server) as upstream:
        assert upstream.base_url.startswith("https://127.0.0.1:")
        async with connect("localhost", upstream.port, ssl=client_side) as client:
            await client.send(GET)
            await client.read_response()
            assert client.tls is not None and client.tls.selected_alpn_protocol() == "http/1.1"
        session = upstream.connections[0].tls
        assert session is not None and session.getpeercert() is not None


async def test_a_client_that_does_not_trust_the_certificate_says_so(certificates: Certificates) -> None:
    """The error is its own; the upstream sees a connection without a request."""
    async with FakeUpstream(ssl=certificates.server_context()) as upstream:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(upstream.host, upstream.port, ssl=ssl.create_default_context())
        await upstream.wait_open(0)
        assert upstream.requests == [] and len(upstream.connections) == 1


async def test_a_plain_client_at_a_tls_upstream_gets_no_answer(certificates: Certificates) -> None:
    """No HTTP in either direction."""
    async with FakeUpstream(ssl=certificates.server_context()) as upstream:
        async with connect(upstream.host, upstream.port) as client:
            await client.send(GET)
            assert await client.wait_end() in ("eof", "reset")
            assert b"HTTP" not in client.received
        assert upstream.requests == []


@pytest.mark.parametrize(
    ("host", "address"), [("localhost", "127.0.0.1"), ("127.1.2.3", "127.1.2.3"), ("[::1]", "::1")]
)
def test_loopback_is_accepted_in_its_forms(host: str, address: str) -> None:
    """By name, the whole of 127/8, and IPv6 with or without brackets."""
    assert require_loopback(host) == address
