"""The pages by which other workers use the MCP servers that run here once for all gateways.

1. Every request is about a server that this worker holds the lease of. If it does not, the request gets 503, and
   nothing has run.
2. An answer is lines of JSON. `mcp.remote_connection` reads them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.api.json_body import read_content
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.mcp.calls import AnsweredError, LostError, NotRunError, ServerLink
from gateway.mcp.placement import ServedServer
from gateway.mcp.remote_connection import ASK, CALL, CHECK, TOOLS, WATCH
from gateway.upstream.replicas.client import MISDIRECTED
from gateway.upstream.replicas.seals import ReplicaSeal

#: The arguments of a call and what belongs to them.
_REQUEST_BYTES: Final = 64 << 20
_OFFERED: Final = ("prompts", "resources")
Page = Callable[[web.Request, ReplicaSeal], Awaitable[web.StreamResponse]]


class ReplicaServices:
    """The servers that run here, for other workers. `find_server` finds one by the name of its lease."""

    def __init__(self, find_server: Callable[[str], ServedServer | None]) -> None:
        self._find_server = find_server
        self._under_way: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Event] = set()
        self._is_leaving = False

    def list_pages(self) -> Sequence[tuple[str, Page]]:
        """Return the paths and pages. Each request is sealed."""
        answered = ((TOOLS, self._list_tools), (CALL, self._call), (ASK, self._ask), (CHECK, self._check))
        return [(WATCH, self._watch), *((path, self._build_page(answer)) for path, answer in answered)]

    async def leave(self, limit_s: float) -> None:
        """Accept no further requests, wait for those under way, and end the connections of other workers."""
        self._is_leaving = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)
        for stirred in self._watching:
            stirred.set()

    def _build_page(self, answer: "Callable[[ServedServer, ServerLink, Json, _Lines], Awaitable[None]]") -> Page:
        """Return the page that answers requests about a server that runs here."""

        async def answer_request(request: web.Request, seal: ReplicaSeal) -> web.StreamResponse:
            found = await self._find(request, seal)
            if isinstance(found, web.Response):
                return found
            lines, task = _Lines(request), asyncio.current_task()
            assert task is not None
            self._under_way.add(task)
            try:
                await lines.begin()
                try:
                    await answer(*found, lines)
                except NotRunError as error:
                    await lines.write({"not_run": str(error)})
                except LostError as error:
                    await lines.write({"lost": str(error)})
                except AnsweredError as error:
                    await lines.write({"answered": str(error)})
                return await lines.end()
            finally:
                self._under_way.discard(task)

        return answer_request

    async def _find(
        self, request: web.Request, seal: ReplicaSeal
    ) -> tuple[ServedServer, ServerLink, Json] | web.Response:
        """Return the server of a request, its connection, and the body; a refusal if it does not run here."""
        body = await read_sealed(request, seal, limit_bytes=_REQUEST_BYTES)
        if body is None:
            return web.json_response({"error": "not the sealed body"}, status=MISDIRECTED)
        content: Json = orjson.loads(body)
        served = None if self._is_leaving else self._find_server(content["name"])
        link = None if served is None else served.find_local_link()
        if served is None or link is None:
            return web.json_response({"error": "it does not run here"}, status=503)
        return served, link, content

    async def _watch(self, request: web.Request, seal: ReplicaSeal) -> web.StreamResponse:
        """Answer with the facts about a server, and report changes until its connection ends."""
        found = await self._find(request, seal)
        if isinstance(found, web.Response):
            return found
        served, link, _ = found
        lines, stirred = _Lines(request), asyncio.Event()
        link.closed_future.add_done_callback(lambda _: stirred.set())
        unsubscribe = served.subscribe(stirred.set)
        self._watching.add(stirred)
        try:
            await lines.begin()
            offers = [kind for kind in _OFFERED if link.offers(kind)]
            await lines.write({"protocol": link.protocol, "implementation": link.implementation, "offers": offers})
            while served.find_local_link() is link and not self._is_leaving:
                await stirred.wait()
                stirred.clear()
                await lines.write({"changed": True})
            return await lines.end()
        finally:
            self._watching.discard(stirred)
            unsubscribe()

    async def _list_tools(self, served: ServedServer, _link: ServerLink, _content: Json, lines: "_Lines") -> None:
        tools, problems = served.list_raw_tools()
        await lines.write({"result": {"tools": tools, "problems": problems}})

    async def _call(self, served: ServedServer, link: ServerLink, content: Json, lines: "_Lines") -> None:
        """Make a call. If the other worker gives it up, check whether the server lives."""
        calling = asyncio.ensure_future(
            link.call(content["tool"], content["arguments"], progressed=lines.report_progress, meta=content["meta"])
        )
        try:
            ends: set[asyncio.Future[Any]] = {calling, link.closed_future}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                await asyncio.wait({calling}, timeout=_GRACE_S)
            if not calling.done():
                raise LostError("the server ended")
            await lines.write({"result": calling.result()})
        except asyncio.CancelledError:
            served.check_alive()
            raise
        finally:
            calling.cancel()
            await asyncio.wait({calling})

    async def _ask(self, _served: ServedServer, link: ServerLink, content: Json, lines: "_Lines") -> None:
        await lines.write({"result": await link.ask(content["method"], content["params"])})

    async def _check(self, served: ServedServer, _link: ServerLink, _content: Json, lines: "_Lines") -> None:
        served.check_alive()
        await lines.write({"result": {}})


#: An answer may have been read just before the connection ended.
_GRACE_S: Final = 0.25


async def read_sealed(request: web.Request, seal: ReplicaSeal, *, limit_bytes: int) -> bytes | None:
    """Return the body of a sealed request; None: it is another one than the seal names. Raises GatewayError."""
    caller = Caller(name=seal.sender, tenant="", scopes=frozenset())
    body = await read_content(request, caller, limit_bytes=limit_bytes, limit_name="a request between gateways")
    return body if seal.fits(body) else None


class _Lines:
    """An answer as lines of JSON, written as they come."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse()
        self._progress: list[CallProgress] = []
        self._writing = asyncio.Lock()
        self._reporting: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        self._response.content_type = "application/x-ndjson"
        await self._response.prepare(self._request)

    async def write(self, line: Json) -> None:
        async with self._writing:
            await self._response.write(orjson.dumps(line) + b"\n")

    def report_progress(self, progress: CallProgress) -> None:
        """Write a report soon. Reports that come while one is written are written with it, the last one only."""
        self._progress[:] = [progress]
        if not self._reporting:
            task = asyncio.get_running_loop().create_task(self._write_progress())
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)

    async def end(self) -> web.StreamResponse:
        """End the answer."""
        await self._response.write_eof()
        return self._response

    async def _write_progress(self) -> None:
        while self._progress:
            one = self._progress.pop()
            await self.write({"progress": [one.progress, one.total, one.message]})
