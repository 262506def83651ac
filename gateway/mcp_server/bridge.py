"""The bridge from an aiohttp request to an ASGI application: its scope, its body, and its answer as it is written.

aiohttp cancels the task of a request whose client leaves, which may be as soon as the client has read what it wants.
The application runs in a separate task, gets `http.disconnect` then, and ends by itself: a session that has just begun
must not end with the request that began it. An answer that ends with its first part is sent with its length, any other
in chunks.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson
from aiohttp import web
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from gateway.contracts.storage.store import Json
from gateway.lanes.aiohttp_adapter import Facade
from gateway.mcp_server.client_request import CURRENT, SCOPE_KEY, ClientRequest
from gateway.mcp_server.media import Message, Send, adapt_answer, get_event_data, is_answer

log = logging.getLogger("gateway")

Receive: TypeAlias = Callable[[], Awaitable[Message]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Coroutine[Any, Any, None]]

#: Fields of an answer that belong to the connection, which is the gateway's.
_OURS: Final = frozenset((b"connection", b"content-length", b"transfer-encoding", b"keep-alive"))
#: Streams have no events that could be sent again: such a request opens a stream as any other.
_RESUMED: Final = b"last-event-id"
_VERSION: Final = b"mcp-protocol-version"
_ACCEPT: Final = b"accept"
#: The SDK answers no client that does not read both.
_BOTH: Final = b"application/json, text/event-stream"

#: Results that other workers pass on, and have not yet reported as received; beyond that the oldest stay owed.
_MOST_UNCONFIRMED: Final = 1000

#: More than that of an answer is written in pieces, each once the client has read most of the one before.
_PIECE_BYTES: Final = 256 << 10


class Bridge:
    """The way to one application."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._unconfirmed: OrderedDict[bytes, Callable[[], None]] = OrderedDict()
        self._running: set[asyncio.Task[None]] = set()

    async def answer_request(
        self, visit: ClientRequest, body: bytes, *, closing: Json | None = None, ended: Callable[[], None] | None = None
    ) -> web.StreamResponse:
        """Pass a request with this body on, and return its answer once it has been written whole.

        `closing` is the message that a stream of events ends with if none before it answers the request.

        With `ended`, the application does not learn that the client has left. It answers to the end, then `ended` is
        called.
        """
        answer = _Answer(visit, body, closing=closing, outlives=ended is not None, delivered=self._note_delivery)
        send = adapt_answer(answer.send, visit.reads, closing=closing)
        token = CURRENT.set(visit)
        try:
            running = asyncio.get_running_loop().create_task(self._app(build_scope(visit), answer.receive, send))
        finally:
            CURRENT.reset(token)
        self._running.add(running)
        running.add_done_callback(self._forget_task)
        if ended is not None:
            running.add_done_callback(lambda _: ended())
        try:
            await asyncio.shield(running)
        finally:
            visit.gone.set()
        return answer.get_response()

    def confirm_delivery(self, mark: bytes) -> None:
        """Report a result as delivered that another worker has passed on to its client."""
        if (delivered := self._unconfirmed.pop(mark, None)) is not None:
            delivered()

    def _note_delivery(self, visit: ClientRequest, mark: bytes) -> None:
        """Report a result as delivered, or keep that until the worker confirms it that has the client."""
        delivered = visit.owed.pop(mark)
        if not visit.is_forwarded:
            delivered()
            return
        self._unconfirmed[mark] = delivered
        if len(self._unconfirmed) > _MOST_UNCONFIRMED:
            self._unconfirmed.popitem(last=False)

    async def close(self) -> None:
        """End what still runs. Idempotent."""
        for running in self._running:
            running.cancel()
        while self._running:
            await asyncio.wait(self._running)

    def _forget_task(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            log.debug("an answer to an MCP client failed: %s", type(error).__name__)


def build_scope(visit: ClientRequest) -> MutableMapping[str, Any]:
    """Return the ASGI scope of a request. Its user is the caller, to whom the SDK binds a session."""
    request = visit.request
    caller = visit.identity.caller
    path, _, query = request.raw_path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": _build_headers(visit),
        "user": _build_user(caller.name, caller.tenant),
        "state": {},
        SCOPE_KEY: visit,
    }


def _build_headers(visit: ClientRequest) -> list[tuple[bytes, bytes]]:
    left_out = {_RESUMED, *((_VERSION,) if visit.begins else ()), *((_ACCEPT,) if visit.takes_answer else ())}
    headers = [(name, value) for key, value in visit.request.raw_headers if (name := key.lower()) not in left_out]
    return [*headers, (_ACCEPT, _BOTH)] if visit.takes_answer else headers


@lru_cache(maxsize=1024)
def _build_user(name: str, tenant: str) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[], subject=tenant))


class _Answer:
    """The two channels of an application: what it receives, and the answer that it sends, an event in each part.

    `outlives`: an application may go on for a client that has left; what it sends is dropped.
    """

    def __init__(
        self,
        visit: ClientRequest,
        body: bytes,
        *,
        closing: Json | None,
        outlives: bool,
        delivered: Callable[[ClientRequest, bytes], None],
    ) -> None:
        self._visit = visit
        self._delivered = delivered
        self._over = asyncio.Event() if outlives else visit.gone
        self._body: bytes | None = body
        self._closing = closing
        self._last_event = b""
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._response: web.StreamResponse | None = None
        self._ended = False

    async def receive(self) -> Message:
        """Return the body once; after that, wait for the end and return a disconnect."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write a message of the application; after its last one, or a lost client, stop waiting."""
        if not self._visit.gone.is_set():
            try:
                await self._send_message(message)
            except ConnectionResetError:
                self._visit.gone.set()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._visit.gone.set()
            self._over.set()  # a task that watches for that ends by itself: a cancelled task is garbage in a cycle

    async def _send_message(self, message: Message) -> None:
        """Write head or body of the answer, and report the results that it delivered."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
            if any(value.startswith(b"text/event-stream") for name, value in self._headers if name == b"content-type"):
                await self._prepare_response(
                    web.StreamResponse()
                )  # its client waits for the head, maybe long before an event
            else:
                self._closing = None
            return
        body, more = bytes(message.get("body", b"")), message.get("more_body", False)
        brought = [mark for mark in self._visit.owed if mark in body]
        if self._response is None:
            if more or len(body) > _PIECE_BYTES:
                response = web.StreamResponse()
                response.content_length = None if more else len(body)
                await self._prepare_response(response)
            else:
                await self._prepare_response(web.Response(body=body))
                body = b""
        assert self._response is not None
        if body:
            for begin in range(0, len(body), _PIECE_BYTES):  # of a large one the transport copies no more than that
                await self._response.write(memoryview(body)[begin : begin + _PIECE_BYTES])
            if self._closing is not None and not body.startswith(b":"):
                self._last_event = body
        if not more:
            if self._closing is not None and not await is_answer(get_event_data(self._last_event)):
                await self._response.write(b"event: message\r\ndata: %b\r\n\r\n" % orjson.dumps(self._closing))
            await self._response.write_eof()
            self._ended = True
        if brought:
            await self._report_delivered(brought)

    async def _report_delivered(self, brought: list[bytes]) -> None:
        """Report the results that were written, unless the client left before the kernel had them."""
        transport = self._visit.request.transport
        if isinstance(transport, Facade) and await transport.wait_until_flushed():
            for mark in brought:
                self._delivered(self._visit, mark)

    def get_response(self) -> web.StreamResponse:
        """Return the answer, which is written by now."""
        if self._response is None or not self._ended:
            raise ConnectionResetError("the answer was not finished")
        return self._response

    async def _prepare_response(self, response: web.StreamResponse) -> None:
        """Send the head of the answer with the application's status and fields."""
        response.set_status(self._status)
        for name, value in self._headers:
            if name not in _OURS:
                response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
        self._response = response
        await response.prepare(self._visit.request)
