"""The endpoint for MCP clients: sessions, and each request on its way to the SDK and back.

The SDK serves both eras of the protocol over streamable HTTP. What comes to it here has passed the gateway's own checks
of host, origin, key and size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson
from aiohttp import web
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from gateway.api.json_body import check_values, read_content
from gateway.api.ops_pages import ERROR_FIELDS, Route
from gateway.auth.keyring import Identity
from gateway.contracts.errors import GatewayError, build_not_allowed_error
from gateway.contracts.plugin import Counters
from gateway.contracts.storage.store import Json
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import Facade, get_head
from gateway.mcp.sdk_import import silence_loggers
from gateway.mcp_server.bridge import Application, Bridge
from gateway.mcp_server.changes import Changes
from gateway.mcp_server.client_request import ClientRequest
from gateway.mcp_server.errors import (
    build_lost_refusal,
    build_no_session_refusal,
    build_refusal,
    build_session_refusal,
    build_version_refusal,
)
from gateway.mcp_server.forwarding import OwnedSessionIds, SessionForwarder
from gateway.mcp_server.quotas.message_reader import OpenRequestIds, check_message, read_message
from gateway.mcp_server.quotas.result_backlog import UnreadResults
from gateway.mcp_server.quotas.sessions import SessionShares, get_owner
from gateway.mcp_server.server import ToolServer
from gateway.mcp_server.tool_calls import CallHandler
from gateway.upstream.replicas.replicas import Replicas
from gateway.upstream.replicas.seals import ReplicaSeal

_ROUTE: Final = "mcp"
#: The part of a path that names a service. `/mcp/services` is a page of the gateway.
_SERVICE: Final = r"{service:(?!services/?$)[^/]+}"


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The sessions of the older era: the ids of requests in those of this worker, and the way to those of others."""

    under_way: OpenRequestIds
    forwarder: SessionForwarder

    def admit(self, visit: ClientRequest, session_id: str, message: object) -> tuple[Json, Callable[[], None] | None]:
        """Return the last event of an answer that breaks off, and what is called at the end of the application.

        Raises GatewayError (invalid_field) for an id that is under way.
        """
        if self.forwarder.is_elsewhere(visit):
            return build_lost_refusal(message), None
        return build_session_refusal(message), self.under_way.take(get_owner(visit), session_id, message)


class McpEndpoint:
    """The endpoint of one worker.

    `identify` returns the caller of a request, who may use tools, or raises GatewayError. `sessions` and `idle_s` bound
    the sessions of the older era; 0: it is served without any. `challenge` returns the header fields of an error answer
    that describe how a client gets in. `limits` returns the most bytes and JSON values of a request. `has_service`
    returns whether there is a service of a name, running or not.
    """

    def __init__(
        self,
        server: ToolServer,
        *,
        path: str,
        sessions: int,
        idle_s: float,
        identify: Callable[[RequestHead], Awaitable[Identity]],
        challenge: Callable[[GatewayError], Mapping[str, str]],
        limits: Callable[[], tuple[int, int]],
        has_service: Callable[[str], bool],
        calling: CallHandler,
        changes: Changes,
        unread: UnreadResults,
        replicas: Replicas,
        counters: Counters,
    ) -> None:
        self._path = path
        self._has_service = has_service
        self._identify = identify
        self._challenge = challenge
        self._limits = limits
        self._calling = calling
        self._changes = changes
        self._unread = unread
        self._streams: set[ClientRequest] = set()
        server.has_sessions = bool(sessions)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._manager = StreamableHTTPSessionManager(
            server,
            stateless=not sessions,
            max_sessions=sessions or None,
            session_idle_timeout=idle_s,
        )
        app = cast("Application", self._manager.asgi_app.app)  # behind the SDK's limit of a body: it is whole by then
        self._sessions: _Sessions | None = None
        if sessions:
            owned = OwnedSessionIds(app, owner=replicas.owner)
            app = SessionShares(owned, most=sessions, idle_s=idle_s, ending=calling.ending, forget=changes.forget)
            app = forwarder = SessionForwarder(app, replicas, counters=counters)
            self._sessions = _Sessions(OpenRequestIds(), forwarder)
        self._bridge = Bridge(app)

    def list_routes(self) -> Sequence[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        paths = (self._path, f"{self._path}/{_SERVICE}")
        return [("*", path + end, self._answer_request) for path in paths for end in ("", "/")]

    async def start(self) -> None:
        """Accept requests from now on."""
        silence_loggers("mcp", "sse_starlette")
        if self._sessions is not None:
            await self._sessions.forwarder.open()
        started = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run_sessions(started))
        await started.wait()

    async def end_open_streams(self) -> None:
        """End the streams on which clients only listen, and put no further questions: the gateway stops. Idempotent."""
        self._calling.leaving = True
        self._changes.close()
        for visit in self._streams:
            visit.gone.set()

    async def close(self) -> None:
        """End all sessions. Idempotent."""
        await self.end_open_streams()
        if self._task is not None:
            self._stopping.set()
            await asyncio.wait({self._task})
        await self._bridge.close()
        if self._sessions is not None:
            await self._sessions.forwarder.close()
        await self._calling.close()

    async def _run_sessions(self, started: asyncio.Event) -> None:
        """Run the SDK's session manager and the reports of changes until the endpoint closes."""
        # The SDK's context must be left in the task that entered it.
        reporting = asyncio.get_running_loop().create_task(self._changes.run())
        try:
            async with self._manager.run():
                started.set()
                await self._stopping.wait()
        finally:
            reporting.cancel()

    async def _answer_request(self, request: web.Request) -> web.StreamResponse:
        """Answer a request that comes from its client."""
        if isinstance(request.transport, Facade):
            request.transport.set_route(_ROUTE)
        return await self._serve_request(request, get_head(request), None)

    async def answer_forwarded(self, request: web.Request, head: RequestHead, seal: ReplicaSeal) -> web.StreamResponse:
        """Answer a request in a session of this worker that another one passes on. `head` has the client's address."""
        return await self._serve_request(request, head, seal)

    def confirm_delivery(self, mark: bytes) -> None:
        """Report a result as received that another worker has passed on."""
        self._bridge.confirm_delivery(mark)

    async def _serve_request(
        self, request: web.Request, head: RequestHead, seal: ReplicaSeal | None
    ) -> web.StreamResponse:
        """Identify the caller, check the message, and pass the request on to the SDK, or to the worker of its session.

        `seal`: another worker has passed it on.
        """
        try:
            identity = await self._identify(head)
        except GatewayError as error:
            request[ERROR_FIELDS] = dict(self._challenge(error))
            raise
        most_bytes, most_values = self._limits()
        body = await read_content(request, identity.caller, limit_bytes=most_bytes, limit_name="limits.context_body")
        await check_values(body, limit=most_values)
        if seal is not None and not seal.fits(body):
            return _build_refusal_answer(
                GatewayError("invalid_field", "The body is not the one that was sealed."), None
            )
        visit = ClientRequest(request, head, identity, request.match_info.get("service"))
        visit.is_forwarded = seal is not None
        visit.add_log_facts(key=identity.caller.name)
        if visit.service is not None and not self._has_service(visit.service):
            return _build_refusal_answer(_build_no_service_error(visit.service), None)
        if self._sessions is None and request.method in ("GET", "DELETE") and visit.is_of_older_era:
            return _build_refusal_answer(_build_sessions_off_error(), None)
        session_id, ended, closing = visit.session_id, None, None
        if request.method == "POST":
            message: object = None
            try:
                message = await read_message(body, most_values=most_values)
                check_message(message)
                visit.read(message)
                if not visit.is_of_known_version:
                    return web.json_response(build_version_refusal(visit.version or "", message), status=400)
                if self._sessions is not None and session_id is not None and visit.is_of_older_era:
                    closing, ended = self._sessions.admit(visit, session_id, message)
            except GatewayError as error:
                return _build_refusal_answer(error, message)
            self._calling.answers.mark(session_id, head, message)
            body = orjson.dumps(message)
        if seal is not None and self._calling.leaving and (visit.is_request or request.method == "GET"):
            return web.json_response(build_no_session_refusal(), status=404)  # its client begins anew at another worker
        return await self._forward_request(visit, body, closing, ended)

    async def _forward_request(
        self, visit: ClientRequest, body: bytes, closing: Json | None, ended: Callable[[], None] | None
    ) -> web.StreamResponse:
        """Pass a request to the SDK, and clean up its session and results after it."""
        method, session_id = visit.request.method, visit.session_id
        if method == "GET":
            self._streams.add(visit)
        elif method == "DELETE" and session_id is not None:
            self._calling.ending.add(session_id)
        is_refused = False
        try:
            response = await self._bridge.answer_request(visit, body, closing=closing, ended=ended)
            is_refused = response.status >= 400
            return response
        finally:
            self._streams.discard(visit)
            self._unread.release(visit)
            if method == "DELETE" and session_id is not None:
                self._calling.ending.discard(session_id)
                if not is_refused:  # also if its client has left
                    self._calling.note_session_end(session_id)
                self._changes.forget(session_id)


def _build_sessions_off_error() -> GatewayError:
    """Return the error for a request that needs sessions, which this gateway does not offer."""
    text = "There are no sessions here: this gateway has several workers. Send each request by POST."
    return build_not_allowed_error(text, ("POST",))


def _build_no_service_error(name: str) -> GatewayError:
    return GatewayError("service_not_found", f"There is no service {name[:64]!r} here: check the last part of the URL.")


def _build_refusal_answer(error: GatewayError, message: object) -> web.Response:
    """Return the answer to a request that does not reach the SDK; `message` is its body, as far as it is known."""
    return web.json_response(build_refusal(error, message), status=error.facts.status, headers=error.fields)
