"""One connection to an MCP server over HTTP/1.1: one request and its answer at a time.

Answers are read as strictly as those of models (`gateway.http`), so a stray or cut one cannot look like an answer.
A request is written whole, head and body at once: its body is a message that is in memory already.
"""

import asyncio
import re
import select
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final, cast

from gateway.http.body import Body, BodyError
from gateway.http.fields import TOKEN, VALUE
from gateway.http.response_head import ResponseError, ResponseHead, ResponseHeads, body_of

#: Above so many bytes that nobody has read, the server is paused.
_HIGH_BYTES: Final = 256 << 10
# Streams may be silent for hours: the network is asked whether the other side is still there.
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_HEAD: Final = re.compile(rb"[A-Z]++ [!-~]++ HTTP/1\.1\r\n(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)++\r\n")


class BrokenError(Exception):
    """The error of an answer that does not come, breaks off, or is no HTTP."""


class HeadError(ValueError):
    """The error of a request head that HTTP cannot carry. Nothing was sent."""


def written(method: str, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request. Raises HeadError."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target, lines)
    if _HEAD.fullmatch(head) is None or head.count(b"\r\n") != len(fields) + 2:
        raise HeadError
    return head


class WebConnection(asyncio.Protocol):
    """A connection, which is in the set `among` as long as it is open."""

    def __init__(self, among: "set[WebConnection]") -> None:
        self.rests_until_s = 0.0  # by the clock of the loop
        self._among = among
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._ended = False
        self._failed = False
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._poll: select.poll | None = None
        self._transport: asyncio.Transport

    @classmethod
    async def to(
        cls,
        address: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        host: str,
        among: "set[WebConnection]",
    ) -> "WebConnection":
        """Connect to an address of a host. Raises OSError, also for TLS that fails."""
        transport, made = await asyncio.get_running_loop().create_connection(
            lambda: cls(among), address, port, ssl=tls, server_hostname=None if tls is None else host
        )
        for option in _KEEP_ALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._among.add(self)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > _HIGH_BYTES and not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._failed = self._failed or exc is not None
        self._ended = True
        self._wake()
        self._among.discard(self)

    def is_usable(self) -> bool:
        """Return whether it is open and silent: an end or bytes may wait unread, in the kernel, too."""
        if self._ended or self._pieces or self._transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poll.poll(0)

    async def ask(self, request: bytes, *, method: str, wait_s: float | None) -> "Answer":
        """Send a whole request, and return the answer once its head is there.

        `wait_s` is the longest silence. Raises BrokenError and TimeoutError.
        """
        self._transport.write(request)
        heads = ResponseHeads(method.encode())
        while True:
            if not (data := await self.more(wait_s)):
                raise BrokenError
            try:
                for head in heads.feed(data):
                    if head.status >= 200:
                        return Answer(self, head, heads.rest, wait_s)
                    if head.status == 101:
                        raise BrokenError
            except ResponseError:
                raise BrokenError from None

    async def more(self, wait_s: float | None) -> bytes:
        """Return what has come, or wait for it; b"" at the end. Raises TimeoutError, and BrokenError for a bad end."""
        if not self._pieces and not self._ended:
            async with asyncio.timeout(wait_s):
                while not self._pieces and not self._ended:
                    self._reader = asyncio.get_running_loop().create_future()
                    await self._reader
        if not self._pieces and self._failed:
            raise BrokenError
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._size_bytes = [], 0
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Answer:
    """An answer whose head is there."""

    def __init__(self, connection: WebConnection, head: ResponseHead, rest: bytes, wait_s: float | None) -> None:
        self.connection = connection
        self.head = head
        self._body: Body = body_of(head, payload_only=True)
        self._rest = rest
        self._wait_s = wait_s
        self._ended = False

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        return [(field.name, field.value) for field in self.head.fields]

    @property
    def leaves_clean(self) -> bool:
        """Return whether the connection may carry another request: this answer is whole, and nothing follows it."""
        return self._body.done and self.head.keep_alive and not (self._body.rest or self._rest)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises BrokenError and TimeoutError."""
        while not self._body.done:
            if self._body.waiting:
                await asyncio.sleep(0)
            data, self._rest = self._rest, b""
            if not data and not self._body.waiting and not (data := await self.connection.more(self._wait_s)):
                if self.head.framing == "close":
                    return
                raise BrokenError
            try:
                payload = self._body.feed(data)
            except BodyError:
                raise BrokenError from None
            if payload:
                yield payload
