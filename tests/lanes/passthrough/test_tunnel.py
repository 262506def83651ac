"""A tunnel lasts as long as something moves in it, and ends as a whole."""

import asyncio

import pytest
from functional.tunnels import SWITCHING, echo, joined
from gateways import until_still
from lanes.assembled import Lane, assembled

from gateway.testing.raw_connection import Peer


async def test_tunnel_closes_after_idle_timeout() -> None:
    """Of the upstream's idle time, in both directions; whatever moves begins it anew."""
    async with assembled(echo, idle_s=300.0) as lane, lane.client() as client:
        await joined(client)
        lane.later(299)
        await client.send(b"ping")
        assert await client.read_exactly(4) == b"ping"
        lane.later(299)
        assert client.ended == "open"
        lane.later(301)
        assert await client.wait_end() in ("eof", "reset")
        await lane.upstream.wait_open(0)
        assert dict(lane.metrics.deadlines) == {"idle": 1}


async def test_tunnel_is_one_transaction_logged_once_with_101() -> None:
    """Under way until it ends, and counted once as an answer with 101."""
    async with assembled(echo) as lane:
        async with lane.client() as client:
            await joined(client)
            (connection,) = lane.listener.connections
            assert connection.transaction is not None
            assert (connection.transaction.mode, connection.transaction.streaming, lane.listener.inflight) == (
                "tunnel",
                False,
                1,
            )
        await lane.until_idle()
        assert lane.listener.inflight == 0
        assert [record["status"] for record in lane.log] == [101]
        assert not lane.pool.open


@pytest.mark.parametrize("first", ["client", "upstream", "both"])
async def test_tunnel_closes_when_both_sides_have_ended(first: str) -> None:
    """In whichever order."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        if first != "client":
            await peer.half_close()
        await peer.wait_end()

    async with assembled(script) as lane, lane.client() as client:
        await joined(client)
        if first == "upstream":
            assert await client.read_rest() == b""
        await client.half_close()
        assert await client.wait_end() == "eof"
        await lane.upstream.wait_open(0)
        await lane.until_idle()


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_tunnel_closes_when_one_side_is_reset(who: str) -> None:
    """By RST: the other side is not left waiting."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        await go.wait()
        if who == "upstream":
            peer.reset()
        await peer.wait_end()

    async with assembled(script) as lane, lane.client() as client:
        await joined(client)
        go.set()
        if who == "client":
            client.reset()
        else:
            assert await client.wait_end() == "reset"
        await lane.upstream.wait_open(0)
        await lane.until_idle()


async def test_drain_limit_cuts_a_tunnel() -> None:
    """It is cut at the limit."""
    async with assembled(echo) as lane, lane.client() as client:
        await joined(client)
        await lane.listener.drain(0.1)
        assert await client.wait_end() in ("eof", "reset")
        await lane.upstream.wait_open(0)


async def held_back(lane: Lane, peer: Peer) -> int:
    await until_still(lambda: peer.n_sent)
    return sum(c.transport.get_write_buffer_size() for c in (*lane.listener.connections, *lane.pool.open))


async def test_slow_tunnel_side_applies_backpressure_to_the_other() -> None:
    """In both directions at once, within the bounds of the buffers; and everything flows again."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SWITCHING)
        sending = asyncio.create_task(peer.send(bytes(20_000_000), timeout_s=None))
        await go.wait()
        await peer.discard(20_000_000)
        await sending

    async with assembled(script, rcvbuf=8192) as lane, lane.client(rcvbuf=8192) as client:
        await joined(client)
        sending = asyncio.create_task(client.send(bytes(20_000_000), timeout_s=None))
        await held_back(lane, client)
        assert await held_back(lane, lane.upstream.connections[0]) < 2 * (512 << 10)
        go.set()
        await client.discard(20_000_000)
        await sending
