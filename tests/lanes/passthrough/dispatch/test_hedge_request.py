"""The second request of a hedge keeps no connection and no place that nobody needs."""

import asyncio

from functional.several import chat, several
from functional.through import client_of
from gateways import until

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer


async def test_hedge_that_cannot_connect_releases_its_slot() -> None:
    """The client gets the answer of the first one."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"first"))

    async with several(late, late, hedge="20ms") as up, client_of(up.gateway) as client:
        up.endpoints[1]._stop_listening()
        await client.send(chat())
        await until(lambda: up.group.tally.outcomes["connect"] == 1)
        assert up.inflight == [1, 0]
        go_on.set()
        assert (await client.read_response()).payload == b"first"
        assert up.inflight == [0, 0]


async def test_hedge_keeps_an_answer_sent_before_the_request() -> None:
    """An upstream at its limit answers when it accepts, before it has read anything."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async def speaks_first(peer: Peer) -> None:
        await peer.send(build_answer(200, b"early", [("Connection", "close")]))
        await peer.wait_end(timeout_s=None)

    async with several(silent, speaks_first, hedge="20ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        assert (await client.read_response()).payload == b"early"
        assert up.inflight == [0, 0]
