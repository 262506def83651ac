"""An endpoint that fails while a client is slow with its body is not ejected for it, over the wire."""

from collections.abc import Callable

import pytest
from functional.several import CHAT, chat, several
from functional.through import ask, client_of, post

from gateway.lanes.passthrough.dispatch import failover
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, build_ok_answer, serve
from gateway.testing.upstream import Script
from gateway.upstream import budget
from gateway.upstream.budget import ALWAYS

BREAKER = {"failures": 1, "open": "10s"}
LONG = post(b"x" * 100, CHAT, b"Connection: close")
SENT = len(LONG) - 50
INVITED = post(b"x" * 100, CHAT, b"Expect: 100-continue")


def gives_up(with_: bytes | None, *, behind: bytes = b"x" * 50) -> Script:
    """Reads a part of a body, and ends: with these bytes, or (None) by a reset."""

    async def script(peer: Peer) -> None:
        seen = b""
        while not seen.endswith(b"\r\n\r\n" + behind):
            seen += await peer.read_some()
        if with_ is None:
            peer.reset()
        else:
            await peer.send(with_)
            peer.close()

    return script


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets from when on a body is slow, in seconds."""
    return lambda seconds: monkeypatch.setattr(failover, "SLOW_BODY_S", seconds)


ENDS = [None, b"", *map(build_answer, (502, 503, 504, 529)), build_head(200, [("Content-Length", "10")]) + b"half"]


@pytest.mark.parametrize("ends", ENDS)
async def test_a_slow_body_ejects_no_endpoint(ends: bytes | None, slow: Callable[[float], None]) -> None:
    """However its upstream gives it up."""
    slow(0.0)
    async with several([gives_up(ends), serve(build_ok_answer())], breaker=BREAKER, retry={"tries": 1}) as up:
        async with client_of(up.gateway) as client:
            await client.send(LONG[:SENT])
            await client.wait_end()
        assert up.inflight == [0] and up.group.members[0].breaker.get_state(up.group.clock()) == "closed"
        assert (await ask(up.gateway, chat())).status == 200


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_slow_body_pauses_no_endpoint(status: int, slow: Callable[[float], None]) -> None:
    """Its upstream asks its client alone to come back later; who is whole by then pauses it for all."""
    slow(0.0)
    gives_way = build_answer(status, headers=[("Retry-After", "30")])
    fine = serve(build_answer(200, headers=[("Connection", "close")]))
    scripts = gives_up(gives_way), fine, gives_up(gives_way, behind=b"x" * 100)
    upstream = {"api_key": "k", "breaker": {"failures": 0}, "retry": {"tries": 1}}
    async with several(scripts, **upstream) as up:
        async with client_of(up.gateway) as client:
            await client.send(LONG[:SENT])
            assert (await client.read_response()).status == status
        assert (await ask(up.gateway, chat())).status == 200
        async with client_of(up.gateway) as client:
            await client.send(LONG)
            assert (await client.read_response()).status == status
        assert up.group.members[0].find_obstacle(up.group.clock()) == "pausing"


async def test_body_waiting_for_continue_does_not_open_the_breaker(slow: Callable[[float], None]) -> None:
    """Its client may never send it."""
    slow(0.0)
    async with several(
        [gives_up(b"", behind=b""), serve(build_ok_answer())], breaker=BREAKER, retry={"tries": 1}
    ) as up:
        async with client_of(up.gateway) as client:
            await client.send(INVITED[:-100])
            assert (await client.read_response()).status == 502
        assert (await ask(up.gateway, chat())).status == 200


@pytest.mark.parametrize("ends", ENDS)
async def test_an_endpoint_that_fails_at_once_is_ejected(ends: bytes | None, slow: Callable[[float], None]) -> None:
    """Long bodies are rarely whole by then."""
    slow(3600.0)
    async with several([gives_up(ends), serve(build_ok_answer())], breaker=BREAKER, retry={"tries": 1}) as up:
        async with client_of(up.gateway) as client:
            await client.send(LONG[:SENT])
            await client.wait_end()
        assert up.inflight == [0] and up.group.members[0].breaker.get_state(up.group.clock()) == "open"


@pytest.mark.parametrize("ends", ENDS)
async def test_late_failure_of_a_whole_request_ejects_the_endpoint(
    ends: bytes | None, slow: Callable[[float], None]
) -> None:
    """It was all there, so the endpoint had nothing to wait for."""
    slow(0.0)
    script = gives_up(ends, behind=b"x" * 100)
    async with several([script, serve(build_ok_answer())], breaker=BREAKER, retry={"tries": 1}) as up:
        async with client_of(up.gateway) as client:
            await client.send(LONG)
            await client.wait_end()
        assert up.inflight == [0] and up.group.members[0].breaker.get_state(up.group.clock()) == "open"


def fails(with_: bytes) -> Script:
    """Gives a body up that is slow to come, by a reset, and answers a whole request with this."""

    async def script(peer: Peer) -> None:
        begun = await peer.read_head()
        if b"Content-Length: 100\r\n" in begun:
            await peer.read_exactly(50)
            peer.reset()
        else:
            await peer.finish_request(begun)
            await peer.send(with_)
            peer.close()

    return script


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets nothing of the retry budget come back."""
    monkeypatch.setattr(budget, "HALVED_EVERY_S", 3600.0)


@pytest.mark.usefixtures("steady")
async def test_slow_bodies_do_not_use_up_other_requests_retry_budget(slow: Callable[[float], None]) -> None:
    """They are sent again within a budget of their own, which is no larger."""
    slow(0.0)
    scripts = [fails(build_answer(503))] * 40, [fails(build_answer(200))] * 40
    async with several(*scripts, breaker={"failures": 0}, retry={"tries": 2}) as up:
        for _ in range(ALWAYS + 3):
            async with client_of(up.gateway) as client:
                await client.send(LONG[:SENT])
                await client.wait_end()
        tally = up.group.tally
        assert (tally.retries, tally.refused) == ({"reset": ALWAYS}, {"budget": 3})
        assert [(await ask(up.gateway, chat())).status for _ in range(4)] == [200] * 4
        assert tally.retries["503"] and tally.refused == {"budget": 3}


@pytest.mark.usefixtures("steady")
async def test_slow_bodies_keep_a_retry_budget_of_their_own(slow: Callable[[float], None]) -> None:
    """An endpoint may go while they come."""
    slow(0.0)
    scripts = [fails(build_answer(503))] * 99, [fails(build_answer(503))] * 99
    async with several(*scripts, breaker={"failures": 0}, retry={"tries": 2}) as up:
        for _ in range(ALWAYS + 3):
            assert (await ask(up.gateway, chat())).status == 503
        assert up.group.tally.refused["budget"]
        async with client_of(up.gateway) as client:
            await client.send(LONG[:SENT])
            await client.wait_end()
        assert up.group.tally.retries["reset"] == 1
