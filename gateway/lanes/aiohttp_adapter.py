"""A transaction of our own routes: a message handed to an aiohttp handler behind a facade transport, then taken back.

Each request gets a fresh handler, which is fed exactly its own bytes and then discarded; no private name of aiohttp is
used. The connection goes on only if the handler prepared a keep-alive answer and the body was fed whole: the facade's
default is to close. A page that answers 101 keeps the connection: with that answer a WebSocketTransaction begins.

Theory of operation. aiohttp's RequestHandler expects to own a transport. Our connection must outlive it: the next
request on it may be a passthrough. So the handler gets a `Facade`, which looks like a transport that serves one request
and is then closed. Two grammars read each request, the gateway's first. The handler's reading must never decide where
the message ends.

1. `start` connects the handler to a new facade and feeds it the head from our grammar (`render_origin_form`), and in
   the same piece what is here of the body.
2. `on_request_bytes` feeds the rest of the body, measured by our own framing. Bytes behind it are held for the next
   request. So the handler never sees a second message.
3. The page prepares its answer. The hook `restore_connection_header` notes status and keep-alive in the transaction,
   then makes aiohttp close after this answer. The Connection header was chosen before that, so the client does not see
   it.
4. The handler writes. `_note_answer_end` follows the answer's length to learn whether it is whole.
5. The handler closes the facade. `on_handler_closed` then runs in a later turn of the loop, discards the handler, and
   gives the connection back with `end_transaction`.

Ends.
- A write without a prepared answer is aiohttp's own error page: it refused what our grammar accepted. It is dropped,
  since it repeats bytes of the request, and the client gets `bad_framing` (`on_handler_refused`).
- A malformed or late body ends in `_end_with_error`: our error, if no answer has begun, then a lingering close.
- A page that fails behind the head of its answer, or leaves it unfinished: the connection ends, so that the client
  sees that the answer is not whole.
- 101 for a WebSocket (RFC 6455 section 4.2.2): once its head is written, `switch_to_websocket` puts a
  WebSocketTransaction in the place of this one, with the same handler. A different answer behind the 101 aborts.
- A client that leaves behind a whole answer is accounted with its status, otherwise as one that left.

Back pressure goes through both ways: the handler's `pause_reading` is the reason SENDING on the client, and a client
that does not read calls the handler's `pause_writing`. `put` refuses instead of waiting.

Dangers.
- `100 Continue` from aiohttp comes before the key was checked: the facade drops it. Pages call `send_continue`.
- `abort` must not touch the client's transport: it only removes keep-alive and closes the facade.
- A reference cycle of transaction and facade would wait for the garbage collector. So the transaction does not refer
  to its facade.
- Callbacks come late: `on_handler_closed`, `on_handler_refused` and `_read_on` check that `client.transaction` is still
  this one.

https://www.rfc-editor.org/rfc/rfc9110#section-10.1.1 https://www.rfc-editor.org/rfc/rfc6455#section-4.2.2
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Final

from aiohttp import web

from gateway.contracts.errors import GatewayError
from gateway.contracts.tracing.context import TraceContext
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.http.error_response import build_error_answer, generate_request_id
from gateway.http.request_head import RequestHead
from gateway.lanes.client import HIGH_WATER_BYTES, LOW_WATER_BYTES, SENDING, Client
from gateway.lanes.page_labels import get_page_labels
from gateway.lanes.passthrough.access_record import CLIENT_LEFT, format_address
from gateway.lanes.passthrough.body_timeout import BodyPace, format_too_slow
from gateway.lanes.routes import get_path
from gateway.lanes.server_spans import start_trace
from gateway.lanes.websocket import WebSocketTransaction

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HEAD_END, _LAST_CHUNK = b"\r\n\r\n", b"0\r\n\r\n"
SWITCHED = 101
#: Fields that no page of the context lane reads through aiohttp, which takes some time for each: `get_head` has them.
_UNREAD: Final = (b"accept", b"authorization", b"user-agent", b"x-stainless-")


class Facade(asyncio.Transport):
    """The transport that one aiohttp handler sees, for one request, until its connection is lost."""

    __slots__ = ("_client", "_closed", "_corked", "_held", "_left_bytes", "_on_close", "_turn", "_upgrade")

    def __init__(self, transaction: "LocalTransaction", client: Client) -> None:
        super().__init__()
        self._turn = transaction
        self._client = client
        self._closed = False
        self._on_close: Callable[[], None] = transaction.on_handler_closed
        self._upgrade: web.WebSocketResponse | None = None  # until its 101 is written
        self._corked = False
        self._held = b""  # while it is corked
        self._left_bytes: int | None = None  # of the answer's body; None: it is chunked, or ends with the connection

    @property
    def head(self) -> RequestHead:
        """Return the request's head as our grammar read it: credentials and repeats included."""
        return self._turn.head

    @property
    def trace(self) -> TraceContext | None:
        """Return the span of the request, where there are traces."""
        return None if self._turn.trace is None else self._turn.trace.context

    @property
    def ends(self) -> bool:
        """Return whether the gateway is stopping, which makes this the last answer of its connection."""
        return self._client.listener.draining

    def add_log_facts(self, **facts: object) -> None:
        """Add facts to the request's line in the access log; None values are left out."""
        self._turn.facts.update(facts)

    def set_route(self, route: str) -> None:
        """Count the request under this route in metrics and the access log, whatever its path."""
        self._turn.route = route

    def put(self, data: bytes) -> bool:
        """Write behind the head, as `write` does; False, and nothing is written, if the client does not keep up."""
        if self._client.blocked_since is not None:
            return False
        if not self._closed:
            self._send(data)
        return True

    def hold_writes(self) -> None:
        """Collect what the page writes in this turn of the loop, and send it with one system call."""
        self._corked = True
        self._client.listener.loop.call_soon(self._release_writes)

    def _release_writes(self) -> None:
        """Write the collected bytes, and write through again."""
        held, self._corked, self._held = self._held, False, b""
        if held:
            self._client.write(held)

    async def wait_until_flushed(self) -> bool:
        """Wait until the kernel has all that was written. Return False if the client left before."""
        transport = self._client.transport
        self._release_writes()
        if self.is_closing():
            return False
        if not transport.get_write_buffer_size():
            return True
        drained = self._turn.create_drain_future()
        transport.set_write_buffer_limits(high=0)  # the client is drained once nothing is left
        try:
            return await drained
        finally:
            if not transport.is_closing():
                transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)

    def send_continue(self) -> None:
        """Send 100 Continue to a client that waits with its body."""
        if self.head.expects_continue and not self._closed:
            self._client.write(_CONTINUE)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if name == "socket" else self._client.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closed or self._client.transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write to the client what aiohttp sends, except 100 Continue and error answers of its own."""
        if self._closed:
            return
        data = bytes(data)
        if data.startswith(_CONTINUE):
            return  # aiohttp invites a body before the key is checked: see `send_continue`
        if not self._turn.status:
            # No page prepared this: it is aiohttp's own error answer, which repeats what was sent.
            self._closed = True
            self._client.listener.loop.call_soon(self._turn.on_handler_refused)
            return
        self._note_answer_end(data)
        self._send(data)
        if self._upgrade is not None:
            upgrade, self._upgrade = self._upgrade, None
            self._on_close = self._turn.switch_to_websocket(upgrade).on_handler_closed

    def _send(self, data: bytes) -> None:
        if self._corked:
            self._held += data
        else:
            self._client.write(data)

    def _note_answer_end(self, data: bytes) -> None:
        """Update whether the answer is whole: a client that leaves after its end has missed nothing."""
        transaction = self._turn
        written_bytes = len(data) if transaction.answered else len(data) - data.find(_HEAD_END) - len(_HEAD_END)
        transaction.answered = True
        if self._left_bytes is None:
            transaction.whole = written_bytes >= len(_LAST_CHUNK) and data.endswith(_LAST_CHUNK)
        else:
            self._left_bytes -= written_bytes
            transaction.whole = self._left_bytes <= 0

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._client.pause(SENDING)

    def resume_reading(self) -> None:
        self._client.resume(SENDING)

    def get_write_buffer_size(self) -> int:
        return self._client.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the connection's limits are the lane's."""

    def close(self) -> None:
        """Write the held bytes, and report the end of the handler in the next turn of the loop. Idempotent."""
        if not self._closed:
            self._closed = True
            self._release_writes()
            self._client.listener.loop.call_soon(self._on_close)

    def abort(self) -> None:
        """Close after this answer, without a further request on the connection."""
        self._turn.keep_alive = False
        self.close()

    def prepare_answer(self, response: web.StreamResponse) -> None:
        """Prepare an answer before it is written. Raises GatewayError for a WebSocket that must not begin here."""
        if self._turn.status:
            self.abort()  # the page failed behind its first head: another one would be read as a part of that answer
            return
        if isinstance(response, web.WebSocketResponse):
            if not self.head.websocket:
                raise GatewayError(
                    "invalid_header",
                    "A WebSocket needs a GET without a body: send it with exactly one 'Upgrade: websocket'.",
                    param="upgrade",
                )
            self._upgrade = response
        self._turn.keep_alive = bool(response.keep_alive) and not self.ends
        self._turn.status = response.status
        self._turn.note_answer_kind(response.headers.get("Content-Type", "").startswith("text/event-stream"))
        is_head_only = self.head.method == b"HEAD" or response.status in (204, 304)
        self._left_bytes = 0 if is_head_only else response.content_length


def add_log_facts(request: web.Request, **facts: object) -> None:
    """Add facts to a request's line in the access log, if its client is still connected."""
    if isinstance(facade := request.transport, Facade):
        facade.add_log_facts(**facts)


async def restore_connection_header(request: web.Request, response: web.StreamResponse) -> None:
    """`on_response_prepare` hook: the Connection header is chosen by now, so the wire stays as it is.

    Ends the handler after this answer, and records in the facade whether the connection may take another request.
    """
    if isinstance(facade := request.transport, Facade):
        facade.prepare_answer(response)
        response.force_close()
        if facade.ends:
            response.headers["Connection"] = "close"
        response.headers.pop("Server", None)  # it would reveal the versions in use


class LocalTransaction:
    """A request to one of our own routes, and what its facade has seen of the answer.

    It does not know the facade, which knows it: both go with their last reference, and not only when the collector
    finds them.
    """

    __slots__ = (
        *("_began", "_body", "_client", "_drained", "_handler", "_pace", "_received_bytes", "answered", "facts"),
        *("head", "keep_alive", "mode", "route", "status", "streaming", "trace", "whole"),
    )

    def __init__(self, client: Client, head: RequestHead) -> None:
        self._client = client
        self.head = head
        self.route, self.mode = get_page_labels(get_path(head.target))
        self.facts: dict[str, object] = {}
        self._began = perf_counter()
        self._received_bytes = 0
        self._pace: BodyPace | None = None
        self._body: Body | None = None
        self._drained: asyncio.Future[bool] | None = None
        self.keep_alive = self.answered = self.whole = self.streaming = False
        self.status = 0
        self.trace = start_trace(client, head, route=self.route, lane=self.mode)
        self._handler = client.listener.new_handler()

    def note_answer_kind(self, streaming: bool) -> None:
        """Note whether the answer is an event stream. One of our own pages only listens, maybe for hours."""
        if self.mode == "own":
            self._client.listener.listening += streaming - self.streaming
        self.streaming = streaming

    def create_drain_future(self) -> "asyncio.Future[bool]":
        """Return a future: True when the client has kept up with its answer, False when it has left."""
        self._drained = self._client.listener.loop.create_future()
        return self._drained

    def start(self, rest: bytes) -> None:
        """Pass the head and the first bytes of the body to the handler."""
        head = self.head
        self._handler.connection_made(Facade(self, self._client))
        if self._client.blocked_since is not None:
            self._handler.pause_writing()
        if head.chunked or head.length:
            self._body = ChunkedBody() if head.chunked else LengthBody(head.length or 0)
        lines = head.render_origin_form(unread=_UNREAD if self.mode == "context" else ())
        self._handler.data_received(lines + (self._take_body(rest) if rest else b""))

    def on_request_bytes(self, data: bytes) -> None:
        if taken := self._take_body(data):
            self._handler.data_received(taken)

    def _take_body(self, data: bytes) -> bytes:
        """Return what of `data` belongs to the body, as far as it may go on now. What is behind the body is held."""
        body = self._body
        if body is None:
            self._client.hold_bytes(data)
            return b""
        self._received_bytes += len(data)
        try:
            fed = body.feed(data)
        except BodyError as error:
            self._end_with_error(GatewayError("bad_framing", f"The request body is malformed: {error}."))
            return b""
        if body.done:
            self._body = None
            if body.rest:
                self._client.hold_bytes(body.rest)
        elif body.waiting:
            self._client.yield_turn(self._continue_reading)
        return fed

    def _continue_reading(self) -> bool:
        """Go on with what is here of the body. Return whether more waits for another turn of the loop."""
        if self._body is not None and self._client.transaction is self:
            self.on_request_bytes(b"")
        return self._body is not None and self._body.waiting and self._client.transaction is self

    def on_handler_closed(self) -> None:
        """End the transaction, because the handler has finished its one request."""
        client = self._client
        if client.transaction is not self:
            return
        self._handler.connection_lost(None)
        self._record_answer(self.status)
        read = self._body is None
        keep = (
            self.keep_alive and read and self.whole and self.head.keep_alive
        )  # as its head stated, whatever began since
        client.end_transaction(keep=keep, linger=not read)

    def on_handler_refused(self) -> None:
        """Answer with an error, because aiohttp rejected a request that the gateway's grammar accepts."""
        if self._client.transaction is self:
            self._end_with_error(
                GatewayError(
                    "bad_framing", "The request is malformed: check its headers and its body, and send it again."
                )
            )

    def switch_to_websocket(self, response: web.WebSocketResponse) -> WebSocketTransaction:
        """End this transaction behind the page's 101. Return the WebSocket's; it gets what the client sent ahead."""
        client = self._client
        self._record_answer(SWITCHED)
        transaction = WebSocketTransaction(client, self._handler, response, head=self.head, facts=self.facts)
        client.transaction = transaction
        if held := client.take_held_bytes():
            transaction.on_request_bytes(held)
        return transaction

    def on_client_eof(self) -> bool:
        self._client.transport.abort()
        return False

    def on_client_gone(self) -> None:
        """Report the lost client to the handler, and record the request."""
        self._end_wait(False)
        self._handler.connection_lost(None)
        if self.whole:
            self._record_answer(self.status)
        else:
            self._client.listener.metrics.client_disconnects += 1
            self._record_answer(CLIENT_LEFT)

    def on_client_full(self) -> None:
        self._handler.pause_writing()

    def on_client_drained(self) -> None:
        self._end_wait(True)
        self._handler.resume_writing()

    def sweep(self, now: float) -> None:
        """Check the deadline of a body that stops arriving; a handler's time has no limit here."""
        limit_s = self._client.listener.timeouts.body_idle_s
        if self._body is None:
            return
        if self._pace is None:
            self._pace = BodyPace(now, idle_s=limit_s, received_bytes=self._received_bytes)
        elif self._client.paused:
            self._pace.excuse_elapsed_time(now)
        elif self._pace.is_late(now, idle_s=limit_s, received_bytes=self._received_bytes):
            self._client.listener.metrics.deadlines["body"] += 1
            self._end_with_error(GatewayError("request_timeout", format_too_slow(limit_s)))

    def _end_wait(self, kept_up: bool) -> None:
        """Resolve the future of `create_drain_future`, if a page waits for it."""
        waited, self._drained = self._drained, None
        if waited is not None and not waited.done():
            waited.set_result(kept_up)

    def _end_with_error(self, error: GatewayError) -> None:
        """Write an error, if no answer has begun, and end handler, transaction and connection."""
        client = self._client
        if not self.answered:
            sharing, request_id = client.listener.get_cors_fields(self.head), generate_request_id()
            client.write(build_error_answer(error, request_id=request_id, close=True, sharing=sharing))
            self.facts.update(error_code=error.code, request_id=request_id)
        self._handler.connection_lost(None)
        self._record_answer(error.facts.status)
        client.end_transaction(keep=False, linger=True)

    def _record_answer(self, status: int) -> None:
        """Record the request in metrics, its trace and the access log; `status` is that of the answer."""
        listener, head, duration_s = self._client.listener, self.head, perf_counter() - self._began
        tally = listener.metrics.route(self.route, self.mode)
        tally.count_codes(head.method.decode())[status] += 1
        (tally.streamed if self.streaming else tally.answered).observe(duration_s)
        if self.streaming and self.mode == "own":
            listener.listening -= 1
        if self.trace is not None:
            self.trace.end(status, duration_s, self.facts)
        if listener.access_log is not None:
            listener.access_log(
                mode=self.mode,
                route=self.route,
                method=head.method,
                path=get_path(head.target),
                status=status,
                duration_ms=round(duration_s * 1000, 3),
                client=format_address(self._client.transport.get_extra_info("peername")),
                **self.facts,
            )


def get_head(request: web.Request) -> RequestHead:
    """Return the parsed head of a request that came over a connection of the gateway."""
    facade = request.transport
    assert isinstance(facade, Facade)
    return facade.head
