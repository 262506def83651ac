"""WebSockets of our own pages: the transaction that follows the 101, and the way in for a page.

The frames are aiohttp's work. After the 101 every byte of the connection is its handler's, both ways, until one side
ends it; the connection takes no request afterwards. A client's FIN counts as leaving, as everywhere but in a tunnel.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientConnectionResetError, WSCloseCode, hdrs, web

from gateway.errors import GatewayError
from gateway.lanes.transaction import Client

log = logging.getLogger("gateway")

#: A ping after this long without a byte from the client, and the end if half as much later nothing came.
HEARTBEAT_S = 20.0
#: A message of this size or larger is answered with 1009 and the end.
MESSAGE_LIMIT_BYTES = 256 * 1024
#: `send` waits for a client that does not read from this much on. What came and was not read is bounded by aiohttp:
#: 512 KiB and a message.
UNSENT_LIMIT_BYTES = 64 * 1024
#: How long a client may take to answer our Close frame.
CLOSE_S = 2.0


class WebSocketTransaction:
    """A client connection that belongs to an aiohttp handler for good."""

    __slots__ = ("_client", "_goodbye", "_handler", "_response")

    mode = "websocket"
    streaming = False

    def __init__(self, client: Client, handler: web.RequestHandler, response: web.WebSocketResponse) -> None:
        self._client = client
        self._handler = handler
        self._response = response
        self._goodbye: asyncio.Task[bool] | None = None
        client.listener.websockets.add(self)

    def request_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def go_away(self) -> None:
        """Send the client once that the gateway is leaving (1001); the page sees the end of its messages."""
        if self._goodbye is None:
            closing = self._response.close(code=WSCloseCode.GOING_AWAY, message=b"the gateway is shutting down")
            self._goodbye = self._client.listener.loop.create_task(closing)

    def handler_closed(self) -> None:
        """End the transaction: the handler is through. A client that is still sending gets what was written."""
        if self._client.transaction is self:
            self._leave()
            self._client.turn_done(keep=False, linger=True)

    def client_eof(self) -> bool:
        self._client.transport.abort()
        return False

    def client_gone(self) -> None:
        self._leave()

    def client_full(self) -> None:
        self._handler.pause_writing()

    def client_drained(self) -> None:
        self._handler.resume_writing()

    def sweep(self, now: float) -> None:
        """No deadline: heartbeats find out who is gone, and the connection ends a client that reads nothing."""

    def _leave(self) -> None:
        self._client.listener.websockets.discard(self)
        self._handler.connection_lost(None)


@asynccontextmanager
async def websocket(
    request: web.Request, *, heartbeat_s: float = HEARTBEAT_S, message_limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> AsyncIterator[web.WebSocketResponse]:
    """Answer a handshake and return the WebSocket, which the page then returns. Raises GatewayError before the 101.

    The end of the block closes it, if nobody has; a failure inside is logged and closes with 1011. Sending to a client
    that left, or was told to go, ends the block.
    """
    if hdrs.SEC_WEBSOCKET_PROTOCOL in request.headers:
        # Browsers give up when none of theirs is chosen; and aiohttp would log them, where some clients put their key.
        raise GatewayError(
            "invalid_header", "This page supports no subprotocol: leave 'Sec-WebSocket-Protocol' out.", param="upgrade"
        )
    response = web.WebSocketResponse(
        heartbeat=heartbeat_s,
        max_msg_size=message_limit_bytes,
        writer_limit=UNSENT_LIMIT_BYTES,
        timeout=CLOSE_S,
        compress=False,  # small messages, and 300 KB of zlib a connection
    )
    if not _acceptable(response, request):
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
            pass  # there is nobody to send to
    except Exception:
        log.exception("a page failed in its WebSocket")
        code = WSCloseCode.INTERNAL_ERROR
    finally:
        await response.close(code=code)  # without it, the next heartbeat would keep all this for so long


def _acceptable(response: web.WebSocketResponse, request: web.Request) -> bool:
    try:
        return bool(response.can_prepare(request))
    except ValueError:  # a key that is not even ASCII
        return False
