"""WebSockets of our own pages: the transaction that follows the 101, and the way in for a page.

Frames are read by aiohttp, behind a look at their heads (gateway.http.client_frames.py). After the 101 every byte of
the connection is its handler's, both ways, until one side ends it; the connection takes no request afterwards. A
client's FIN counts as leaving, as everywhere but in a tunnel. Many frames take several turns of the event loop, and
small ones without end close the WebSocket with 1008.

Heartbeats are the gateway's and not aiohttp's, which ends a connection whose reading is paused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from typing import Final

from aiohttp import ClientConnectionResetError, WSCloseCode, hdrs, web

from gateway.contracts.errors import GatewayError
from gateway.http.client_frames import ClientFrames
from gateway.http.request_head import RequestHead
from gateway.lanes.client import HELD, Client
from gateway.lanes.passthrough.access_record import CLIENT_LEFT, format_address
from gateway.lanes.routes import get_path

log = logging.getLogger("gateway")

#: A ping after this long without a byte from the client, and the end if half as much later nothing came.
HEARTBEAT_S = 20.0
#: A message of this size or larger is answered with 1009 and the end.
MESSAGE_LIMIT_BYTES = 256 * 1024
#: `send` waits for a client that does not read from this much on. What came and was not read is bounded by aiohttp:
#: 512 KiB and a message. A page that reads ahead bounds it by its `frames`.
UNSENT_LIMIT_BYTES = 64 * 1024
#: How long a client may take to answer our Close frame.
CLOSE_S = 2.0
_PING: Final = b"\x89\x00"


class PageSocket(web.WebSocketResponse):
    """A WebSocket as its page has it."""

    def __init__(
        self, *, heartbeat_s: float, message_limit_bytes: int, frames: ClientFrames | None, decode_text: bool
    ) -> None:
        super().__init__(
            decode_text=decode_text,
            max_msg_size=message_limit_bytes,
            writer_limit=UNSENT_LIMIT_BYTES,
            timeout=CLOSE_S,
            compress=False,  # small messages, and 300 KB of zlib a connection
        )
        self.heartbeat_s = heartbeat_s
        self.frames = frames or ClientFrames()
        self.transaction: WebSocketTransaction | None = None  # while the client is there

    @contextmanager
    def answer_oldest_message(self) -> Iterator[None]:
        """Answer the oldest message: a request under way, for limits and the access log. Its end makes room for one.

        Raises ClientConnectionResetError for a client that has left.
        """
        if self.transaction is None:
            raise ClientConnectionResetError("the client has left")
        with self.transaction.account_for_message():
            yield


class WebSocketTransaction:
    """A client connection that belongs to an aiohttp handler for good. `facts` belong to the turn under way."""

    __slots__ = ("_client", "_facts", "_frames", "_goodbye", "_handler", "_head", "_heard", "_heard_s", "_heartbeat_s",
                 "_pinged_s", "_response")  # fmt: skip

    mode = "websocket"
    streaming = False

    def __init__(
        self,
        client: Client,
        handler: web.RequestHandler,
        response: web.WebSocketResponse,
        *,
        head: RequestHead,
        facts: dict[str, object],
    ) -> None:
        self._client = client
        self._handler = handler
        self._response = response
        self._head, self._facts = head, facts
        self._goodbye: asyncio.Task[bool] | None = None
        self._frames, self._heartbeat_s = ClientFrames(), HEARTBEAT_S
        if isinstance(response, PageSocket):
            self._frames, self._heartbeat_s, response.transaction = response.frames, response.heartbeat_s, self
        self._heard, self._heard_s = True, 0.0
        self._pinged_s: float | None = None
        client.listener.websockets.add(self)

    def on_request_bytes(self, data: bytes) -> None:
        self._heard = True
        self._forward(self._frames.feed(data))

    def _continue_reading(self) -> bool:
        """Go on with what is here. Return whether more waits for another turn of the event loop."""
        if self._client.transaction is self:
            self._forward(self._frames.feed(b""))
        return self._frames.yields and self._client.transaction is self

    def _forward(self, data: bytes) -> None:
        """Give the handler what it may read, and read no more from the client while a frame of it waits."""
        if data:
            self._handler.data_received(data)
        if self._frames.flooded:
            self._refuse_flood()
        if self._frames.waits or self._frames.flooded:
            self._client.pause(HELD)
        else:
            self._client.resume(HELD)
        if self._frames.yields:
            self._client.yield_turn(self._continue_reading)

    def _refuse_flood(self) -> None:
        """Close the WebSocket with 1008, once: its client sends small frames without end."""
        if self._goodbye is None:
            path = get_path(self._head.target).decode()
            peer = format_address(self._client.transport.get_extra_info("peername"))
            log.warning("too many small WebSocket frames to %s from %s: closed with 1008", path, peer)
            closing = self._response.close(
                code=WSCloseCode.POLICY_VIOLATION, message=b"too many small frames", drain=False
            )
            self._goodbye = self._client.listener.loop.create_task(closing)

    @contextmanager
    def account_for_message(self) -> Iterator[None]:
        """Account for the answer to the oldest message, and take another one at its end."""
        listener, began, facts = self._client.listener, perf_counter(), self._facts
        facts.clear()
        listener.answering += 1
        try:
            yield
        except (asyncio.CancelledError, ClientConnectionResetError):
            facts["status"] = CLIENT_LEFT
            raise
        finally:
            listener.answering -= 1
            self._log_turn(perf_counter() - began)
            if self._client.transaction is self:
                self._forward(self._frames.finish_message())

    def _log_turn(self, duration_s: float) -> None:
        """Log a turn that has ended, if there is an access log."""
        if (access_log := self._client.listener.access_log) is None:
            return
        access_log(
            mode=self.mode,
            method=self._head.method,
            path=get_path(self._head.target),
            duration_ms=round(duration_s * 1000, 3),
            client=format_address(self._client.transport.get_extra_info("peername")),
            **{"status": web.HTTPOk.status_code, **self._facts},
        )

    def send_going_away(self) -> None:
        """Send the client once that the gateway is leaving (1001); the page sees the end of its messages."""
        if self._goodbye is None:
            closing = self._response.close(code=WSCloseCode.GOING_AWAY, message=b"the gateway is shutting down")
            self._goodbye = self._client.listener.loop.create_task(closing)

    def on_handler_closed(self) -> None:
        """End the transaction, as its page has finished. A client that still sends gets all that was written."""
        if self._client.transaction is self:
            self._disconnect_handler()
            self._client.end_transaction(keep=False, linger=True)

    def on_client_eof(self) -> bool:
        self._client.transport.abort()
        return False

    def on_client_gone(self) -> None:
        self._disconnect_handler()

    def on_client_full(self) -> None:
        self._handler.pause_writing()

    def on_client_drained(self) -> None:
        self._handler.resume_writing()

    def sweep(self, now: float) -> None:
        """Send a ping after a silence, and end the connection if nothing follows it.

        A client whose reading is paused cannot be heard; the connection itself ends one that reads nothing.
        """
        self._frames.sweep()
        if self._heard or self._client.paused:
            self._heard, self._heard_s, self._pinged_s = False, now, None
        elif self._response.closed:
            return  # its close handshake has its own limit
        elif self._pinged_s is None:
            if now - self._heard_s > self._heartbeat_s:
                self._pinged_s = now
                self._client.write(_PING)
        elif now - self._pinged_s > self._heartbeat_s / 2:
            self.on_handler_closed()

    def _disconnect_handler(self) -> None:
        self._client.listener.websockets.discard(self)
        if isinstance(self._response, PageSocket):
            self._response.transaction = None
        self._handler.connection_lost(None)


@asynccontextmanager
async def accept_websocket(
    request: web.Request,
    *,
    heartbeat_s: float = HEARTBEAT_S,
    message_limit_bytes: int = MESSAGE_LIMIT_BYTES,
    frames: ClientFrames | None = None,
    decode_text: bool = True,
) -> AsyncIterator[PageSocket]:
    """Answer a handshake and return the WebSocket, which the page then returns. Raises GatewayError before the 101.

    `frames` bound the messages that a page has at a time, if it reads ahead. It answers each in a `turn`. Without
    `decode_text` a page gets text as bytes, and checks that it is UTF-8.

    The end of the block closes it, if it is still open; a failure inside is logged and closes with 1011. Sending to a
    client that left, or that the gateway dismissed, ends the block.
    """
    if hdrs.SEC_WEBSOCKET_PROTOCOL in request.headers:
        # Browsers give up when none of their protocols is chosen; and aiohttp would log them, where some clients put
        # their key.
        raise GatewayError(
            "invalid_header", "This page supports no subprotocol: leave 'Sec-WebSocket-Protocol' out.", param="upgrade"
        )
    response = PageSocket(
        heartbeat_s=heartbeat_s, message_limit_bytes=message_limit_bytes, frames=frames, decode_text=decode_text
    )
    if not _can_accept(response, request):
        raise GatewayError(
            "invalid_header",
            "This page is a WebSocket: connect with GET, 'Connection: Upgrade', 'Upgrade: websocket', "
            "'Sec-WebSocket-Version: 13' and a Sec-WebSocket-Key of 16 bytes in base64.",
            param="upgrade",
        )
    await response.prepare(request)
    code = WSCloseCode.OK
    try:
        try:
            yield response
        except* ClientConnectionResetError:
            pass  # no reader is left
    except Exception:
        log.exception("a page failed in its WebSocket")
        code = WSCloseCode.INTERNAL_ERROR
    finally:
        await response.close(code=code)  # without it, the next heartbeat would keep all this for so long


def _can_accept(response: web.WebSocketResponse, request: web.Request) -> bool:
    """Return whether a request is a valid WebSocket handshake."""
    try:
        return bool(response.can_prepare(request))
    except ValueError:  # a key that is not even ASCII
        return False
