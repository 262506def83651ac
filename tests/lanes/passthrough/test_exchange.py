"""A passthrough exchange: how long its answer may take, and how it ends and is accounted for."""

import asyncio

import pytest
from functional.through import breathe
from lanes.assembled import assembled

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_head, build_ok_answer, serve

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n{}"
SSE = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


async def test_silent_upstream_returns_504() -> None:
    """After its time for the first byte; the client's connection goes on."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end()

    async with assembled(silent, serve(build_ok_answer()), first_byte_s=600.0) as lane, lane.client() as client:
        await client.send(GET)
        await lane.upstream.wait_requests(1)
        lane.later(599)
        await breathe(10)
        assert client.n_received == 0
        lane.later(601)
        assert (await client.read_response()).status == 504
        await lane.upstream.wait_open(0)
        await client.send(GET)
        assert (await client.read_response()).status == 200
        assert dict(lane.metrics.deadlines) == {"first_byte": 1}
        assert lane.metrics.get_upstream("up").outcomes == {"timeout": 1, "ok": 1}


async def test_interim_answers_do_not_extend_the_first_byte_timeout() -> None:
    """The client gets the interim answers, and then a 504: the limit is one for the final answer."""
    hints, go_on = build_head(103, [("Link", "</a>")]), asyncio.Event()

    async def hesitates(peer: Peer) -> None:
        await peer.read_request()
        for _ in range(2):
            await peer.send(hints)
            await go_on.wait()
        await peer.wait_end()

    async with assembled(hesitates, first_byte_s=600.0) as lane, lane.client() as client:
        await client.send(POST)
        await client.read_until(hints)
        lane.later(0.0)
        began_s = lane.listener.clock()
        go_on.set()
        await client.read_until(hints)
        for waited_s in (599.0, 601.0):
            assert client.n_received == 2 * len(hints)
            for connection in list(lane.listener.connections):
                connection.sweep(began_s + waited_s)
            await breathe(10)
        assert (await client.read_response()).status == 504
        assert lane.metrics.get_upstream("up").outcomes == {"timeout": 1}
        await lane.upstream.wait_open(0)


async def test_stalled_answer_is_cut_after_the_idle_timeout() -> None:
    """After the idle time, counted from the last byte; not before."""
    go = asyncio.Event()

    async def stops(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SSE + build_chunk(b"data: 1\n\n"))
        await go.wait()
        await peer.send(build_chunk(b"data: 2\n\n"))
        await peer.wait_end()

    async with assembled(stops, idle_s=300.0) as lane, lane.client() as client:
        await client.send(POST)
        await client.read_until(b"data: 1\n\n\r\n")
        lane.later(299)
        go.set()
        await client.read_until(b"data: 2\n\n\r\n")
        lane.later(299)
        lane.later(301)
        assert await client.read_rest() == b""
        assert dict(lane.metrics.deadlines) == {"idle": 1}
        await lane.upstream.wait_open(0)


async def test_access_log_line_has_facts_without_secrets() -> None:
    """And nothing of bodies, queries and credentials."""
    async with assembled() as lane, lane.client() as client:
        await client.send(POST.replace(b"/x ", b"/x?secret=1 "))
        await client.read_response()
    (record,) = lane.log
    facts = {
        "mode": "passthrough",
        "route": "/v1/",
        "method": b"POST",
        "path": b"/v1/x",
        "status": 200,
        "outcome": "ok",
    }
    assert facts.items() <= record.items()
    assert (record["upstream"], record["key"], record["bytes_in"], record["bytes_out"]) == ("up", "local", 2, 11)
    assert b"secret" not in repr(record).encode()


@pytest.mark.parametrize(
    ("raw", "outcome", "status"),
    [
        (build_answer(200, b"x"), "ok", 200),
        (build_answer(404, b"x"), "ok", 404),
        (build_answer(500, b"x"), "error", 500),
        (b"garbage\r\n\r\n", "invalid", 502),
        (b"", "reset", 502),
        (build_head(200, [("Content-Length", "9")]) + b"x", "truncated", 200),
        (SSE + b"zz\r\n", "invalid", 502),
    ],
)
async def test_each_exchange_outcome_is_counted_once(raw: bytes, outcome: str, status: int) -> None:
    """Once, for metrics and the log."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)
        await breathe(10)

    async with assembled(script) as lane, lane.client() as client:
        await client.send(POST)
        await client.read_some()
        async with asyncio.timeout(120):
            while not lane.log:
                await asyncio.sleep(0)
        client.close()
        await lane.until_idle()
        assert lane.metrics.get_upstream("up").outcomes == {outcome: 1}
        assert [record["status"] for record in lane.log] == [status]


async def test_event_stream_is_tracked_as_a_stream() -> None:
    """For the gauge of open streams and the histogram of their durations."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(SSE + build_chunk(b"data: 1\n\n"))
        await go.wait()
        await peer.send(b"0\r\n\r\n")
        await peer.wait_end()

    async with assembled(script) as lane, lane.client() as client:
        await client.send(POST)
        await client.read_until(b"data: 1\n\n\r\n")
        (connection,) = lane.listener.connections
        assert (
            connection.transaction is not None
            and connection.transaction.streaming
            and connection.transaction.mode == "passthrough"
        )
        go.set()
        await client.read_until(b"0\r\n\r\n")
        assert connection.transaction is None
        assert lane.metrics.route("/v1/", "passthrough").streamed.has_samples
