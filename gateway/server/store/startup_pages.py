"""The answers of a worker whose start waits for the store: it lives, and is not ready."""

import asyncio
import json
import re
import socket
from http import HTTPStatus
from typing import Final, cast

from gateway.contracts.errors import GatewayError
from gateway.http.error_response import build_error_answer, generate_request_id

#: A longer head gets no answer.
MOST_HEAD: Final = 16 << 10
#: So long a client may take for its head.
HEAD_S: Final = 5.0
_LINE: Final = re.compile(rb"(GET|HEAD) (/health/live|/health/ready)(?:\?[^ ]*)? HTTP/1\.[01]\r\n")
_STATUS: Final = {
    b"/health/live": (HTTPStatus.OK, "ok"),
    b"/health/ready": (HTTPStatus.SERVICE_UNAVAILABLE, "starting"),
}


class StartupPages:
    """The health pages on a listening socket, and the error `gateway_starting` for all other requests."""

    def __init__(self, sock: socket.socket | None) -> None:
        """Set the socket, which stays open; None: no client is answered."""
        self._socket = sock
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Transport] = set()

    async def open(self) -> None:
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: StartupConnection(self._connections), sock=self._socket.dup()
            )

    async def close(self) -> None:
        """End all connections. What the kernel has queued waits for the server that comes. Idempotent."""
        if self._server is not None:
            self._server.close()
            for transport in list(self._connections):
                transport.abort()
            self._server = None


class StartupConnection(asyncio.Protocol):
    """The connection of one client, which ends with its first answer."""

    def __init__(self, connections: set[asyncio.Transport]) -> None:
        self._connections = connections
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._connections.add(self._transport)
        self._timer = asyncio.get_running_loop().call_later(HEAD_S, self._transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self._transport)
        self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._transport.write(build_answer(self._received))
            self._transport.close()
        elif len(self._received) > MOST_HEAD:
            self._transport.abort()


def build_answer(head: bytes) -> bytes:
    """Return the whole answer to a request that begins with this head."""
    if (line := _LINE.match(head)) is None:
        error = GatewayError("gateway_starting", "The gateway starts; try again shortly.", retry_after_s=1)
        is_head = head.startswith(b"HEAD ")
        return build_error_answer(error, request_id=generate_request_id(), close=True, head_only=is_head)
    status, text = _STATUS[line[2]]
    body = json.dumps({"status": text}).encode()
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + (body if line[1] == b"GET" else b"")
