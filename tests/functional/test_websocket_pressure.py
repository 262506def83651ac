"""Sides that do not read, time, and the accounts of conversations over WebSockets."""

import asyncio

import pytest
from aiohttp import WSCloseCode, web
from gateways import scrape, until, until_sample, until_still

from gateway.http.client_frames import FRAMES_AT_ONCE, SMALL_MOST, ClientFrames
from gateway.lanes.websocket import PageSocket
from gateway.testing.raw_connection import PATIENCE_S

from .talking import (
    BINARY,
    PING,
    PONG,
    TEXT,
    close_frame,
    closed_with,
    frame,
    heard,
    joined,
    talking,
)
from .through import sweeps
from .websocket_pages import LIVE, Deaf, Flood, Page, stands_still

WEBSOCKETS = 'gateway_inflight_requests{mode="websocket"}'


# Pressure and time.


async def test_websocket_page_that_does_not_read_applies_backpressure() -> None:
    """Little is kept; then everything arrives."""
    page = Deaf()
    message = frame(BINARY, bytes(100_000))
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)

        async def send() -> None:
            for _ in range(400):
                await client.send(message, timeout_s=None)

        sending = asyncio.create_task(send())
        await until_still(lambda: client.n_sent)
        assert client.n_sent < 30_000_000
        page.told.set()
        await sending
        await until(lambda: page.moved == 400)
        await client.send(close_frame(1000))
        assert await closed_with(client) == WSCloseCode.OK


async def test_websocket_client_that_does_not_read_applies_backpressure() -> None:
    """`send` waits; then everything arrives."""

    class Long(Page):
        async def talk(self, talk: web.WebSocketResponse) -> None:
            for number in range(640):
                await talk.send_bytes(bytes([number % 256]) * 50_000)
                self.moved += 50_000

    page = Long()
    async with talking(page.answer) as gateway, gateway.client(rcvbuf=8192) as client:
        await joined(client)
        await stands_still(page)
        assert page.moved < 20_000_000
        for number in range(640):
            assert await heard(client) == (BINARY, bytes([number % 256]) * 50_000)
        assert await closed_with(client) == WSCloseCode.OK


SHORT = {"limits": {"head_timeout": "0.2s", "body_idle": "0.2s", "write": "0.2s", "keepalive": "0.2s"}}


async def test_idle_websocket_with_answered_heartbeats_stays_open() -> None:
    """No deadline of requests touches one whose heartbeats are answered."""
    async with talking(Page(heartbeat_s=0.6).answer, config=SHORT) as gateway, gateway.client() as client:
        await joined(client)
        for _ in range(4):
            opcode, payload = await heard(client)
            assert opcode == PING
            await client.send(frame(PONG, payload))
        assert not gateway.metrics.deadlines


async def test_websocket_client_without_heartbeat_replies_is_disconnected() -> None:
    """As one that lost its network."""
    page = Page(heartbeat_s=0.2)
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        assert await heard(client) == (PING, b"")
        assert await client.wait_end() == "eof"
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        client.close()
        await gateway.until_empty()


async def test_unread_websocket_client_is_exempt_from_heartbeats() -> None:
    """The client waits behind a long turn; its next message is read after that."""

    class Slow(Page):
        async def talk(self, talk: web.WebSocketResponse) -> None:
            assert isinstance(talk, PageSocket)
            async for message in talk:
                with talk.answer_oldest_message():
                    await goes_on.wait()
                    await talk.send_str(message.data)

    goes_on = asyncio.Event()
    page = Slow(heartbeat_s=0.2, frames=ClientFrames(limit_bytes=1000, most=1))
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"one") + frame(TEXT, b"two"))
        await until(lambda: gateway.listener.paused)
        swept = sweeps(gateway.listener)
        await until(lambda: sweeps(gateway.listener) > swept + 3)  # each is longer than a heartbeat
        goes_on.set()
        assert await heard(client) == (TEXT, b"one")
        assert await heard(client) == (TEXT, b"two")
        await client.send(close_frame(1000))
        assert await closed_with(client) == WSCloseCode.OK


async def test_websocket_client_that_never_reads_hits_write_timeout() -> None:
    """After the time for writing, as in any other turn."""
    page = Flood()
    async with (
        talking(page.answer, config={"limits": {"write": "1s"}}) as gateway,
        gateway.client(rcvbuf=4096) as client,
    ):
        await joined(client)
        await asyncio.wait_for(page.ended.wait(), 120)
        assert dict(gateway.metrics.deadlines) == {"write": 1}
        await gateway.until_empty()


# Floods of frames.


@pytest.mark.parametrize("page_type", [Page, Deaf])
@pytest.mark.parametrize("small", [frame(PING), frame(0, fin=False)], ids=["pings", "pieces"])
async def test_a_flood_of_small_frames_is_refused(
    page_type: type[Page], small: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """With the code that says why, and a line in the log, whether its page reads or not."""
    page = page_type()
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"", fin=False) + small * (2 * SMALL_MOST), timeout_s=None)
        assert await closed_with(client) == WSCloseCode.POLICY_VIOLATION
        if isinstance(page, Deaf):
            page.told.set()
        assert await client.wait_end() == "eof"
        client.close()
        await gateway.until_empty()
        assert caplog.text.count("too many small WebSocket frames to /context/talk from 127.0.0.1") == 1


async def test_delayed_ping_burst_is_answered_in_full() -> None:
    """The pings of an hour are answered, each."""
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(PING) * 3600, timeout_s=None)
        for _ in range(3600):
            assert await heard(client) == (PONG, b"")


async def test_websocket_frame_burst_yields_to_other_event_loop_tasks() -> None:
    """The event loop comes round while they are read, however many come at once."""
    turns, running = 0, True

    async def others() -> None:
        nonlocal turns
        while running:
            await asyncio.sleep(0)
            turns += 1

    n_frames = SMALL_MOST - 2  # with the two around them
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        task = asyncio.create_task(others())
        await client.send(frame(TEXT, b"be", fin=False) + frame(0, fin=False) * n_frames + frame(0, b"gun"))
        began = turns
        assert await heard(client) == (TEXT, b"begun")
        assert turns - began >= n_frames // FRAMES_AT_ONCE
        running = False
        await task


# Accounts and limits.


async def test_open_websockets_are_counted_in_metrics() -> None:
    """As a mode of their own; the handshake is one answered request of our own."""
    async with talking(config={"logging": {"access": True}}) as gateway:
        async with gateway.client() as client:
            await joined(client)
            await until_sample(gateway, WEBSOCKETS, 1)
            samples = await scrape(gateway)
            assert samples["gateway_client_connections"] == 2
            assert samples['gateway_inflight_requests{mode="own"}'] == 1  # the one that asks
            requests = 'gateway_http_requests_total{code="101",method="GET",mode="own",route="pages"}'
            assert samples[requests] == 1
        await until_sample(gateway, WEBSOCKETS, 0)
        assert '"path":"/context/talk","status":101' in gateway.logged().replace(" ", "")


async def test_open_websockets_do_not_count_against_concurrent_limit() -> None:
    """`limits.concurrent` bounds what is under way; who only listens is not."""
    async with talking(config={"limits": {"concurrent": 1}}) as gateway, gateway.client() as one:
        await joined(one)
        async with gateway.client() as two, gateway.client() as three:
            await joined(two)
            await three.send(LIVE.replace(b"/health/live", b"/v1/models"))
            assert (await three.read_response()).status == 502  # it was let through to an upstream that is not there
