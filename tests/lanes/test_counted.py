"""Each request to a page of ours is counted once, whoever closes first."""

import asyncio
from collections import Counter

import pytest
from aiohttp import web

from gateway.telemetry.metrics import REQUESTS
from gateway.testing.raw_connection import Peer

from .assembled import Lane, assembled
from .test_aiohttp_adapter import GET, pages


def codes(lane: Lane) -> Counter[str]:
    """How often each status code was counted for pages of ours."""
    counted = Counter[str]()
    for (family, labels), (count, *_) in lane.metrics.route("pages", "own").collect_counts():
        if family == REQUESTS:
            counted[labels[2]] += int(count)
    return counted


async def gone(lane: Lane, client: Peer) -> None:
    client.reset()
    await lane.until_idle()


def stream(*pieces: bytes, ends: bool, **headers: str) -> tuple[web.Application, asyncio.Event]:
    """A page that writes these pieces, ends its answer or does not, and does not return before the event."""
    over = asyncio.Event()

    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if ends:
            await response.write_eof()
        await over.wait()
        return response

    return pages(page), over


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "4"}], ids=["chunked", "length"])
async def test_disconnect_after_the_answer_counts_its_own_status(headers: dict[str, str]) -> None:
    """It has it all, though the page is not through: it counts with its own status, and nobody has left."""
    app, over = stream(b"ab", b"cd", ends=True, **headers)
    async with assembled(pages=app) as lane:
        async with lane.client() as client:
            await client.send(GET)
            assert (await client.read_response()).payload == b"abcd"
            await gone(lane, client)
        assert codes(lane) == {"200": 1}
        assert lane.metrics.client_disconnects == 0
        over.set()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "6"}], ids=["chunked", "length"])
async def test_disconnect_during_the_answer_counts_as_499(headers: dict[str, str]) -> None:
    """499, as in passthrough."""
    app, over = stream(b"ab", b"cd", ends=False, **headers)
    async with assembled(pages=app) as lane:
        async with lane.client() as client:
            await client.send(GET)
            assert (await client.read_head()).startswith(b"HTTP/1.1 200 ")
            await gone(lane, client)
        assert codes(lane) == {"499": 1}
        assert lane.metrics.client_disconnects == 1
        over.set()


async def test_disconnect_before_the_answer_counts_as_499() -> None:
    """499 as well, once."""
    asked = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    async with assembled(pages=pages(page)) as lane:
        async with lane.client() as client:
            await client.send(GET)
            await asked.wait()
            await gone(lane, client)
        assert codes(lane) == {"499": 1}


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_disconnect_after_a_bodyless_answer_counts_its_status(method: str) -> None:
    """Its head is its end."""
    over = asyncio.Event()

    async def page(request: web.Request) -> web.StreamResponse:
        response = web.Response(status=200 if method == "HEAD" else 204, text="abc" if method == "HEAD" else None)
        await response.prepare(request)
        await response.write_eof()
        await over.wait()
        return response

    async with assembled(pages=pages(page)) as lane:
        async with lane.client() as client:
            await client.send(GET.replace(b"GET", method.encode()))
            await client.read_head()
            await gone(lane, client)
        assert codes(lane) == {"200" if method == "HEAD" else "204": 1}
        over.set()
