"""The events of one run as server-sent events, from the client's last one until the run has ended.

An event is stored in the same transaction as the change that it describes. The run's state is read before its events.
So a run that is seen to have ended has no further events.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import HttpVersion11, web

from gateway.aio.clock import wait_until_set
from gateway.api.decisions import ApiContext
from gateway.api.ops_pages import Route
from gateway.api.request import VIEWING, parse_query, parse_query_number
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import ENDED, RunEvent
from gateway.contracts.storage.store import StoreError
from gateway.runs.decision_messages import ADDED
from gateway.runs.run_resolution import build_not_found_error

log = logging.getLogger("gateway")

EVENTS = "/context/runs/{id}/events"
#: A comment after so long a silence, so that no proxy on the way takes the connection for dead.
KEEPALIVE_S = 10.0
BATCH = 200
_LAST = "Last-Event-ID"
STREAM_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


class EventPages:
    """The event page of one worker."""

    def __init__(self, api: ApiContext, *, keepalive_s: float = KEEPALIVE_S) -> None:
        self._api = api
        self._keepalive_s = keepalive_s
        self._closing = False
        self._open: set[asyncio.Event] = set()

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("GET", EVENTS, self._serve_events)]

    async def close(self) -> None:
        """End all streams now. A client continues from its last event elsewhere. Idempotent."""
        self._closing = True
        for news in self._open:
            news.set()

    async def _serve_events(self, request: web.Request) -> web.StreamResponse:
        caller = self._api.authorise(request, *VIEWING)
        after = _parse_last_event_id(request)
        if await self._api.store.run(request.match_info["id"], tenant=caller.tenant) is None:
            raise build_not_found_error()
        response = web.StreamResponse(headers=STREAM_HEADERS)
        news = asyncio.Event()
        self._open.add(news)
        try:
            async with self._api.feed.subscribe(lambda _: news.set(), run_id=request.match_info["id"]):
                if request.version >= HttpVersion11:
                    response.enable_chunked_encoding()
                await response.prepare(request)
                await self._write_events(request, response, news, after=after)
        finally:
            self._open.discard(news)
        await response.write_eof()
        return response

    async def _write_events(
        self, request: web.Request, response: web.StreamResponse, news: asyncio.Event, *, after: int
    ) -> None:
        """Write events until the run has ended, the pages close, or the key stops being valid."""
        store, run_id = self._api.store, request.match_info["id"]
        while not self._closing:
            news.clear()
            try:
                caller = self._api.find_caller(request)
                run = await store.run(run_id, tenant=caller.tenant)
                events = await store.list_events(after=after, tenant=caller.tenant, run_id=run_id, limit=BATCH)
            except GatewayError:
                return  # the key is not valid any more
            except StoreError as error:
                # The head is out: the client comes back for what it lacks.
                log.error("the events of run %s end early: the store failed: %s", run_id, error)
                return
            if events:
                await response.write(b"".join(_format_frame(event) for event in events if event.type != ADDED))
                after = events[-1].seq
            if len(events) == BATCH:
                continue
            if run is None or run.state in ENDED:
                return
            if not events and not news.is_set():
                await self._wait(response, news)

    async def _wait(self, response: web.StreamResponse, news: asyncio.Event) -> None:
        if not await wait_until_set(news, self._keepalive_s):
            await response.write(b": keep-alive\n\n")


def _parse_last_event_id(request: web.Request) -> int:
    """Return the client's last event. The header wins over the query, which a browser repeats when it reconnects."""
    query = parse_query(request, "after")
    last = request.headers.getall(_LAST, [])
    if not last:
        return parse_query_number(query, "after", default=0)
    try:
        return parse_query_number({"after": last[-1]}, "after", default=0)
    except GatewayError:
        raise GatewayError(
            "invalid_header",
            f"The value of {_LAST!r} is not the id of an event: send the last id that you received.",
            param=_LAST.lower(),
        ) from None


def _format_frame(event: RunEvent) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.type.encode(), event.data)
