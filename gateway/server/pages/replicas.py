"""The pages of a worker for other workers. Each request is sealed; what has no seal of this store gets 421."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

import orjson
from aiohttp import web

from gateway.api.ops_pages import Readiness, Route, Site
from gateway.auth.host_guard import HostGuard
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import Facade, get_head
from gateway.lanes.auth_failures import WrongKeys
from gateway.server.pages.replica_services import ReplicaServices, read_sealed
from gateway.upstream.replicas.client import MISDIRECTED
from gateway.upstream.replicas.replicas import Replicas
from gateway.upstream.replicas.seals import ReplicaSeal, SealedRequest, SealError

log = logging.getLogger("gateway")

#: All pages are below this path.
BELOW: Final = "/replica"
PATHS: Final = frozenset((b"/replica/mcp", b"/replica/mcp/*", b"/replica/delivered", b"/replica/services/*"))
_ROUTE: Final = "replica"
_LIST_BYTES: Final = 64 << 10
#: So many refused requests are logged one by one in a minute: a scanner that finds the port fills no disk.
LINES: Final = 5
_EVERY_S: Final = 60.0


class ReplicaSessions(Protocol):
    """The sessions of MCP clients that this worker has."""

    async def answer_forwarded(
        self, request: web.Request, head: RequestHead, seal: ReplicaSeal
    ) -> web.StreamResponse: ...

    def confirm_delivery(self, mark: bytes) -> None: ...


class RefusalLog:
    """The log of requests that have no valid seal: the first ones of a minute, and the number of the others."""

    def __init__(self) -> None:
        self._count = 0
        self._ends_s = float("-inf")

    def record(self, error: SealError, *, now_s: float) -> None:
        """Log a refused request, unless enough were logged in this minute. `now_s` is monotonic."""
        if now_s >= self._ends_s:
            if self._count > LINES:
                log.warning("%d more requests to the port for other gateways were refused", self._count - LINES)
            self._count, self._ends_s = 0, now_s + _EVERY_S
        self._count += 1
        if self._count <= LINES:
            log.warning("a request to the port for other gateways was refused: %s", error)


class ReplicaPages:
    """The pages for other workers. `sessions` is set once this worker has some. `services` are its servers."""

    def __init__(self, replicas: Replicas, services: ReplicaServices) -> None:
        self.sessions: ReplicaSessions | None = None
        self.services = services
        self._replicas = replicas
        self._refusals = RefusalLog()

    def list_routes(self) -> Sequence[Route]:
        return [
            ("*", f"{BELOW}/mcp", self._open(self._answer_forwarded)),
            ("*", f"{BELOW}/mcp/{{service}}", self._open(self._answer_forwarded)),
            ("POST", f"{BELOW}/delivered", self._open(self._confirm_deliveries)),
            *(("POST", path, self._open(page)) for path, page in self.services.list_pages()),
        ]

    def _open(
        self, page: Callable[[web.Request, ReplicaSeal], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return a page that is served to other workers only."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if isinstance(request.transport, Facade):
                request.transport.set_route(_ROUTE)
            head = get_head(request)
            fields = [(field.name, field.value) for field in head.fields]
            try:
                seal = self._replicas.read_seal(SealedRequest(method=head.method, target=head.target, fields=fields))
            except SealError as error:
                self._refusals.record(error, now_s=asyncio.get_running_loop().time())
                return web.json_response({"error": "not for this gateway"}, status=MISDIRECTED)
            return await page(request, seal)

        return answer

    async def _answer_forwarded(self, request: web.Request, seal: ReplicaSeal) -> web.StreamResponse:
        if self.sessions is None:
            return web.json_response({"error": "no sessions here"}, status=MISDIRECTED)
        return await self.sessions.answer_forwarded(request, replace(get_head(request), peer=seal.client), seal)

    async def _confirm_deliveries(self, request: web.Request, seal: ReplicaSeal) -> web.StreamResponse:
        body = await read_sealed(request, seal, limit_bytes=_LIST_BYTES)
        if body is None or self.sessions is None:
            return web.json_response({"error": "no sessions here"}, status=MISDIRECTED)
        for mark in orjson.loads(body):
            self.sessions.confirm_delivery(str(mark).encode())
        return web.Response(status=204)


def build_sealed_site(pages: Sequence[Route], wrong_keys: WrongKeys) -> Site:
    """Return a site of these pages alone, which know their callers by seals."""
    return Site(
        exposition=None,
        ready=_is_ready,
        door=HostGuard,
        recognise=_accept_all,
        read_metrics=_accept_all,
        wrong_keys=wrong_keys,
        further=pages,
    )


async def _is_ready() -> Readiness:
    return "ready"


def _accept_all(request: web.Request) -> None:
    """Accept a request: its page checks the seal."""
    del request
