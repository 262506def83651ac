"""The gateway stops: conversations over WebSockets are told, and end."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType
from gateways import config, until_refused, until_still

from gateway.testing.raw_connection import PATIENCE_S, Peer, connect
from tests.support.gateway_process import GatewayProcess

from .talking import (
    BINARY,
    HOST,
    PAGE,
    close_frame,
    closed_with,
    frame,
    joined,
    talking,
)
from .websocket_pages import LIVE, Deaf, Flood, Page, stands_still

#: Draining that ends within this limit did not need it.
PATIENT = {"limits": {"drain": "10m"}}


async def leaving_of(client: Peer) -> None:
    """A client that answers a Close frame as it should."""
    assert await closed_with(client) == WSCloseCode.GOING_AWAY
    await client.send(close_frame(WSCloseCode.GOING_AWAY))
    assert await client.wait_end() == "eof"
    client.close()


@pytest.mark.parametrize("page_type", [Page, Deaf])
async def test_drain_closes_websockets_with_going_away(page_type: type[Page]) -> None:
    """1001 to everybody at once, whether the page listens or is busy; then draining is through, far from its limit."""
    page = page_type()
    async with talking(page.answer, config=PATIENT) as gateway, gateway.client() as one, gateway.client() as two:
        await joined(one)
        await joined(two)
        draining = asyncio.create_task(gateway.gateway.drain())
        await asyncio.gather(leaving_of(one), leaving_of(two))
        await asyncio.wait_for(draining, PATIENCE_S)
        await gateway.until_empty()
        assert page.ended.is_set()


async def test_websocket_joined_during_drain_is_closed_at_once() -> None:
    """On a connection that was busy when draining began."""
    async with talking(config=PATIENT) as gateway, gateway.client() as client:
        await client.send(LIVE)
        await client.read_response()
        draining = asyncio.create_task(gateway.gateway.drain())
        await asyncio.sleep(0)
        await joined(client)
        await leaving_of(client)
        await asyncio.wait_for(draining, PATIENCE_S)


async def test_drain_does_not_wait_for_a_client_ignoring_the_close_frame() -> None:
    """It neither answers nor leaves; draining does not take its limit."""
    async with talking(config=PATIENT) as gateway, gateway.client() as client:
        await joined(client)
        draining = asyncio.create_task(gateway.gateway.drain())
        assert await closed_with(client) == WSCloseCode.GOING_AWAY
        await asyncio.wait_for(draining, PATIENCE_S)
        await gateway.until_empty()


async def test_drain_ends_at_its_limit_with_a_client_that_reads_nothing() -> None:
    """One that reads nothing cannot even be told."""
    page = Flood()
    async with (
        talking(page.answer, config={"limits": {"drain": "0.3s"}}) as gateway,
        gateway.client(rcvbuf=4096) as client,
    ):
        await joined(client)
        await stands_still(page)
        await asyncio.wait_for(gateway.gateway.drain(), PATIENCE_S)
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        await gateway.until_empty()
        assert await client.wait_end() == "reset"
        assert "Error handling request" not in gateway.logged()


def process() -> GatewayProcess:
    program = (sys.executable, str(Path(__file__).with_name("talking.py")))
    root = str(Path(__file__).parents[2])
    return GatewayProcess(config(None, **PATIENT), command=program, env={"PYTHONPATH": f"{root}:{root}/tests"})


async def test_sigterm_closes_websockets_with_going_away() -> None:
    """1001, and the process ends by itself."""
    async with process() as gateway, aiohttp.ClientSession() as session:
        async with session.ws_connect(f"ws://{HOST}:{gateway.port}{PAGE}") as talk:
            await talk.send_str("hi")
            assert await talk.receive_str(timeout=PATIENCE_S) == "hi"
            gateway.signal(signal.SIGTERM)
            message = await talk.receive(timeout=PATIENCE_S)
            assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)
        assert await gateway.wait(PATIENCE_S) == 0
        assert "Traceback" not in gateway.read_stderr()


async def test_second_sigterm_ends_the_process_at_once() -> None:
    """For a client that does not read what would come before the goodbye."""
    async with process() as gateway, connect(gateway.host, gateway.port, rcvbuf=4096) as client:
        await joined(client)
        sending = asyncio.create_task(client.send(frame(BINARY, bytes(200_000)) * 200, timeout_s=None))
        await until_still(lambda: client.n_sent)
        gateway.signal(signal.SIGTERM)
        await until_refused(gateway)
        assert gateway.returncode is None
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait(PATIENCE_S) == 0
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert "Traceback" not in gateway.read_stderr()
