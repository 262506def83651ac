"""Too many connections, files, requests, series and log lines."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from functional.through import ask, client_of, error_of, get, post, through
from gateways import config, exchange, fetch, scrape, until, until_read, until_sample
from measuring import Effort, LoopTime

from gateway.testing.raw_connection import PEER_LEFT, Peer, connect
from gateway.testing.scripts import build_answer, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

from .bounded import UVLOOP, deadlines


async def test_excess_connections_get_503() -> None:
    """The excess gets 503 with Retry-After in 100 ms; those that are in go on; a free place is taken again."""
    limits = {"connections": 5}
    async with through(limits=limits) as (gateway, upstream), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(gateway)) for _ in range(5)]
        for client in clients:
            await exchange(client)
        for _ in range(20):
            async with client_of(gateway) as excess:
                asked = LoopTime()
                await excess.send(get())
                response = await excess.read_response()
                asked.within(0.1)
                assert response.status == 503 and error_of(response)["code"] == "overloaded"
                assert response.list_values(b"retry-after") == [b"1"] and response.list_values(b"connection") == [
                    b"close"
                ]
                assert await excess.wait_end() == "eof"
        for client in clients:
            assert (await exchange(client)).status == 200
        assert len(upstream.requests) == 10
        clients[0].close()
        await until_read(lambda: ask(gateway, get()), lambda response: response.status == 200)


async def test_file_descriptor_shortage_refuses_new_clients_first() -> None:
    """Those who are in get their answers, all at once; the excess gets 503, is counted, and logged in one line."""
    command = ("prlimit", "--nofile=200:200", sys.executable, "-m", "gateway")
    finish = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request(timeout_s=None)
        await finish.wait()
        await peer.send(build_ok_answer())

    async with (
        FakeUpstream(script) as upstream,
        GatewayProcess(config(upstream.base_url), command=command) as gateway,
        contextlib.AsyncExitStack() as s,
    ):
        clients = [await s.enter_async_context(connect(gateway.host, gateway.port)) for _ in range(250)]
        for client in clients:
            with contextlib.suppress(*PEER_LEFT):
                await client.send(get())
        finish.set()
        statuses = []
        for client in clients:
            with contextlib.suppress(*PEER_LEFT):
                statuses.append((await client.read_response()).status)
        accepted = statuses.count(200)
        assert set(statuses) == {200, 503} and 50 < accepted < 100
        for client in clients:
            client.close()
        await until_sample(gateway, "gateway_client_connections", 1)
        assert (await scrape(gateway))["gateway_client_connections_refused_total"] == 250 - accepted
        assert gateway.read_stderr().count("clients are refused") == 1


async def test_excess_concurrent_requests_get_503() -> None:
    """Ten times what may be under way: the excess gets 503 while the accepted ones still wait, which then finish."""
    finish = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await finish.wait()
            await peer.send(build_ok_answer())

    async def one() -> int:
        async with client_of(gateway) as client:
            response = await exchange(client, post(b"{}"))
            if response.status == 503:
                assert error_of(response)["code"] == "overloaded" and response.list_values(b"retry-after") == [b"1"]
            return response.status

    async with through(script, limits={"concurrent": 5}) as (gateway, upstream):
        asked = LoopTime()
        tasks = [asyncio.create_task(one()) for _ in range(50)]
        await until(lambda: sum(task.done() for task in tasks) == 45 and len(upstream.requests) == 5)
        asked.within(0.5)
        finish.set()
        statuses = [await task for task in tasks]
        assert sorted(statuses) == 5 * [200] + 45 * [503]
        assert (await ask(gateway, post(b"{}"))).status == 200


async def test_own_pages_answer_when_the_gateway_is_full() -> None:
    """A probe or a scrape is not a request too many: it would be the end of the process, or of seeing why."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with through(silent, limits={"concurrent": 1}) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        await upstream.wait_requests(1)
        assert (await ask(gateway, get())).status == 503
        for page in (b"/health/live", b"/health/ready", b"/metrics"):
            assert (await fetch(gateway, page)).status == 200


async def test_overload_refusal_keeps_the_client_connection() -> None:
    """A full gateway refuses one request, not the client."""
    finish = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await finish.wait()
        await peer.send(build_ok_answer())

    async with (
        through(script, limits={"concurrent": 1}) as (gateway, upstream),
        client_of(gateway) as first,
        client_of(gateway) as second,
    ):
        await first.send(get())
        await upstream.wait_requests(1)
        for _ in range(3):
            assert (await exchange(second, post(b"{}"))).status == 503
        finish.set()
        await first.read_response()
        assert (await exchange(second)).status == 200


@UVLOOP
async def test_slow_request_heads_do_not_delay_other_clients() -> None:
    """300 of them, and a healthy client whose answers come as if they were not there (`make soak`: 1,000, and p99)."""
    async with through(limits={"head_timeout": 4}) as (gateway, _), contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(client_of(gateway)) for _ in range(300)]
        await asyncio.gather(*(client.send(get()[:20]) for client in slow))
        healthy = await stack.enter_async_context(client_of(gateway))
        ended, costs_s = asyncio.gather(*(client.wait_end() for client in slow)), []
        while not ended.done():
            effort = Effort()
            assert (await exchange(healthy)).status == 200
            costs_s.append(effort.cpu_s)
            await asyncio.sleep(0.01)  # the rate of the healthy client
        assert min(costs_s) < 0.05  # what they cost the others, each answer of theirs would show
        assert sum((await deadlines(gateway)).values()) == 300  # one that got to write nothing is a `connect`


@UVLOOP
async def test_client_input_does_not_multiply_metric_series() -> None:
    """Paths, methods, models, keys and status codes are the clients' and upstreams' choice; labels are not."""
    script = serve(lambda request: build_answer(int(request.target.rpartition(b"/")[2]), b""))
    async with through(script) as (gateway, _), client_of(gateway) as client:
        for n in range(200, 600):
            await exchange(client, get(b"/v1/%d" % n, b"Authorization: Bearer k%d" % n))
        for n in range(400):
            body = b'{"model": "m%d"}' % n
            await exchange(client, post(body, b"/v1/%d/200" % n, method=b"M%d" % n))
            await exchange(client, get(b"/nowhere/%d" % n))
        page = await fetch(gateway, b"/metrics")
    assert len([line for line in page.payload.splitlines() if not line.startswith(b"#")]) < 500
    assert len(page.payload) < 200_000


@UVLOOP
async def test_many_pipelined_requests_leave_nothing_in_flight() -> None:
    """2,000 of them, pipelined: as many answers, one upstream connection, nothing under way at the end."""
    async with through() as (gateway, upstream), client_of(gateway, keep_bytes=0) as client:
        for _ in range(20):
            await client.send(get() * 50 + post(b"{}") * 50)
            for _ in range(100):
                assert (await client.read_response()).status == 200
        counts = await scrape(gateway)
        assert len(upstream.requests) == 2000 and len(upstream.connections) == 1
        assert counts['gateway_inflight_requests{mode="passthrough"}'] == 0


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_unread_log_drops_and_counts_lines_without_blocking_requests(tmp_path: Path) -> None:
    """Requests go on; lines are dropped, and counted to the last one; the end does not wait for the reader."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    command = ("/bin/sh", "-c", f'exec "$@" 2>{pipe}', "sh", sys.executable, "-m", "gateway")
    total, log = 11_000, bytearray()
    text = config(None, logging={"access": True, "format": "json"})
    async with (
        GatewayProcess(text, command=command) as gateway,
        connect(gateway.host, gateway.port, keep_bytes=0) as client,
    ):
        await answered(client, total)
        dropped = (await scrape(gateway))["gateway_log_lines_dropped_total"]
        assert dropped > 0
        await until(lambda: log.extend(drained(reader)) or log.count(b'"status":404') + dropped >= total)
        assert log.count(b'"status":404') + dropped == total
        await answered(client, 1000)
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
    os.close(reader)


async def answered(client: Peer, number: int) -> None:
    """So many requests without a route, pipelined, with their answers."""
    message = get(b"/nowhere") * 100
    for _ in range(number // 100):
        await client.send(message)
        for _ in range(100):
            assert (await client.read_response()).status == 404


def drained(reader: int) -> bytes:
    """What the pipe holds now."""
    with contextlib.suppress(BlockingIOError):
        return os.read(reader, 1 << 20)
    return b""
