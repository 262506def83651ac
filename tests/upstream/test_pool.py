"""The pool keeps what is clean and alive, gives the youngest first, and lets the old go."""

import asyncio
import re
import socket
from collections.abc import Sequence

import pytest
from certificates import Certificates
from functional.through import breathe
from gateways import until
from host_names import host_names
from unanswered_ports import refusing_port, silent_port

from gateway.contracts.errors import GatewayError
from gateway.testing.raw_connection import Peer
from gateway.testing.upstream import FakeUpstream
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.pool import IDLE_LIMIT_S, Pool
from gateway.upstream.tls import ResumingContext

from .turns import NotingTurn, connected, endpoint, pooled


async def listens(peer: Peer) -> None:
    await peer.wait_end(timeout_s=None)


async def given(pool: Pool, n: int = 1, *, idle_timeout_s: float | None = None) -> list[UpstreamConnection]:
    """`n` connections that were used and given back, in this order."""
    connections = [await connected(pool, NotingTurn()) for _ in range(n)]
    for connection in connections:
        pool.return_connection(connection, idle_timeout_s=idle_timeout_s)
    return connections


async def test_connection_pool_without_idle_connections_returns_none() -> None:
    """A request without an idle connection opens one: nothing waits here."""
    async with pooled(listens) as (pool, _, _):
        assert pool.take_idle() is None
        connection = await connected(pool)
        assert not connection.reused and pool.open == {connection}
        assert pool.take_idle() is None


async def test_pool_returns_the_youngest_connection_first() -> None:
    """Each once, and marked as used before."""
    async with pooled(listens) as (pool, _, _):
        a, b, c = await given(pool, 3)
        assert [pool.take_idle(), pool.take_idle(), pool.take_idle(), pool.take_idle()] == [c, b, a, None]
        assert c.reused


async def test_returned_connection_has_no_turn_and_resumes_reading() -> None:
    """What its turn had paused is read again: bytes that come now must be noticed."""

    async def talks_later(peer: Peer) -> None:
        await go.wait()
        await peer.send(b"stray")
        await peer.wait_end(timeout_s=None)

    go = asyncio.Event()
    async with pooled(talks_later) as (pool, upstream, _):
        connection = await connected(pool, NotingTurn())
        connection.pause()
        pool.return_connection(connection, idle_timeout_s=None)
        assert connection.turn is None and pool.idle == [connection]
        go.set()
        await upstream.wait_open(0)
        assert not pool.idle and not pool.open


@pytest.mark.parametrize("end", ["close", "reset", "send"])
async def test_ended_connection_is_not_returned_by_the_pool(end: str) -> None:
    """Although the loop has not told yet; the next one is."""
    async with pooled(listens) as (pool, upstream, _):
        good, bad = await given(pool, 2)
        await upstream.wait_connections(2)
        peer = upstream.connections[1]
        if end == "send":
            await peer.send(b"x")  # the loop has not looked since
        else:
            getattr(peer, end)()
        assert pool.take_idle() is good
        assert bad.transport.is_closing()
        assert pool.take_idle() is None


async def test_lost_connection_is_removed_from_the_pool() -> None:
    """Idle or busy."""

    async def leaves(peer: Peer) -> None:
        await go.wait()

    go = asyncio.Event()
    async with pooled(leaves) as (pool, upstream, _):
        await given(pool, 2)
        await connected(pool, NotingTurn())
        go.set()
        await upstream.wait_open(0)
        async with asyncio.timeout(120):
            while pool.open:
                await asyncio.sleep(0)
        assert not pool.idle


async def test_a_closing_connection_is_not_taken_back() -> None:
    """Nor one whose pool is closed."""
    async with pooled(listens) as (pool, upstream, _):
        dying, busy = await connected(pool, NotingTurn()), await connected(pool, NotingTurn())
        dying.transport.abort()
        pool.return_connection(dying, idle_timeout_s=None)
        assert not pool.idle
        (idle,) = await given(pool)
        pool.close()
        pool.close()
        assert idle.transport.is_closing() and not pool.idle
        assert not busy.transport.is_closing()
        pool.return_connection(busy, idle_timeout_s=None)
        assert busy.transport.is_closing() and not pool.idle
        await upstream.wait_open(0)


async def test_old_idle_connections_are_closed() -> None:
    """After the idle limit; younger and busy ones stay."""
    async with pooled(listens) as (pool, upstream, clock):
        busy = await connected(pool, NotingTurn())
        (old,) = await given(pool)
        clock.advance(IDLE_LIMIT_S - 1)
        (young,) = await given(pool)
        clock.advance(2)
        pool.sweep(clock())
        assert old.transport.is_closing() and pool.idle == [young]
        await upstream.wait_open(2)
        assert busy in pool.open


@pytest.mark.parametrize(
    ("told_s", "kept_s"), [(5.0, 4.0), (1.0, 0.0), (0.0, 0.0), (3600.0, IDLE_LIMIT_S), (None, IDLE_LIMIT_S)]
)
async def test_keep_alive_timeout_is_honored_with_a_second_to_spare(told_s: float | None, kept_s: float) -> None:
    """`Keep-Alive: timeout=5` is kept for four seconds: a request must not meet its FIN."""
    async with pooled(listens) as (pool, _, clock):
        (connection,) = await given(pool, idle_timeout_s=told_s)
        pool.sweep(clock() + kept_s)
        assert not connection.transport.is_closing()
        pool.sweep(clock() + kept_s + 0.01)
        assert connection.transport.is_closing()


async def test_connections_are_counted() -> None:
    """Opened ones, and whether the last attempt worked."""
    async with pooled(listens) as (pool, _, _):
        assert (pool.counts.opened, pool.counts.up) == (0, True)
        await connected(pool)
        assert (pool.counts.opened, pool.counts.connect_errors, pool.counts.up) == (1, 0, True)


async def test_a_refused_connect_is_an_upstream_error() -> None:
    """With the upstream's name, without its address."""
    with refusing_port() as port:
        pool = Pool(endpoint(port), clock=asyncio.get_running_loop().time)
        with pytest.raises(GatewayError) as caught:
            await pool.connect()
        assert caught.value.code == "upstream_error"
        assert (
            "'up'" in caught.value.message
            and "127.0.0.1" not in caught.value.message
            and str(port) not in caught.value.message
        )
        assert (pool.counts.connect_errors, pool.counts.up) == (1, False)
    async with FakeUpstream(listens, port=port):
        connection = await pool.connect()
        assert pool.counts.up
        connection.abort()
        await breathe(10)


async def test_hanging_connect_raises_an_upstream_timeout() -> None:
    """Within its time."""
    with silent_port() as port:
        pool = Pool(endpoint(port, connect_s=0.1), clock=asyncio.get_running_loop().time)
        with pytest.raises(GatewayError, match=r"within 0.1 s") as caught:
            await pool.connect()
        assert caught.value.code == "upstream_timeout"
        assert not pool.open


async def test_cancelled_connect_leaves_no_open_connection() -> None:
    """Cancelled at any moment: no connection stays open that nobody holds."""
    async with pooled(listens) as (pool, upstream, _):
        for turns in range(12):
            task = asyncio.create_task(pool.connect())
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.cancel():
                await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                task.result().abort()
        await breathe(10)
        await upstream.wait_open(0)
        assert not pool.open and not pool.idle


async def test_connection_with_unsent_data_is_not_reused() -> None:
    """An upstream that answered without reading its request does not get another one behind it."""

    async def deaf(peer: Peer) -> None:
        await go.wait()

    go = asyncio.Event()
    async with pooled(deaf, rcvbuf=4096) as (pool, _, _):
        connection = await connected(pool, NotingTurn())
        connection.write(bytes(20_000_000))
        pool.return_connection(connection, idle_timeout_s=None)
        assert pool.take_idle() is None
        go.set()


# Names with several addresses.


@pytest.mark.parametrize("tls", [False, True])
async def test_silent_address_falls_through_to_the_next_address(certificates: Certificates, tls: bool) -> None:
    """The next one is tried while it is; the connection is like any other, and its server is known by its name."""
    server = certificates.server_context() if tls else None
    context = ResumingContext(certificates.ca) if tls else None
    async with FakeUpstream(listens, ssl=server) as upstream:
        with (
            silent_port("127.0.0.2", upstream.port),
            host_names({"up.example": ["127.0.0.2", "127.0.0.1"]}),
        ):
            facts = {"host": "up.example", "tls": context, "server_name": "localhost" if tls else None}
            pool = Pool(endpoint(upstream.port, **facts), clock=asyncio.get_running_loop().time)
            connection = await pool.connect()
            sock = connection.transport.get_extra_info("socket")
            assert sock.getpeername()[0] == "127.0.0.1" and sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert pool.open == {connection} and pool.counts.opened == 1
            connection.abort()
            await upstream.wait_open(0)
            await until(lambda: not pool.open)


@pytest.mark.parametrize(
    ("addresses", "cause"),
    [
        ([], "its name cannot be resolved"),
        (["127.0.0.1"], "Connection refused"),
        (["127.0.0.1", "127.0.0.2"], "Connection refused"),
        (["127.0.0.1", "255.255.255.255"], "none of its addresses accepts a connection"),
    ],
)
async def test_host_without_an_accepting_address_raises_an_upstream_error(addresses: Sequence[str], cause: str) -> None:
    """With the cause, if all addresses have the same; without an address."""
    with refusing_port() as port, host_names({"up.example": addresses}):
        pool = Pool(endpoint(port, host="up.example"), clock=asyncio.get_running_loop().time)
        with pytest.raises(GatewayError, match=cause) as caught:
            await pool.connect()
        assert caught.value.code == "upstream_error" and not re.search(r"\d\.", caught.value.message)


async def test_silent_name_server_has_its_own_timeout_message() -> None:
    """Both are a timeout."""
    with host_names({"up.example": None}):
        pool = Pool(endpoint(1, host="up.example", connect_s=0.1), clock=asyncio.get_running_loop().time)
        with pytest.raises(GatewayError, match=r"the name server of its host did not answer within 0\.1 s") as caught:
            await pool.connect()
        assert caught.value.code == "upstream_timeout" and pool.counts.connect_errors == 1


async def test_cancelled_connect_to_several_addresses_leaves_no_open_connection() -> None:
    """At whichever moment."""
    with host_names({"up.example": ["127.0.0.1", "127.0.0.2"]}):
        async with pooled(listens, host="up.example") as (pool, upstream, _):
            for turns in range(24):
                task = asyncio.create_task(pool.connect())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if task.cancel():
                    await asyncio.gather(task, return_exceptions=True)
                if not task.cancelled():
                    task.result().abort()
            await breathe(10)
            await upstream.wait_open(0)
            assert not pool.open and not pool.idle
