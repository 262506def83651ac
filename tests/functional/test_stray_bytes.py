"""An answer goes to whoever asked, and bytes that nobody asked for go to nobody."""

import asyncio

import pytest
from certificates import Certificates

from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, serve
from gateway.testing.upstream import Script

from .through import FINE, breathe, client_of, error_of, get, post, says, through


@pytest.mark.parametrize(
    ("raw", "passed"),
    [
        (build_answer(200, b"hi") + b"EXTRA", build_answer(200, b"hi")),
        (build_answer(200, b"") + build_answer(200, b"stray"), build_answer(200, b"")),
        (build_answer(200, b"hi", chunked=True) + b"\r\n", build_answer(200, b"hi", chunked=True)),
        (build_head(204) + b"body", build_head(204)),
        (build_head(304, [("Content-Length", "4")]) + b"body", build_head(304, [("Content-Length", "4")])),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
async def test_bytes_after_an_upstream_answer_are_discarded(raw: bytes, passed: bytes, apart: bool) -> None:
    """The client gets its answer; the connection with something left over is closed."""
    parts = (passed, raw.removeprefix(passed)) if apart else (raw,)
    async with through(says(*parts), FINE) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        assert (await client.read_response()).raw == passed
        await breathe(20)
        await client.send(get())
        assert (await client.read_response()).payload == b"fine"
        assert len(upstream.connections) == 2


@pytest.mark.parametrize(
    "stray",
    [
        build_answer(200, b"stray"),
        b"HTTP/1.1 200 OK\r\n",
        b"x",
        b"\r\n",
        b"HTTP/1.1 408 Timeout\r\nConnection: close\r\n\r\n",
    ],
)
async def test_unsolicited_upstream_bytes_reach_no_client(stray: bytes) -> None:
    """Bytes on an idle pooled connection end it; the next request has its own answer from another one."""
    go, gone = asyncio.Event(), asyncio.Event()

    async def poisoned(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, b"first"))
        await go.wait()
        await peer.send(stray)
        await peer.wait_end()
        gone.set()

    async with through(poisoned, FINE) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        assert (await client.read_response()).payload == b"first"
        go.set()
        await asyncio.wait_for(gone.wait(), 120)
        for request in (get(), post(b"{}")):
            await client.send(request)
            assert (await client.read_response()).payload == b"fine"
        assert len(upstream.connections) == 2


async def test_answers_never_go_to_another_client() -> None:
    """Many clients at once over few upstream connections, some of which leave early: each gets its own."""

    async def one(gateway_client: Peer, number: int) -> None:
        for turn in range(20):
            name = b"/v1/%d-%d" % (number, turn)
            await gateway_client.send(post(b"x" * (number * 37 % 5000), name))
            assert (await gateway_client.read_response()).payload.startswith(name + b" ")

    async with through(
        serve(lambda r: build_answer(200, r.target + b" " + r.payload, chunked=len(r.payload) % 2 == 0))
    ) as (
        gateway,
        _,
    ):
        clients = [await client_of(gateway) for _ in range(40)]
        leavers = [await client_of(gateway) for _ in range(20)]
        for leaver in leavers:
            await leaver.send(post(b"y" * 3000, b"/v1/leaver"))
        tasks = [asyncio.create_task(one(client, i)) for i, client in enumerate(clients)]
        await breathe()
        for leaver in leavers:
            leaver.reset()
        await asyncio.gather(*tasks)
        for client in clients:
            client.close()


async def test_stray_answers_never_reach_a_client() -> None:
    """Hundreds of upstream connections that each say too much, sooner or later: every client has its own answer."""

    def chatty(number: int) -> Script:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.read_request(timeout_s=None)
                stray = build_answer(200, b"stray " + request.target)
                if number % 2:
                    await peer.send(build_answer(200, request.target) + stray)
                else:
                    await peer.send(build_answer(200, request.target))
                    await breathe(number % 7)  # it is idle by then, or about to be
                    await peer.send(stray[: 1 + number % len(stray)])

        return script

    async with through(*map(chatty, range(301))) as (gateway, upstream), client_of(gateway) as client:
        for turn in range(300):
            target = b"/v1/%d" % turn
            await client.send(get(target) if turn % 3 else post(b"{}", target))
            assert (await client.read_response()).payload == target
            await upstream.wait_open(0)
        assert len(upstream.connections) == 300


async def speaks_first(peer: Peer) -> None:
    await peer.send(b"220 mail.example ESMTP\r\n")
    await peer.wait_end()


async def hangs_up(peer: Peer) -> None:
    peer.close()


async def resets(peer: Peer) -> None:
    peer.reset()


IMPOLITE = {"greets": speaks_first, "hangs up": hangs_up, "resets": resets}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("script", IMPOLITE.values(), ids=IMPOLITE)
async def test_upstream_that_speaks_before_the_request_returns_502(
    script: Script, tls: bool, certificates: Certificates
) -> None:
    """It speaks or ends as soon as it is connected: 502 at once, never its words, never silence."""
    context = certificates.server_context() if tls else None
    upstream_settings = {"tls": {"ca_file": str(certificates.ca)}} if tls else {}
    async with (
        through(script, upstream=upstream_settings, tls=context) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        for request in (get(), post(b"{}"), post(bytes(200_000))):
            await client.send(request)
            response = await client.read_response(timeout_s=120)
            assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
            if response.list_values(b"connection"):
                break
        await upstream.wait_open(0)


async def test_excess_body_of_bodiless_answer_never_reaches_the_next_request() -> None:
    """The body of a HEAD answer, or of a 204 in chunks: excess, whoever may be next."""
    bodies = {
        b"HEAD": build_answer(200, b"a body nobody expects"),
        b"GET": build_head(204, [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n0\r\n\r\n",
        b"PUT": build_head(304, [("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n",
    }

    def misled(request: Request) -> bytes:
        return bodies.get(request.method, build_answer(200, b"next"))

    async def script(peer: Peer) -> None:
        while True:
            await peer.send(misled(await peer.read_request(timeout_s=None)))

    async with through(script) as (gateway, _), client_of(gateway) as client:
        for method, status in (("HEAD", 200), ("GET", 204), ("PUT", 304)):
            await client.send(get(method=method.encode()))
            response = await client.read_response(method=method)
            assert (response.status, response.raw_body) == (status, b"")
            assert status != 204 or not response.list_values(b"transfer-encoding")
            await client.send(post(b"{}"))
            assert (await client.read_response()).payload == b"next"
