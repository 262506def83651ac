"""A page's WebSocket: who says goodbye, how often, and what is left of the turn afterwards."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientConnectionResetError, WSMsgType, web
from functional.talking import CLOSE, TEXT, close_frame, closed_with, frame, heard
from functional.talking import handshake as handshake_of
from gateways import until

from gateway.lanes.websocket import WebSocketTransaction, accept_websocket
from gateway.testing.raw_connection import Peer

from .assembled import Lane, assembled

HANDSHAKE = handshake_of().replace(b"/context/talk", b"/own")
Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


def page_of(talk: Talk) -> web.Application:
    async def page(request: web.Request) -> web.StreamResponse:
        async with accept_websocket(request) as response:
            await talk(response)
        return response

    app = web.Application()
    app.router.add_get("/own", page)
    return app


async def listens(talk: web.WebSocketResponse) -> None:
    async for _ in talk:
        pass


async def joined(lane: Lane, client: Peer) -> WebSocketTransaction:
    await client.send(HANDSHAKE)
    assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
    (transaction,) = lane.listener.websockets
    return transaction


async def test_draining_sends_the_close_frame_once() -> None:
    """However often draining looks."""
    async with assembled(pages=page_of(listens)) as lane, lane.client() as client:
        transaction = await joined(lane, client)
        for _ in range(3):
            transaction.send_going_away()
        opcode, payload = await heard(client)
        assert (opcode, payload[:2]) == (CLOSE, (1001).to_bytes(2, "big"))
        assert await client.read_rest() == b""
        client.close()
        await lane.until_idle()
        assert not lane.listener.websockets


async def test_go_away_does_not_disturb_a_closing_websocket() -> None:
    """A goodbye in the middle of a close handshake adds nothing."""
    closing = asyncio.Event()

    async def closes(talk: web.WebSocketResponse) -> None:
        closing.set()
        await talk.close(code=4000)

    async with assembled(pages=page_of(closes)) as lane, lane.client() as client:
        transaction = await joined(lane, client)
        await closing.wait()
        transaction.send_going_away()
        assert await closed_with(client) == 4000
        await client.send(close_frame(4000))
        assert await client.read_rest() == b""
        client.close()
        await lane.until_idle()


@pytest.mark.parametrize("grouped", [False, True])
async def test_send_after_go_away_is_not_logged_as_failure(grouped: bool) -> None:
    """There is nobody to send to any more; that is no failure of the page, also where it comes from a task group."""
    failures: list[BaseException] = []

    async def sends(talk: web.WebSocketResponse) -> None:
        try:
            while True:
                await talk.send_str("more")
                await asyncio.sleep(0)
        except ClientConnectionResetError as error:
            failures.append(error)
            raise

    async def sends_in_a_group(talk: web.WebSocketResponse) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sends(talk))

    async with assembled(pages=page_of(sends_in_a_group if grouped else sends)) as lane, lane.client() as client:
        transaction = await joined(lane, client)
        assert await heard(client) == (TEXT, b"more")
        transaction.send_going_away()
        assert await closed_with(client) == 1001
        await client.send(close_frame(1001))
        assert await client.wait_end() == "eof"
        client.close()
        await lane.until_idle()
        assert len(failures) == 1


async def test_page_messages_end_at_go_away() -> None:
    """Its messages end, so it can put its things in order."""
    ended: list[bool] = []

    async def tidies_up(talk: web.WebSocketResponse) -> None:
        async for _ in talk:
            pass
        ended.append(talk.closed)

    async with assembled(pages=page_of(tidies_up)) as lane, lane.client() as client:
        (await joined(lane, client)).send_going_away()
        await closed_with(client)
        client.close()
        await lane.until_idle()
        assert ended == [True]


async def test_listener_stop_resets_websockets_and_cancels_pages() -> None:
    """Nobody is asked; the page is cancelled."""
    cancelled = asyncio.Event()

    async def waits(talk: web.WebSocketResponse) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with assembled(pages=page_of(waits)) as lane, lane.client() as client:
        await joined(lane, client)
        lane.listener.stop()
        assert await client.wait_end() == "reset"
        await asyncio.wait_for(cancelled.wait(), 120)
        await lane.until_idle()
        assert not lane.listener.websockets


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
async def test_websocket_is_released_after_client_disconnect(how: str) -> None:
    """Not even until the next heartbeat."""
    there: list[weakref.ref[web.WebSocketResponse]] = []

    async def notes(talk: web.WebSocketResponse) -> None:
        there.append(weakref.ref(talk))
        await listens(talk)

    async with assembled(pages=page_of(notes)) as lane, lane.client() as client:
        await joined(lane, client)
        if how == "half_close":
            await client.half_close()
        else:
            getattr(client, how)()
        await lane.until_idle()

        def gone() -> bool:
            gc.collect()
            return there[0]() is None

        await until(gone)


async def test_protocol_error_reaches_the_page_as_an_error_message() -> None:
    """As a message of its own kind: who reads `data` must look at `type` first."""
    kinds: list[WSMsgType] = []

    async def notes(talk: web.WebSocketResponse) -> None:
        kinds.extend([message.type async for message in talk])

    async with assembled(pages=page_of(notes)) as lane, lane.client() as client:
        await joined(lane, client)
        await client.send(frame(TEXT, b"fine") + b"\xff\xff")
        assert await closed_with(client) == 1002
        client.close()
        await lane.until_idle()
        assert kinds == [WSMsgType.TEXT, WSMsgType.ERROR]
