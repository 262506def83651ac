"""One upstream connection: it serves the turn that holds it, and nobody else."""

import asyncio
import socket

import pytest
from functional.through import breathe

from gateway.testing.raw_connection import Peer
from gateway.upstream.connection import HIGH_WATER_BYTES, reset

from .turns import NotingTurn, connected, pooled


async def listens(peer: Peer) -> None:
    await peer.wait_end(timeout_s=None)


async def test_turn_receives_data_and_end_of_stream() -> None:
    """Bytes and FIN."""

    async def talks(peer: Peer) -> None:
        await peer.send(b"hello")

    async with pooled(talks) as (pool, _, _):
        turn = NotingTurn()
        await connected(pool, turn)
        await turn.until("lost")
        assert (bytes(turn.received), turn.events, turn.error) == (b"hello", ["data", "eof", "lost"], None)


async def test_connection_reset_is_reported_as_an_error() -> None:
    """It is not taken for an end."""

    async def dies(peer: Peer) -> None:
        peer.reset()

    async with pooled(dies) as (pool, _, _):
        turn = NotingTurn()
        await connected(pool, turn)
        await turn.until("lost")
        assert isinstance(turn.error, ConnectionResetError)
        assert not pool.open


@pytest.mark.parametrize("data", [b"x", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_unsolicited_bytes_close_an_idle_connection(data: bytes) -> None:
    """Without a turn they belong to nobody."""

    idle = asyncio.Event()

    async def talks(peer: Peer) -> None:
        await idle.wait()
        await peer.send(data)
        await peer.wait_end()

    async with pooled(talks) as (pool, upstream, _):
        pool.return_connection(await connected(pool), idle_timeout_s=None)
        idle.set()
        await upstream.wait_open(0)
        assert not pool.open


@pytest.mark.parametrize("leaves", [False, True])
async def test_data_sent_on_accept_goes_to_the_first_turn(leaves: bool) -> None:
    """An upstream at its limit answers when it accepts; the connection is not used again."""

    async def greets(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 503 Busy\r\n\r\n")
        if not leaves:
            await peer.wait_end()

    async with pooled(greets) as (pool, upstream, _):
        connection, turn = await pool.connect(), NotingTurn()
        async with asyncio.timeout(120):
            while not (connection.is_lost if leaves else connection.early):
                await asyncio.sleep(0)
        connection.begin(turn, b"GET / HTTP/1.1\r\n\r\n")
        await turn.until("data")
        assert turn.received == b"HTTP/1.1 503 Busy\r\n\r\n"
        if leaves:
            assert turn.events == ["data", "lost"] and turn.error is None
        else:
            pool.return_connection(connection, idle_timeout_s=None)
        await upstream.wait_open(0)
        while pool.open:
            await asyncio.sleep(0)
        assert not pool.idle


async def test_idle_connection_closes_on_fin() -> None:
    """Nothing is left to do with it."""

    async def leaves(peer: Peer) -> None:
        await breathe(10)

    async with pooled(leaves) as (pool, _, _):
        await connected(pool)
        async with asyncio.timeout(120):
            while pool.open:
                await asyncio.sleep(0)


async def test_turn_may_keep_the_connection_half_open_after_fin() -> None:
    """After FIN it can still write, as a tunnel does."""

    go = asyncio.Event()

    async def half(peer: Peer) -> None:
        await go.wait()
        await peer.half_close()
        assert await peer.read_rest() == b"later"

    async with pooled(half) as (pool, upstream, _):
        turn = NotingTurn(keeps_half_open=True)
        connection = await connected(pool, turn)
        go.set()
        await turn.until("eof")
        connection.write(b"later")
        connection.transport.close()
        await turn.until("lost")
        await upstream.wait_open(0)


async def test_turn_is_notified_of_full_and_drained_write_buffer() -> None:
    """So that the client can be paused."""
    go = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await go.wait()
        await peer.wait_end(timeout_s=None)

    async with pooled(slow, rcvbuf=4096) as (pool, _, _):
        turn = NotingTurn()
        connection = await connected(pool, turn)
        for _ in range(1000):
            connection.write(bytes(HIGH_WATER_BYTES))
            if "full" in turn.events:
                break
        assert turn.events == ["full"]
        go.set()
        await turn.until("drained")


async def test_paused_connection_stops_reading() -> None:
    """Whatever comes waits in the kernel; both may be called again, and on a connection that is closing."""
    go = asyncio.Event()

    async def talks(peer: Peer) -> None:
        await go.wait()
        await peer.send(b"hello")
        await peer.wait_end(timeout_s=None)

    async with pooled(talks) as (pool, _, _):
        turn = NotingTurn()
        connection = await connected(pool, turn)
        connection.pause()
        connection.pause()
        go.set()
        await breathe(10)
        assert not turn.received
        connection.resume()
        connection.resume()
        await turn.until("data")
        assert turn.received == b"hello"
        connection.abort()
        connection.pause()
        connection.resume()
        connection.write(b"nobody")
        await breathe(10)
        assert turn.events == ["data"]


async def test_connection_with_unread_data_or_end_is_stale() -> None:
    """A FIN, a byte or a reset in the kernel makes it stale, before the loop has told."""
    for end in ("close", "send", "reset"):
        async with pooled(listens) as (pool, upstream, _):
            connection = await connected(pool)
            await upstream.wait_connections(1)
            assert not connection.is_stale()
            (peer,) = upstream.connections
            if end == "send":
                await peer.send(b"x")
            else:
                getattr(peer, end)()
            assert connection.is_stale()
            assert connection in pool.open


async def test_aborted_connection_sends_its_turn_no_further_events() -> None:
    """It hears nothing more; the peer sees the end at once, whatever was unsent."""
    async with pooled(listens, rcvbuf=4096) as (pool, _, _):
        turn = NotingTurn()
        connection = await connected(pool, turn)
        connection.write(bytes(20_000_000))
        connection.abort()
        await breathe(10)
        assert turn.events == ["full"]
        assert not pool.open


async def test_peer_sees_a_connection_reset_error() -> None:
    """Not as FIN; also where bytes are unsent, and twice."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        sock, _ = await loop.sock_accept(listener)
        with sock:
            sock.setblocking(False)
            reset(transport)
            reset(transport)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(loop.sock_recv(sock, 10), 120)
