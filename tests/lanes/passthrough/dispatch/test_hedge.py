"""A slow endpoint gets a rival: the first answer counts, and the loser's connection ends."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from functional.several import BODY, CHAT, STORES, Several, chat, several
from functional.through import ask, breathe, client_of, get, post
from gateways import exchange, until

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_ok_answer, serve

BUSY = build_answer(503, b"busy")


@contextmanager
def full_socket() -> Iterator[int]:
    """A port that takes no connection and refuses none: nobody accepts, and its queue is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def targets(up: Several) -> list[bytes]:
    return [request.target for endpoint in up.endpoints for request in endpoint.requests]


async def silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end(timeout_s=None)


async def test_hedge_answers_for_a_slow_endpoint() -> None:
    """The first one's connection ends, and both places are free."""
    async with several(silent, serve(build_answer(200, b"second")), hedge="50ms") as up:
        assert (await ask(up.gateway, chat())).payload == b"second"
        await up.endpoints[0].wait_open(0)
        assert up.inflight == [0, 0] and up.group.tally.retries == {"hedge": 1}
        assert [endpoint.requests[0].raw_body for endpoint in up.endpoints] == [BODY, BODY]
        assert up.group.tally.outcomes == {"ok": 1, "cancelled": 1}


async def test_first_endpoint_answer_cancels_the_hedge() -> None:
    """Then the second connection ends."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"first"))
        await peer.wait_end(timeout_s=None)

    async with several(late, silent, hedge="50ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await up.endpoints[1].wait_requests(1)
        go_on.set()
        assert (await client.read_response()).payload == b"first"
        await up.endpoints[1].wait_open(0)
        assert up.inflight == [0, 0]


@pytest.mark.parametrize("fails", [serve(BUSY), "resets"])
async def test_failed_hedge_does_not_affect_the_first_request(fails: object) -> None:
    """The first one is still awaited."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"first"))

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
async def test_hedge_replaces_a_failed_first_request(last: bytes) -> None:
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
        await peer.send(build_answer(200, b"second"))

    async with (
        several(fails, late, serve(build_answer(200, b"third")), hedge="50ms") as up,
        client_of(up.gateway) as client,
    ):
        await client.send(chat())
        await until(lambda: up.inflight == [0, 1, 0])
        go_on.set()
        assert (await client.read_response()).payload == b"second"
        assert up.counts == [1, 1, 0]


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 9\r\n\r\nbus"])
async def test_both_hedge_failures_relay_the_complete_answer(part: bytes) -> None:
    """That of the second endpoint, with its Retry-After, when the first one resets its connection after it."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def resets(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        peer.reset()

    async def busy(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await peer.send(part or build_answer(503, b"busy", [("Retry-After", "7")]))

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
            assert (response.status, response.payload, response.list_values(b"Retry-After")) == (503, b"busy", [b"7"])
        assert up.inflight == [0, 0]


async def test_client_disconnect_cancels_both_hedge_requests() -> None:
    """No request is left at an upstream."""
    async with several(silent, silent, hedge="50ms") as up:
        async with client_of(up.gateway) as client:
            await client.send(chat())
            await up.endpoints[1].wait_requests(1)
        for endpoint in up.endpoints:
            await endpoint.wait_open(0)
        assert up.inflight == [0, 0]


async def test_nonidempotent_request_is_not_hedged() -> None:
    """However slow its endpoint is."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"first"))

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


async def test_hedge_resent_after_a_stale_connection_keeps_its_endpoints_key() -> None:
    """Never the request of the first endpoint, which has another key."""
    first_may_fail, second_may_fail = asyncio.Event(), asyncio.Event()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await first_may_fail.wait()
        peer.reset()

    async def warm(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_request()
        await second_may_fail.wait()
        peer.reset()

    keys = {"api_key": "KA"}, {"api_key": "KB"}
    async with (
        several(fails, [warm, serve(build_ok_answer())], hedge="50ms", own=keys) as up,
        client_of(up.gateway) as client,
    ):
        up.group.members[0].healthy = False
        assert (await exchange(client, get(CHAT))).status == 200
        up.group.members[0].healthy = True
        await client.send(get(CHAT))
        await up.endpoints[1].wait_requests(2)
        first_may_fail.set()
        await until(lambda: up.inflight == [0, 1])
        second_may_fail.set()
        assert (await client.read_response()).status == 200
        sent = [[request.list_values(b"authorization") for request in endpoint.requests] for endpoint in up.endpoints]
        assert sent == [[[b"Bearer KA"]], [[b"Bearer KB"]] * 3]


GOOD_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + BUSY,
        b"HTTP/1.1 1",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        GOOD_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 7\r\n\r\n"),
    ],
    ids=["103", "100 and 503", "a part", "no HTTP", "101", "two lengths"],
)
async def test_invalid_hedge_head_does_not_drop_the_first_request(says: bytes) -> None:
    """The first endpoint answers later."""
    go_on = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"first"))

    async def babbles(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(says)
        go_on.set()
        await peer.wait_end(timeout_s=None)

    async with several(late, babbles, hedge="50ms") as up:
        assert (await ask(up.gateway, chat())).payload == b"first"
        await until(lambda: up.inflight == [0, 0])


@pytest.mark.parametrize("early", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"], ids=["head", "103"])
async def test_partial_hedge_head_is_kept_when_the_first_fails(early: bytes) -> None:
    """Interim answers included."""
    half, go_on = asyncio.Event(), asyncio.Event()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await half.wait()
        peer.reset()

    async def in_halves(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(early + GOOD_HEAD[:10])
        await breathe(20)
        half.set()
        await go_on.wait()
        await peer.send(GOOD_HEAD[10:] + b"second")

    async with several(fails, in_halves, hedge="50ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await until(lambda: up.inflight == [0, 1])
        go_on.set()
        response = await client.read_response()
        assert response.payload == b"second" and b"".join(response.informational) == early


async def test_third_endpoint_is_tried_after_failure_and_unreachable_hedge() -> None:
    """Although the second was under way when the first failed."""

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await until(lambda: up.inflight[1] == 1)
        peer.reset()

    with full_socket() as port:
        own = {}, {"url": f"http://127.0.0.1:{port}/v1"}
        scripts = fails, serve(build_ok_answer()), serve(build_answer(200, b"third"))
        async with several(*scripts, hedge="20ms", own=own, timeouts={"connect": "300ms"}) as up:
            assert (await ask(up.gateway, chat())).payload == b"third"
            assert up.inflight == [0, 0, 0] and up.counts == [1, 0, 1]


async def test_unconnected_first_endpoint_is_hedged() -> None:
    """The second endpoint answers long before the first one's connection fails."""
    with full_socket() as port:
        own = ({"url": f"http://127.0.0.1:{port}/v1"},)
        async with several(serve(build_ok_answer()), serve(build_answer(200, b"second")), hedge="20ms", own=own) as up:
            assert (await ask(up.gateway, chat())).payload == b"second"
            assert up.inflight == [0, 0] and up.group.tally.retries == {"hedge": 1}


async def test_retry_after_a_reset_is_hedged() -> None:
    """Within the number of tries."""

    async def resets(peer: Peer) -> None:
        await peer.read_request()
        peer.reset()

    async with several(resets, silent, serve(build_answer(200, b"third")), hedge="20ms") as up:
        assert (await ask(up.gateway, chat())).payload == b"third"
        assert up.inflight == [0, 0, 0] and up.counts == [1, 1, 1]


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
async def test_retry_after_from_either_hedged_request_pauses_its_endpoint(who: int) -> None:
    """Its Retry-After counts as that of any other try."""
    both, told = asyncio.Event(), asyncio.Event()

    async def pauses(peer: Peer) -> None:
        await peer.read_request()
        await both.wait()
        await peer.send(build_answer(503, b"busy", [("Retry-After", "30")]))

    async def answers(peer: Peer) -> None:
        await peer.read_request()
        await told.wait()
        await peer.send(build_ok_answer())

    scripts = (pauses, answers) if who == 0 else (answers, pauses)
    async with several(*scripts, hedge="20ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await until(lambda: up.counts == [1, 1])
        both.set()
        await until(lambda: up.inflight[who] == 0)
        told.set()
        assert (await client.read_response()).status == 200
        assert up.group.members[who].find_obstacle(up.group.clock()) == "pausing"


async def test_stale_idle_hedge_connection_does_not_open_the_breaker() -> None:
    """One failure would open the breaker."""
    leave, go_on = asyncio.Event(), asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_ok_answer())

    async def warm(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_request()
        peer.reset()
        leave.set()

    async with (
        several(late, [warm, serve(build_ok_answer())], hedge="20ms", breaker={"failures": 1}) as up,
        client_of(up.gateway) as client,
    ):
        up.group.members[0].healthy = False
        assert (await exchange(client, chat())).status == 200
        up.group.members[0].healthy = True
        await client.send(chat())
        await leave.wait()
        await until(lambda: up.inflight == [1, 0])
        go_on.set()
        assert (await client.read_response()).status == 200
        assert up.group.members[1].find_obstacle(up.group.clock()) is None


HEAD_ALONE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("fails", [400, 401, 404, 500, "cut"])
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
async def test_hedge_error_waits_for_the_other_answer(fails: object, number: int) -> None:
    """Of either endpoint, and also a head whose body ends before it begins."""
    both, go_on = asyncio.Event(), asyncio.Event()

    async def bad(peer: Peer) -> None:
        await peer.read_request()
        await both.wait()
        await peer.send(build_answer(fails, b"bad") if isinstance(fails, int) else HEAD_ALONE)

    async def good(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(build_answer(200, b"good"))

    scripts = (bad, good) if number == 0 else (good, bad)
    async with several(*scripts, hedge="50ms", retry={"tries": 2}) as up, client_of(up.gateway) as client:
        await client.send(chat())
        await until(lambda: up.counts == [1, 1])
        both.set()
        await until(lambda: up.inflight[number] == 0)
        go_on.set()
        assert (await client.read_response()).payload == b"good"
        assert up.inflight == [0, 0]


async def test_hedge_returns_the_400_when_both_endpoints_answer_it() -> None:
    """The client gets the answer that came last."""
    async with several(serve(build_answer(400, b"bad")), serve(build_answer(400, b"bad")), hedge="1ms") as up:
        response = await ask(up.gateway, chat())
        assert (response.status, response.payload) == (400, b"bad")


async def test_hedged_answer_with_a_delayed_body_still_wins() -> None:
    """It waits for the first byte of its body while the other request is under way."""
    body = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD_ALONE)
        await body.wait()
        await peer.send(b"4\r\nslow\r\n0\r\n\r\n")

    async with several(silent, slow, hedge="50ms") as up, client_of(up.gateway) as client:
        await client.send(chat())
        await up.endpoints[1].wait_requests(1)
        body.set()
        assert (await client.read_response()).payload == b"slow"
        await up.endpoints[0].wait_open(0)
