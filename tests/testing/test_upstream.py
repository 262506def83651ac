"""The scripted origin runs its scripts, records what it was sent, and leaves nothing behind."""

import asyncio
import errno
import hashlib
import resource
import socket

import pytest

from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_answer, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def ask(upstream: FakeUpstream, request: bytes = GET) -> bytes:
    async with connect(upstream.host, upstream.port) as client:
        await client.send(request)
        return (await client.read_response()).payload


async def test_fake_upstream_answers_every_request_by_default() -> None:
    """200, JSON, and the address to ask."""
    async with FakeUpstream() as upstream:
        assert upstream.base_url == f"http://127.0.0.1:{upstream.port}"
        assert await ask(upstream) == b'{"ok":true}'


async def test_connection_n_runs_script_n_and_the_last_one_repeats() -> None:
    """Counted over connections, not requests."""
    async with FakeUpstream(serve(build_answer(200, b"first")), serve(build_answer(200, b"later"))) as upstream:
        assert [await ask(upstream) for _ in range(3)] == [b"first", b"later", b"later"]
        assert len(upstream.connections) == 3


async def test_every_byte_is_recorded() -> None:
    """Raw, counted and hashed, also what was no request; kept after the connection ended."""
    garbage = bytes(range(256)) * 20

    async def swallow(peer: Peer) -> None:
        await peer.wait_end()

    async with FakeUpstream(swallow, keep_bytes=1000) as upstream:
        async with connect(upstream.host, upstream.port) as client:
            await client.send(garbage)
        await upstream.wait_connections(1)
        await upstream.wait_open(0)
        (peer,) = upstream.connections
    assert bytes(peer.received) == garbage[:1000] and peer.n_received == len(garbage)
    assert peer.sha256.digest() == hashlib.sha256(garbage).digest() and peer.ended == "eof"


async def test_requests_are_recorded_in_the_order_of_arrival() -> None:
    """Over all connections."""
    async with FakeUpstream() as upstream:
        async with connect(upstream.host, upstream.port) as one, connect(upstream.host, upstream.port) as two:
            for number, client in enumerate((two, one, two)):
                await client.send(GET.replace(b"/ ", b"/%d " % number))
                await client.read_response()
        requests = await upstream.wait_requests(3)
        assert [request.target for request in requests] == [b"/0", b"/1", b"/2"]


async def test_a_script_that_returns_closes_its_connection() -> None:
    """With FIN; one that resets, with RST."""

    async def answer_and_return(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())

    async def answer_and_reset(peer: Peer) -> None:
        await answer_and_return(peer)
        peer.reset()

    async with FakeUpstream(answer_and_return, answer_and_reset) as upstream:
        for end in ("eof", "reset"):
            async with connect(upstream.host, upstream.port) as client:
                await client.send(GET)
                assert await client.wait_end() == end
        assert upstream.open_count == 0


async def test_unsolicited_second_answer_can_be_scripted() -> None:
    """The poisoned idle connection: a second answer on an event of the test's."""
    poison = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, b"AAAA"))
        await poison.wait()
        await peer.send(build_answer(200, b"EVIL"))
        await peer.wait_end()

    async with FakeUpstream(script, serve(build_answer(200, b"GOOD"))) as upstream:
        async with connect(upstream.host, upstream.port) as client:
            await client.send(GET)
            assert (await client.read_response()).payload == b"AAAA"
            poison.set()
            assert (await client.read_response()).payload == b"EVIL"
        assert await ask(upstream) == b"GOOD"


async def test_wait_timeout_reports_requests_and_connections() -> None:
    """Requests, connections, open connections."""
    async with FakeUpstream() as upstream:
        await ask(upstream)
        with pytest.raises(TimeoutError, match=r"no 2 requests within 0.01 s .* 1 connections, . open, 1 requests"):
            await upstream.wait_requests(2, timeout_s=0.01)
        with pytest.raises(TimeoutError, match="no 2 connections"):
            await upstream.wait_connections(2, timeout_s=0.01)


async def test_open_connections_are_counted() -> None:
    """Until either side ended them."""
    async with FakeUpstream() as upstream:
        async with connect(upstream.host, upstream.port), connect(upstream.host, upstream.port):
            await upstream.wait_open(2)
        await upstream.wait_open(0)


async def test_a_script_that_fails_fails_the_test() -> None:
    """Its exception comes out of the `async with`, and says in which connection it was."""

    async def wrong(peer: Peer) -> None:
        await peer.read_request(timeout_s=0.01)

    with pytest.raises(TimeoutError, match="for a request") as caught:
        async with FakeUpstream(wrong) as upstream, connect(upstream.host, upstream.port) as client:
            await client.wait_end()
    assert "in the script of connection 0" in caught.value.__notes__[0]


async def test_several_script_failures_are_raised_as_a_group() -> None:
    """As a group."""

    async def wrong(peer: Peer) -> None:
        raise KeyError(peer.n_received)

    with pytest.RaisesGroup(KeyError, KeyError):
        async with FakeUpstream(wrong) as upstream:
            for _ in range(2):
                async with connect(upstream.host, upstream.port) as client:
                    await client.wait_end()


async def test_script_failure_is_added_as_a_note_to_test_exceptions() -> None:
    """As a note: the test's own exception is not replaced."""

    async def wrong(peer: Peer) -> None:
        raise KeyError(peer.n_received)

    async def test(upstream: FakeUpstream) -> None:
        async with upstream, connect(upstream.host, upstream.port) as client:
            await client.wait_end()
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        await test(FakeUpstream(wrong))
    assert "a script failed: KeyError(0)" in caught.value.__notes__[0]


async def test_leaving_cancels_scripts_and_closes_connections() -> None:
    """Also those that wait for ever; the port refuses afterwards, and can be taken again."""
    async with FakeUpstream() as upstream:
        client = await connect(upstream.host, upstream.port)
        await upstream.wait_connections(1)
    assert await client.wait_end() == "eof"
    client.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(upstream.host, upstream.port)
    async with FakeUpstream(port=upstream.port) as again:
        assert await ask(again) == b'{"ok":true}'


async def test_a_port_in_use_is_an_error() -> None:
    """Of the system, as it comes."""
    async with FakeUpstream() as upstream:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number says it
            await FakeUpstream(port=upstream.port).__aenter__()
        assert caught.value.errno == errno.EADDRINUSE


async def test_a_small_receive_buffer_holds_the_sender_back() -> None:
    """What a script does not read stays with the sender, but for the kernels' buffers."""

    async def never_read(peer: Peer) -> None:
        await asyncio.Event().wait()

    async with FakeUpstream(never_read, rcvbuf=4096) as upstream, connect(upstream.host, upstream.port) as client:
        with pytest.raises(TimeoutError, match=r"room to send 67108864 bytes: .* sent"):
            await client.send(bytes(1 << 26), timeout_s=0.3)
        assert 0 < client.n_sent < 1 << 26
        assert upstream.connections[0].n_received == 0


async def test_ipv6_loopback_is_served() -> None:
    """With brackets in the address."""
    async with FakeUpstream(host="::1") as upstream:
        assert upstream.base_url == f"http://[::1]:{upstream.port}"
        assert await ask(upstream) == b'{"ok":true}'


def test_other_addresses_than_loopback_are_refused() -> None:
    """The fakes never face a network."""
    with pytest.raises(ValueError, match=r"loopback only, not to '0.0.0.0'"):
        FakeUpstream(host="0.0.0.0")


async def test_running_out_of_file_descriptors_fails_the_test() -> None:
    """Instead of spinning: no more connections are accepted, and the error comes out at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    upstream = FakeUpstream()
    await upstream.__aenter__()
    with socket.socket() as client:
        client.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
        try:
            client.connect_ex((upstream.host, upstream.port))
            with pytest.raises(TimeoutError):
                await upstream.wait_connections(1, timeout_s=0.05)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(OSError, match="Too many open files"):
        await upstream.__aexit__(None, None, None)
