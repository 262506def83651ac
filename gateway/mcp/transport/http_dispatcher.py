"""The SDK's dispatcher over streamable HTTP: what a session sends, and what its server sends back and of itself.

Each request is one POST, and its answer is read where it comes, by the task that waits for it. The SDK's own transport
has two tasks and five streams between a request and its answer: three tenths of what a call took (decision 0057).

1. A request that fails ends one call and not the connection.
2. The connection ends when the server's address accepts no connection any more, or when the server ended the session.
   It also ends when the server does not take a message other than a request.
3. A request that is cancelled is over: its connection is closed. In the older era a message reports it, too.
4. What a server sends of itself goes to the SDK's `JSONRPCDispatcher`. Notifications pass the session's intercept in
   the order in which they come, before the answer that comes behind them.

The two eras differ in three things. The older one has sessions, a standing stream of what the server sends of itself,
and streams that are resumed by the id of their last event.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx2
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    as_request_id,
    coerce_request_id,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.contracts.storage.store import Json
from gateway.jsontext.strict_json import StrictJsonError
from gateway.mcp.backoff import Backoff
from gateway.mcp.server_facts import SESSION_ENDED
from gateway.mcp.transport.guarded_network import CLOSED, HttpAnswer
from gateway.mcp.transport.http_client import RedirectError, Sender
from gateway.mcp.transport.issuer import IssuerError
from gateway.mcp.transport.messages import (
    EventMessages,
    FloodError,
    StreamPosition,
    UnreadError,
    check_id,
    is_answer,
    read_answer,
    read_message,
)
from gateway.mcp.transport.pending_requests import CANCELLED
from gateway.mcp.transport.rpc_result import (
    RequestNotRunError,
    build_closed_error,
    build_unread_error,
    encode_message,
    get_result,
    parse_error,
)
from gateway.mcp.transport.server_messages import ServerMessages

log = logging.getLogger("gateway")

_FAREWELL_S: Final = 2.0
#: How long calls wait for the standing stream: some servers answer it with their first event.
_STANDS_S: Final = 0.5
#: Tries to get a stream that broke off, or the standing one for the first time.
_TRIES: Final = 2
#: The shortest time between two of them.
_PAUSE_S: Final = 0.1
_CALL: Final = "tools/call"
#: Notifies the session of what may have happened while the standing stream was away.
_CHANGED: Final[Json] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


class _PendingRequest:
    """A request without an answer so far. `limit` is that of its time, `elsewhere` its answer on another stream."""

    def __init__(self, progressed: ProgressFnT | None) -> None:
        self.progressed = progressed
        self.limit: asyncio.Timeout | None = None
        self.elsewhere: Json | None = None

    def end(self) -> None:
        """End the waiting for the answer."""
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time())


class HttpDispatcher(Dispatcher[TransportContext]):
    """The dispatcher of one connection. `lost` gets the reason why it cannot go on. Close it, whatever happens."""

    def __init__(self, sender: Sender, *, limit_bytes: int, accept_limit_s: float, lost: Callable[[str], None]) -> None:
        self._sender = sender
        self._limit_bytes = limit_bytes
        self._accept_limit_s = accept_limit_s
        self._tell_lost = lost
        self._of_server = ServerMessages(send=self._send_one_way, progress_of=self._find_progress_callback)
        self._asked: dict[RequestId, _PendingRequest] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Answer the server's requests, until the connection is lost."""
        try:
            await self._of_server.run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._close_requests()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Return the result of a request. Raises MCPError: CONNECTION_CLOSED where the connection ended before it."""
        if self._is_closed:
            raise RequestNotRunError
        opts = opts or {}
        request_id, key = self._generate_id(opts.get("request_id"))
        asked = self._asked[key] = _PendingRequest(opts.get("on_progress"))
        sent: Json = {**params} if params else {}
        if asked.progressed is not None:
            sent["_meta"] = {**(sent.get("_meta") or {}), "progressToken": request_id}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, **({"params": sent} if sent else {})}
        if method == "initialize":
            self._sender.version = None
        headers = self._take_headers(opts)
        is_newer = self._sender.version in MODERN_PROTOCOL_VERSIONS
        try:
            async with asyncio.timeout(opts.get("timeout")) as asked.limit:
                return await self._request_result(message, headers)
        except (TimeoutError, MCPError) as error:
            if asked.elsewhere is not None:
                return get_result(asked.elsewhere)
            if isinstance(error, MCPError):
                raise
            if self._is_closed:
                raise build_closed_error() from None
            raise MCPError(code=REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
        except asyncio.CancelledError:
            if opts.get("cancel_on_abandon", True) and not is_newer and not self._is_closed:
                self._start_task(self.notify(CANCELLED, {"requestId": request_id}))
            raise
        finally:
            del self._asked[key]

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification, and return once the server has accepted it; nothing is sent on a closed connection.

        Behind the one that ends the handshake, return once the standing stream is open: no change is missed then.
        """
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = {**params}
        await self._send_one_way(encode_message(message), self._take_headers(opts or {}))
        if method == "notifications/initialized" and self._sender.session is not None and not self._is_closed:
            stands = asyncio.Event()
            self._start_task(self._keep_standing_stream(stands.set))
            with suppress(TimeoutError):
                await asyncio.wait_for(stands.wait(), _STANDS_S)

    async def aclose(self) -> None:
        """End the connection, and the session at the server."""
        self._close_requests()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._sender.session is not None:
            try:
                async with asyncio.timeout(_FAREWELL_S):
                    await self._sender.delete()
            except (httpx2.HTTPError, IssuerError, RedirectError, TimeoutError) as error:
                log.debug("the session of an MCP server was not ended: %s", error)

    def _generate_id(self, wanted: RequestId | None) -> tuple[RequestId, RequestId]:
        """Return a request's id as sent, and as stored here. Raises ValueError for one in use."""
        if wanted is not None:
            if (key := coerce_request_id(wanted)) in self._asked:
                raise ValueError(f"the id {wanted!r} is that of a request under way")
            return wanted, key
        self._last_id += 1
        while self._last_id in self._asked:
            self._last_id += 1
        return self._last_id, self._last_id

    def _take_headers(self, opts: CallOptions) -> Mapping[str, str]:
        headers = opts.get("headers", {})
        if (version := headers.get(MCP_PROTOCOL_VERSION_HEADER)) is not None:
            self._sender.version = version
        return headers

    async def _request_result(self, message: Json, headers: Mapping[str, str]) -> Json:
        """Send a request and return its result. Raises MCPError."""
        method = message["method"]
        answer = await self._post_request(encode_message(message), headers, is_call=method == _CALL)
        try:
            kind = answer.get_field(b"content-type").lower()
            if answer.status >= 400:
                raise await self._build_status_error(answer, is_json=kind.startswith(_JSON))
            if answer.status == 202:
                raise MCPError(code=INVALID_REQUEST, message="it answered a request with HTTP 202, which has no answer")
            if method == "initialize" and (session := answer.get_field(b"mcp-session-id")):
                self._sender.session = session
            if kind.startswith(_JSON):
                return get_result(await read_answer(await answer.read(), message["id"]))
            if not kind.startswith(_EVENTS):
                raise MCPError(code=INVALID_REQUEST, message=f"its answer has the content type {kind[:100]!r}")
            place = StreamPosition()
            while (read := await self._read_event_answer(answer, message["id"], place)) is None:
                answer.close()
                answer = await self._resume_stream(place)
            return get_result(read)
        except FloodError as error:
            self._end_connection(str(error))
            raise build_unread_error(error) from None
        except UnreadError as error:
            raise build_unread_error(error) from None
        except httpx2.StreamError as error:
            is_lost = str(error).startswith(CLOSED)
            if not is_lost:
                raise build_unread_error(UnreadError(str(error))) from None
            raise MCPError(code=CONNECTION_CLOSED, message=str(error)) from None
        finally:
            answer.close()

    async def _post_request(self, content: bytes, headers: Mapping[str, str], *, is_call: bool) -> HttpAnswer:
        """Post a request and return the answer. Raises MCPError."""
        try:
            answer = await self._sender.post(content, headers, is_call=is_call)
        except httpx2.ConnectError as error:
            self._end_connection(str(error))
            raise RequestNotRunError(str(error)) from None
        except httpx2.ReadError as error:
            raise MCPError(code=CONNECTION_CLOSED, message=str(error)) from None
        except IssuerError as error:
            raise MCPError(code=INTERNAL_ERROR, message=f"no token for it: {error}") from None
        except RedirectError as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from None
        if self._has_ended(answer):
            answer.close()
            raise RequestNotRunError(SESSION_ENDED)
        return answer

    async def _build_status_error(self, answer: HttpAnswer, *, is_json: bool) -> MCPError:
        """Return the error of an answer with an error status: the server's own one if it has one."""
        try:
            message = await read_message(await answer.read()) if is_json else None
            if is_answer(message) and "error" in message:  # servers that have not read the id write another one
                return parse_error(message)
        except (StrictJsonError, httpx2.StreamError):
            pass
        is_unknown = is_json and answer.status == 404 and self._sender.session is None
        code = METHOD_NOT_FOUND if is_unknown else INTERNAL_ERROR
        return MCPError(code=code, message=f"it answered with HTTP {answer.status}")

    async def _read_event_answer(self, answer: HttpAnswer, request_id: RequestId, place: StreamPosition) -> Json | None:
        """Return the answer to a request from a stream of events; None: it broke off and can be resumed.

        Raises UnreadError, MCPError.
        """
        try:
            async for message in self._build_event_reader(answer, place):
                if isinstance(message, UnreadError):
                    raise message
                if is_answer(message):
                    check_id(message, request_id)
                    answer.leave()
                    return message
                await self._of_server.take(message)
        except httpx2.StreamError:
            pass
        if not place.last_id:
            raise MCPError(code=CONNECTION_CLOSED, message=f"{CLOSED}: its stream ended without an answer")
        return None

    async def _resume_stream(self, place: StreamPosition) -> HttpAnswer:
        """Ask for the rest of a stream, and return it. Raises MCPError."""
        for _ in range(_TRIES):
            await asyncio.sleep(max(place.retry_ms / 1000, _PAUSE_S))
            if (answer := await self._open_stream(place)) is not None:
                return answer
        raise MCPError(code=CONNECTION_CLOSED, message=f"{CLOSED}: its stream ended and was not resumed")

    async def _keep_standing_stream(self, stands: Callable[[], None]) -> None:
        """Read the standing stream of what the server sends of itself, if it offers one, and get it again and again.

        `stands` is called once it is open, or is not to be had. What came while it was away is lost, unless the server
        gave its events ids.
        """
        place, backoff, loop, was_had = StreamPosition(), Backoff(), asyncio.get_running_loop(), False
        tries = 0
        while (was_had or tries < _TRIES) and not self._is_closed:
            tries, began_s = tries + 1, loop.time()
            answer = await self._open_stream(place)
            stands()
            if answer is not None:
                if was_had and not place.last_id:
                    await self._of_server.take(_CHANGED)
                was_had = True
                await self._read_standing_stream(answer, place)
            wait_s = 0.0 if place.last_id else backoff.choose_wait_s(up_s=loop.time() - began_s)
            await asyncio.sleep(max(place.retry_ms / 1000, _PAUSE_S, wait_s))

    async def _read_standing_stream(self, answer: HttpAnswer, place: StreamPosition) -> None:
        """Take what comes on the standing stream, until it ends."""
        try:
            async for message in self._build_event_reader(answer, place):
                if is_answer(message):
                    self._resolve(message)
                elif not isinstance(message, UnreadError):
                    await self._take_unsolicited(message)
        except httpx2.StreamError as error:
            log.debug("the standing stream of an MCP server broke off: %s", error)
        except FloodError as error:
            self._end_connection(str(error))
        finally:
            answer.close()

    async def _take_unsolicited(self, message: object) -> None:
        """Take a message that belongs to no request. One that is not read ends nothing."""
        try:
            await self._of_server.take(message)
        except UnreadError as error:
            log.debug("a message of an MCP server is not read: %s", error)

    def _resolve(self, answer: Json) -> None:
        """Give a request its answer, which came on the standing stream: servers that poll write it there, too."""
        request_id = as_request_id(answer.get("id"))
        asked = None if request_id is None else self._asked.get(request_id)
        if asked is not None:
            asked.elsewhere = answer
            asked.end()

    async def _open_stream(self, place: StreamPosition) -> HttpAnswer | None:
        """Return a stream of events, new or resumed; None if the server offers none now."""
        try:
            answer = await self._sender.get(last_id=place.last_id)
        except httpx2.ConnectError as error:
            self._end_connection(str(error))
            return None
        except (httpx2.ReadError, IssuerError, RedirectError) as error:
            log.debug("a stream of an MCP server is not opened: %s", error)
            return None
        if answer.status < 400 and answer.get_field(b"content-type").lower().startswith(_EVENTS):
            return answer
        answer.close()
        return None

    def _build_event_reader(self, answer: HttpAnswer, place: StreamPosition) -> EventMessages:
        return EventMessages(
            answer.iterate_pieces(), limit_bytes=self._limit_bytes, requests=self._of_server.requests, place=place
        )

    def _find_progress_callback(self, request_id: RequestId) -> ProgressFnT | None:
        asked = self._asked.get(request_id)
        return None if asked is None else asked.progressed

    async def _send_one_way(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer. A server that does not accept it in time ends the connection."""
        if self._is_closed:
            return
        try:
            async with asyncio.timeout(self._accept_limit_s):
                answer = await self._sender.post(content, headers)
        except httpx2.ConnectError as error:
            self._end_connection(str(error))
        except TimeoutError:
            self._end_connection(f"it did not accept a message within {self._accept_limit_s:g} s")
        except (httpx2.ReadError, IssuerError, RedirectError) as error:
            log.debug("a message to an MCP server is lost: %s", error)
        else:
            self._has_ended(answer)
            answer.close()

    def _has_ended(self, answer: HttpAnswer) -> bool:
        """Return whether the server has ended the session, by its answer to a message. The connection ends with it."""
        is_over = answer.status == 404 and self._sender.session is not None
        if is_over:
            self._end_connection(SESSION_ENDED)
        return is_over

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_connection(self, reason: str) -> None:
        """Close the connection for good, and report the reason."""
        if not self._is_closed:
            self._tell_lost(reason)
            self._close_requests()

    def _close_requests(self) -> None:
        """End the connection for the session, and all requests under way."""
        self._is_closed = True
        self._of_server.close()
        for asked in self._asked.values():
            asked.end()
