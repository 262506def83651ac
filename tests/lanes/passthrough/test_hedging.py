"""A slow endpoint gets a rival: the first answer counts, and the loser's connection ends."""

import asyncio

import pytest
from functional.several import BODY, CHAT, STORES, Several, chat, several
from functional.through import ask, client_of, post
from gateways import until

from gateway.testing.peer import Peer
from gateway.testing.scripts import answer, serve

BUSY = answer(503, b"busy")


def targets(up: Several) -> list[bytes]:
    return [request.target for endpoint in up.endpoints for request in endpoint.requests]


async def silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end(timeout_s=None)


async def test_the_second_endpoint_answers_for_one_that_is_slow() -> None:
    """The first one's connection ends, and both places are free."""
    async with several(silent, serve(answer(200, b"second")), hedge="50ms") as up:
        assert (await ask(up.gateway, chat())).payload == b"second"
        await up.endpoints[0].wait_open(0)
        assert up.inflight == [0, 0] and up.group.tally.retries == {"hedge": 1}
        assert [endpoint.requests[0].raw_body for endpoint in up.endpoints] == [BODY, BODY]
        assert up.group.tally.outcomes == {"ok": 1, "cancelled": 1}


async def test_the_first_answer_counts_also_when_it_is_the_first_endpoints() -> None:
    """Then the second connection ends."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(answer(200, b"first"))
        await peer.wait_end(timeout_s=None)

    async with several(late, silent, hedge="50ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await up.endpoints[1].wait_requests(1)
        go_on.set()
        assert (await client.read_response()).payload == b"first"
        await up.endpoints[1].wait_open(0)
        assert up.inflight == [0, 0]


@pytest.mark.parametrize("fails", [serve(BUSY), "resets"])
async def test_a_second_request_that_fails_changes_nothing(fails: object) -> None:
    """The first one is still awaited."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(answer(200, b"first"))

    async def resets(peer: Peer) -> None:
        await peer.read_request()
        peer.reset()

    second = resets if fails == "resets" else fails
    async with several(late, second, hedge="50ms") as up, client_of(up.gateway) as client:  # type: ignore[arg-type]
        await client.send(chat())
        await up.endpoints[1].wait_requests(1)
        await until(lambda: up.inflight == [1, 0])
        go_on.set()
        assert (await client.read_response()).payload == b"first"


@pytest.mark.parametrize("last", [BUSY, b""], ids=["503", "reset"])
async def test_when_the_first_fails_the_second_takes_its_place(last: bytes) -> None:
    """No third endpoint is asked meanwhile."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await asked.wait()
        await peer.send(last)
        if not last:
            peer.reset()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await go_on.wait()
        await peer.send(answer(200, b"second"))

    async with several(fails, late, serve(answer(200, b"third")), hedge="50ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await until(lambda: up.inflight == [0, 1, 0])
        go_on.set()
        assert (await client.read_response()).payload == b"second"
        assert up.counts == [1, 1, 0]


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 9\r\n\r\nbus"])
async def test_when_both_fail_the_client_gets_an_answer_that_was_whole(part: bytes) -> None:
    """That of the second endpoint, with its Retry-After, when the first one resets its connection after it."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def resets(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        peer.reset()

    async def busy(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await peer.send(part or answer(503, b"busy", [("Retry-After", "7")]))

    retry = {"tries": 2}
    async with several(resets, busy, hedge="50ms", retry=retry) as up, client_of(up.gateway) as client:
        await client.send(chat())
        await asked.wait()
        await until(lambda: up.inflight == [1, 0])
        go_on.set()
        response = await client.read_response()
        if part:
            assert response.status == 502
        else:
            assert (response.status, response.payload, response.values(b"Retry-After")) == (503, b"busy", [b"7"])
        assert up.inflight == [0, 0]


async def test_a_client_that_leaves_ends_both() -> None:
    """No request is left at an upstream."""
    async with several(silent, silent, hedge="50ms") as up:
        async with client_of(up.gateway) as client:
            await client.send(chat())
            await up.endpoints[1].wait_requests(1)
        for endpoint in up.endpoints:
            await endpoint.wait_open(0)
        assert up.inflight == [0, 0]


async def test_what_may_not_happen_twice_has_no_rival() -> None:
    """However slow its endpoint is."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(answer(200, b"first"))

    async with (
        several(late, silent, hedge="1ms") as up,
        client_of(up.gateway) as client,
        client_of(up.gateway) as other,
    ):
        await client.send(post(BODY, STORES))
        await up.endpoints[0].wait_requests(1)
        await other.send(chat())
        await until(lambda: targets(up).count(CHAT) == 2)  # by the time of its hedge the first would have had one
        assert up.group.tally.retries == {"hedge": 1} and targets(up).count(STORES) == 1
        go_on.set()
        assert (await client.read_response()).payload == b"first"
