"""Pooled upstream connections: stale ones, stray bytes, dead or late or unknown upstreams, clients that cancel."""

import asyncio
import contextlib
import random
import signal

import pytest
from functional.through import HOSTS, PATIENT, ask, client_of, error_of, get, post, through
from gateways import Stopwatch, config, exchange, scrape, until_sample
from measuring import LoopTime
from unanswered_ports import refusing_port, silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import PEER_LEFT, Peer, connect
from gateway.testing.scripts import (
    build_answer,
    build_chunk,
    build_event_stream_answer,
    build_head,
    build_ok_answer,
    serve,
)
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

TRIES, PAIRS = 1000, 10


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_upstream_idle_close_fails_no_client_request(method: bytes) -> None:
    """1,000 requests, each up to 5 ms after the close: no GET fails; of POSTs one may, none is sent twice."""
    rng = random.Random(7)
    statuses: list[int] = []

    async def requests(number: int, upstream: FakeUpstream) -> None:
        async with client_of(gateway) as client:
            for n in range(TRIES // PAIRS):
                target = b"/v1/%d/%d" % (number, n)
                response = await exchange(client, get(target) if method == b"GET" else post(b"{}", target))
                statuses.append(response.status)
                upstream.connections[-1].close()
                if rng.random() < 0.8:
                    await asyncio.sleep(rng.uniform(0, 0.005))  # the moment is the case

    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(FakeUpstream()) for _ in range(PAIRS)]
        entries = [
            {"name": f"u{i}", "base_url": upstream.base_url, "paths": [f"/v1/{i}/"], "timeouts": PATIENT}
            for i, upstream in enumerate(upstreams)
        ]
        gateway = await stack.enter_async_context(LocalGateway({"upstreams": entries, "allowed_hosts": HOSTS}))
        await asyncio.gather(*(requests(number, upstream) for number, upstream in enumerate(upstreams)))
        targets = [request.target for upstream in upstreams for request in upstream.requests]
    failures = [status for status in statuses if status != 200]
    assert len(statuses) == TRIES
    if method == b"GET":
        assert not failures
    else:
        assert len(failures) <= TRIES // 1000 and set(failures) <= {502}
        assert len(set(targets)) == len(targets), "no POST was sent twice"


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param(build_answer(200, b"EVIL"), id="whole-answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="half-a-head"),
        pytest.param(b"H", id="one-byte"),
        pytest.param(b"\r\n", id="empty-line"),
        pytest.param(b"0\r\n\r\n", id="last-chunk"),
        pytest.param(build_head(408, [("Connection", "close"), ("Content-Length", "0")]), id="request-timeout"),
    ],
)
@pytest.mark.parametrize("request_", [get(), post(b"{}")], ids=["GET", "POST"])
async def test_unsolicited_bytes_close_the_idle_upstream_connection(stray: bytes, request_: bytes) -> None:
    """The next request gets its own answer, on another connection; the poisoned one is closed."""

    async def poisoned(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, b"AAAA"))
        await asyncio.wait_for(answered.wait(), 120)
        await peer.send(stray)
        await peer.wait_end(timeout_s=120)
        ended.set()

    answered, ended = asyncio.Event(), asyncio.Event()
    async with through(poisoned, serve(build_answer(200, b"GOOD"))) as (gateway, upstream):
        assert (await ask(gateway, request_)).payload == b"AAAA"
        answered.set()
        await asyncio.wait_for(ended.wait(), 120)
        assert (await ask(gateway, request_)).payload == b"GOOD"
        assert len(upstream.connections) == 2


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_stray_answer_is_not_delivered_to_a_concurrent_request() -> None:
    """The gateway stands still while first the request and then the stray arrive: it sees both at once."""
    poison, sent = asyncio.Event(), asyncio.Event()

    async def poisoned(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, b"GOOD"))
        await poison.wait()
        poison.clear()
        await peer.send(build_answer(200, b"EVIL"))
        sent.set()
        await peer.wait_end(timeout_s=None)

    async with (
        FakeUpstream(poisoned) as upstream,
        GatewayProcess(config(upstream.base_url)) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        assert (await exchange(client)).payload == b"GOOD"
        for request_ in (get(), post(b"{}")):
            gateway.signal(signal.SIGSTOP)
            await client.send(request_)
            poison.set()
            await sent.wait()
            sent.clear()
            gateway.signal(signal.SIGCONT)
            assert (await client.read_response()).payload == b"GOOD"


async def test_requests_one_after_the_other_share_one_connection() -> None:
    """Whatever client they come from, and however the answer is framed."""
    script = serve(
        lambda request: build_event_stream_answer([]) if request.target.endswith(b"/stream") else build_ok_answer()
    )
    async with through(script) as (gateway, upstream):
        for number in range(20):
            async with client_of(gateway) as client:
                await exchange(client, get(b"/v1/stream" if number % 3 == 0 else b"/v1/x"))
                await exchange(client, post(b"{}"))
        assert len(upstream.connections) == 1 and len(upstream.requests) == 40


async def test_upstream_keep_alive_timeout_is_respected() -> None:
    """`Keep-Alive: timeout=1`: the connection is closed before the upstream would."""
    reply = build_answer(200, b"ok", [("Keep-Alive", "timeout=1, max=100")])
    async with through(serve(reply)) as (gateway, upstream):
        await ask(gateway, get())
        idle = LoopTime()
        await upstream.wait_open(0)
        idle.within(1)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(build_answer(200, b"ok", [("Connection", "close")]), id="says-close"),
        pytest.param(build_answer(200, b"ok").replace(b"HTTP/1.1", b"HTTP/1.0"), id="is-1.0"),
        pytest.param(build_answer(200, b"ok") + b"more", id="sends-more"),
    ],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(reply: bytes) -> None:
    """The answer is delivered, and the next request has a connection of its own."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(reply)
        await peer.wait_end()

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        for number in range(1, 4):
            assert (await exchange(client)).payload == b"ok"
            assert len(upstream.connections) == number


async def test_a_connection_with_an_unfinished_request_is_not_used_again() -> None:
    """An early answer goes to the client at once; the rest of its request goes nowhere."""

    async def early(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(build_answer(413, b"too large"))
        await peer.wait_end()

    async with through(early, serve(build_ok_answer())) as (gateway, upstream):
        async with client_of(gateway) as client:
            await client.send(post(b"x" * 1000)[:-1])
            response = await client.read_response()
            assert response.status == 413 and response.payload == b"too large"
            assert response.list_values(b"connection") == [b"close"]
            assert await client.wait_end() == "eof"
        assert (await ask(gateway, get())).status == 200
        assert len(upstream.connections) == 2


class Falls:
    """Upstreams that end the connection at a certain point, and count what they saw."""

    @staticmethod
    async def at_once(peer: Peer) -> None:
        await peer.read_request()
        peer.reset()

    @staticmethod
    async def within_the_head(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-")

    @staticmethod
    async def without_reading(peer: Peer) -> None:
        await peer.read_exactly(1)

    @staticmethod
    async def after_an_answer(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_request(timeout_s=None)


@pytest.mark.parametrize("fall", [Falls.at_once, Falls.within_the_head, Falls.without_reading])
@pytest.mark.parametrize("request_", [get(), post(b"{}")], ids=["GET", "POST"])
async def test_a_fresh_connection_that_fails_is_not_tried_again(fall: object, request_: bytes) -> None:
    """One connection, one 502 in our shape; the client's connection goes on."""
    async with through(fall, serve(build_ok_answer())) as (gateway, upstream), client_of(gateway) as client:
        response = await exchange(client, request_)
        assert response.status == 502 and error_of(response)["code"] == "upstream_error"
        assert len(upstream.connections) == 1
        assert (await exchange(client, request_)).status == 200


async def test_get_on_a_stale_connection_is_retried_once() -> None:
    """Its reuse was the gateway's choice, so is the second try; a POST is not sent again, whatever happened."""
    async with (
        through(Falls.after_an_answer, serve(build_ok_answer())) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        await exchange(client)
        assert (await exchange(client)).status == 200
        assert len(upstream.requests) == 3 and len(upstream.connections) == 2
        counts = await scrape(gateway)
        assert counts['gateway_upstream_retries_total{reason="stale",upstream="up"}'] == 1
    async with (
        through(Falls.after_an_answer, serve(build_ok_answer())) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        await exchange(client)
        assert (await exchange(client, post(b"{}"))).status == 502
        assert len(upstream.requests) == 2 and len(upstream.connections) == 1


async def test_failed_retry_on_a_fresh_connection_returns_502() -> None:
    """If the fresh connection fails too, that is the answer."""
    async with through(Falls.after_an_answer, Falls.at_once) as (gateway, upstream), client_of(gateway) as client:
        await exchange(client)
        assert (await exchange(client)).status == 502
        assert len(upstream.connections) == 2


async def test_no_request_is_sent_again_once_the_answer_began() -> None:
    """Half a head is a beginning."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await peer.read_request(timeout_s=None)
        await peer.send(b"HTTP/1.1 200 OK\r\n")

    async with through(script, serve(build_ok_answer())) as (gateway, upstream), client_of(gateway) as client:
        await exchange(client)
        assert (await exchange(client)).status == 502
        assert len(upstream.requests) == 2


async def test_slow_upstream_receives_the_request_once() -> None:
    """Just within its limit: one request, one answer, no second try."""

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await asyncio.sleep(0.4)  # an upstream that takes its time is the case
        await peer.send(build_ok_answer())

    timeouts = {"timeouts": {"first_byte": 2}}
    async with through(slow, upstream=timeouts) as (gateway, upstream):
        assert (await ask(gateway, post(b"{}"))).status == 200
        assert len(upstream.requests) == 1


async def test_recovered_upstream_is_used_immediately() -> None:
    """Meanwhile each request is told at once; no restart, no waiting time."""
    port = free_port()
    up = 'gateway_upstream_up{upstream="up"}'
    async with through(upstream={"base_url": f"http://127.0.0.1:{port}"}) as (gateway, _), client_of(gateway) as client:
        for _ in range(2):
            for request_ in (get(), post(b"{}")):
                asked = LoopTime()
                response = await exchange(client, request_)
                asked.within(0.1)
                assert response.status == 502
                assert "refused" in error_of(response)["message"]
            assert (await scrape(gateway))[up] == 0
            async with FakeUpstream(port=port):
                assert (await exchange(client, post(b"{}"))).status == 200
                assert (await scrape(gateway))[up] == 1


async def test_upstream_that_dies_under_load_is_used_again_on_recovery() -> None:
    """Requests under way fail visibly, those afterwards too, and then all is well."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with FakeUpstream(silent) as upstream:
        port = upstream.port
        gateway = LocalGateway({"upstreams": [{"name": "up", "base_url": upstream.base_url}], "allowed_hosts": HOSTS})
        await gateway.__aenter__()
        waiting = [asyncio.create_task(ask(gateway, get())) for _ in range(50)]
        await upstream.wait_requests(50)
    assert {response.status for response in await asyncio.gather(*waiting)} == {502}
    async with FakeUpstream(port=port):
        again = await asyncio.gather(*(ask(gateway, get()) for _ in range(50)))
        assert {response.status for response in again} == {200}
        assert (await scrape(gateway))['gateway_upstream_pool_connections{state="busy",upstream="up"}'] == 0
    await gateway.__aexit__(None, None, None)


async def test_refused_upstream_connection_is_reported_without_its_address() -> None:
    """502, without the address."""
    with refusing_port() as port:
        async with through(upstream={"base_url": f"http://127.0.0.1:{port}"}) as (gateway, _):
            response = await ask(gateway, post(b"{}"))
    error = error_of(response)
    assert (response.status, error["code"], error["type"]) == (502, "upstream_error", "server_error")
    assert "'up'" in error["message"] and str(port) not in error["message"]


async def test_unknown_upstream_host_is_reported_as_502() -> None:
    """502, and what could not be found is not a secret: its name in the configuration is told."""
    async with through(upstream={"base_url": "http://no-such-host.invalid"}) as (gateway, _):
        response = await ask(gateway, get(), timeout_s=120)
    assert response.status == 502 and error_of(response)["code"] == "upstream_error"


async def test_unanswered_connect_returns_504_after_the_timeout() -> None:
    """504 after `timeouts.connect`, and nothing before it."""
    with silent_port() as port:
        black_hole = {"base_url": f"http://127.0.0.1:{port}", "timeouts": {"connect": 0.3}}
        async with through(upstream=black_hole) as (gateway, _), client_of(gateway) as client:
            for request_ in (get(), post(b"{}")):
                waited = Stopwatch()
                response = await exchange(client, request_)
                assert waited.s >= 0.3
                assert response.status == 504 and error_of(response)["code"] == "upstream_timeout"


@pytest.mark.parametrize("leaving", ["close", "reset"])
async def test_randomly_cancelled_clients_leave_no_busy_connections(leaving: str) -> None:
    """300 clients: no upstream connection is busy, none is open but the idle ones, and the next request is served."""
    rng = random.Random(11)

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await asyncio.sleep(rng.uniform(0, 0.01))  # here and below, the moments are the case
            await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(b"a"))
            await asyncio.sleep(rng.uniform(0, 0.01))
            await peer.send(build_chunk(b"b") + b"0\r\n\r\n")

    async def cancel(number: int) -> None:
        await asyncio.sleep(rng.uniform(0, 0.2))
        message = post(b"%d" % number * rng.randrange(1, 2000))
        with contextlib.suppress(*PEER_LEFT):
            async with client_of(gateway) as client:
                await client.send(message[: rng.randrange(1, len(message))] if rng.random() < 0.3 else message)
                await asyncio.sleep(rng.uniform(0, 0.025))
                getattr(client, leaving)()

    async with through(script) as (gateway, upstream):
        await asyncio.gather(*(cancel(number) for number in range(300)))
        await until_sample(gateway, "gateway_client_connections", 1)
        counts = await scrape(gateway)
        idle = int(counts['gateway_upstream_pool_connections{state="idle",upstream="up"}'])
        assert counts['gateway_upstream_pool_connections{state="busy",upstream="up"}'] == 0
        assert counts['gateway_inflight_requests{mode="passthrough"}'] == 0
        await upstream.wait_open(idle)
        assert (await ask(gateway, get())).payload == b"ab"
