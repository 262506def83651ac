"""A request that fails at one endpoint waits for another that is busy, as a first try does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from functional.several import CHAT, STORES, Several, chat, several
from functional.through import ask, breathe, client_of, error_of, post
from gateways import until

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream

BUSY = build_answer(503, b"busy")
#: Its body comes too late to be kept for the client.
PARTLY = build_answer(429, b"busy", [("Retry-After", "7")])[:-1]


class Held:
    """An endpoint with one place, which answers when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await self.go_on.wait()
            await peer.send(build_answer(200, b"fine"))


@asynccontextmanager
async def one_fails(held: Held, *, answers: bytes = BUSY, **rules: object) -> AsyncIterator[Several]:
    """Endpoint a gives this answer to each request and is asked first, b is `held`. There is a queue."""
    own: list[dict[str, object]] = [{"weight": 1000}, {"concurrent": 1}]
    facts: dict[str, object] = {"queue": {"wait": "1h"}, "breaker": {"failures": 0}, **rules}
    async with several(serve(answers), held, own=own, **facts) as up:
        yield up


@pytest.mark.parametrize("refuses", [False, True], ids=["503", "refused"])
@pytest.mark.parametrize("hedged", [False, True])
async def test_retry_waits_in_the_queue_for_a_free_endpoint(refuses: bool, hedged: bool) -> None:
    """It is sent once then, with its whole body, part of which came meanwhile; also one that must not happen twice."""
    rules: dict[str, object] = {"hedge": "1h"} if hedged else {}
    if refuses:
        rules["retry"] = {"body": 500}  # what is longer begins before it is whole
    async with (
        one_fails(held := Held(), **rules) as up,
        client_of(up.gateway) as first,
        client_of(up.gateway) as second,
        client_of(up.gateway) as third,
    ):
        if refuses:
            up.endpoints[0]._stop_listening()
        await first.send(chat())
        await up.endpoints[1].wait_requests(1)
        body = bytes(range(256)) * 1024
        whole = post(body, STORES)
        here = 1000 if refuses else len(whole)  # before it waits
        await second.send(whole[:here])
        await until(lambda: up.group.queue_length == 1)
        sending = asyncio.create_task(second.send(whole[here:]))
        await third.send(chat())
        await until(lambda: up.group.queue_length == 2)
        await breathe(20)
        assert up.inflight == [0, 1]
        held.go_on.set()
        await sending
        for client in (first, second, third):
            assert (await client.read_response()).payload == b"fine"
        assert up.endpoints[1].requests[1].raw_body == body
        assert up.counts == [0 if refuses else 3, 3] and up.inflight == [0, 0]
        assert up.group.tally.retries == {"connect" if refuses else "503": 3}


async def test_client_disconnect_during_a_queued_retry_releases_everything() -> None:
    """No place in the queue, and none at an endpoint."""
    async with one_fails(held := Held()) as up, client_of(up.gateway) as first:
        await first.send(chat())
        await up.endpoints[1].wait_requests(1)
        async with client_of(up.gateway) as second:
            await second.send(chat())
            await until(lambda: up.group.queue_length == 1)
        await until(lambda: up.group.queue_length == 0)
        held.go_on.set()
        assert (await first.read_response()).payload == b"fine"
        assert up.counts == [2, 1] and up.inflight == [0, 0]


async def test_queued_retry_timeout_relays_the_earlier_answer() -> None:
    """It came whole."""
    async with one_fails(Held(), queue={"wait": "20ms"}) as up, client_of(up.gateway) as first:
        await first.send(chat())
        await up.endpoints[1].wait_requests(1)
        response = await ask(up.gateway, chat())
        assert response.raw == BUSY and up.group.tally.refused["wait"] == 1


@pytest.mark.parametrize(
    ("answers", "status", "code", "said"),
    [(None, 502, "upstream_error", "refused"), (PARTLY, 429, "upstream_limited", "answered 429")],
    ids=["refused", "partly"],
)
async def test_queued_retry_timeout_returns_the_error_of_the_try(
    answers: bytes | None, status: int, code: str, said: str
) -> None:
    """With what it waited for, and when to ask again."""
    async with one_fails(Held(), answers=answers or BUSY, queue={"wait": "20ms"}) as up, client_of(up.gateway) as first:
        if answers is None:
            up.endpoints[0]._stop_listening()
        await first.send(chat())
        await up.endpoints[1].wait_requests(1)
        response = await ask(up.gateway, chat())
        error = error_of(response)
        assert (response.status, error["code"]) == (status, code)
        assert said in error["message"] and "within 0.02 s (queue.wait)" in error["message"]
        assert response.list_values(b"retry-after")[0] == (b"1" if answers is None else b"7")


async def test_retry_with_a_full_queue_goes_to_a_fallback() -> None:
    """The queue is full. If the busy endpoint goes out, those who wait go there, too."""
    async with FakeUpstream(serve(build_answer(200, b"rented"))) as other:
        more = [{"name": "rented", "base_url": other.base_url, "paths": ["/rented/v1/"], "api_key": "R"}]
        rules = {"queue": {"size": 1, "wait": "1h"}, "fallback": ["rented"], "api_key": "K"}
        async with (
            one_fails(Held(), more=more, **rules) as up,
            client_of(up.gateway) as first,
            client_of(up.gateway) as second,
        ):
            await first.send(chat())
            await up.endpoints[1].wait_requests(1)
            await second.send(post(b"{}", CHAT))
            await until(lambda: up.group.queue_length == 1)
            assert (await ask(up.gateway, chat())).payload == b"rented"
            up.group.apply_health_check(up.group.members[1], failing="it answered 500")
            assert (await second.read_response()).payload == b"rented"
            assert other.requests[1].raw_body == b"{}" and up.counts == [3, 1]


async def test_endpoints_that_refuse_connections_do_not_use_up_the_tries() -> None:
    """The one that works is found, however many do not."""
    own = [{"weight": 1000}] * 5
    async with several(*[serve(build_answer(200, b"fine"))] * 6, own=own, retry={"tries": 1}) as up:
        for endpoint in up.endpoints[:5]:
            endpoint._stop_listening()
        assert (await ask(up.gateway, post(b"{}", STORES))).payload == b"fine"
        assert up.group.tally.retries == {"connect": 5} and up.inflight == [0] * 6
