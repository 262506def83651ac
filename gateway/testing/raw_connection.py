"""One raw HTTP/1.1 connection, of either side: every byte read is counted, nothing is read unless requested.

A read that meets the other side's FIN raises EOFError, one that meets its RST ConnectionResetError (`PEER_LEFT` names
both); what does not come in time raises TimeoutError; broken framing raises ValueError. `received` has the bytes.
"""

import asyncio
import contextlib
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Final, Literal, Self

from gateway.testing.messages import Request, Response, dechunk, describe_differences, read_status, split_head
from gateway.testing.raw_reader import HEAD_END, ReceiveBuffer
from gateway.testing.streams import PlainStream, Stream, TlsStream, require_loopback

__all__ = [
    "PEER_LEFT",
    "Ended",
    "Peer",
    "Request",
    "Response",
    "connect",
    "dechunk",
    "describe_differences",
    "split_head",
]

Ended = Literal["open", "eof", "reset", "closed"]

#: What reading or sending raises when the other side has gone.
PEER_LEFT: Final = (EOFError, ConnectionError)

KEEP_BYTES: Final = 1 << 20
#: How long is waited for what should come by itself: no promise, but the end of waiting in vain on a busy machine.
PATIENCE_S: Final = 120.0


class Peer:
    """One connection; one task may read while another one sends. As an async context manager it closes itself."""

    def __init__(
        self,
        stream: Stream,
        *,
        keep_bytes: int = KEEP_BYTES,
        on_request: Callable[[Request], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.ended: Ended = "open"  #: how the other side ended it, as far as a caller read; or closed by us
        self._stream = stream
        self._incoming = ReceiveBuffer(stream, keep_bytes=keep_bytes)
        self._on_request = on_request
        self._on_end = on_end

    def __repr__(self) -> str:
        return f"<Peer {self.ended}, {self.n_received} bytes received, {self.n_sent} sent>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    @property
    def received(self) -> bytearray:
        """Return the first `keep_bytes` received."""
        return self._incoming.received

    @property
    def n_received(self) -> int:
        return self._incoming.n_received

    @property
    def sha256(self) -> "hashlib._Hash":
        """Return the hash of everything received."""
        return self._incoming.sha256

    @property
    def n_sent(self) -> int:
        """Return how many bytes the kernel took: exact also after a send that timed out."""
        return self._stream.n_sent

    @property
    def tls(self) -> ssl.SSLObject | None:
        """Return the TLS session, for its ALPN protocol, certificate and version."""
        return self._stream.tls

    # Reading bytes.

    async def read_head(self, *, timeout_s: float | None = PATIENCE_S) -> bytes:
        """Read through the next CRLFCRLF."""
        async with self._within("a head", timeout_s):
            return await self._incoming.take_until(HEAD_END)

    async def read_until(self, token: bytes, *, timeout_s: float | None = PATIENCE_S) -> bytes:
        """Read through the next `token`."""
        async with self._within(f"{token!r}", timeout_s):
            return await self._incoming.take_until(token)

    async def read_exactly(self, n: int, *, timeout_s: float | None = PATIENCE_S) -> bytes:
        async with self._within(f"{n} bytes", timeout_s):
            return await self._incoming.take(n)

    async def read_some(self, *, timeout_s: float | None = PATIENCE_S) -> bytes:
        """Read at least one byte; b"" at the other side's FIN."""
        async with self._within("any byte", timeout_s):
            return await self._incoming.take_some()

    async def read_rest(self, *, timeout_s: float | None = PATIENCE_S) -> bytes:
        """Read everything up to the other side's FIN."""
        async with self._within("a FIN", timeout_s):
            return await self._incoming.take_rest()

    async def discard(self, n: int, *, timeout_s: float | None = PATIENCE_S) -> None:
        """Read `n` bytes and drop them; `sha256` includes them."""
        async with self._within(f"{n} bytes", timeout_s):
            await self._incoming.drop(n)

    # Reading messages.

    async def read_body(self, head: bytes, *, for_method: str = "GET", timeout_s: float | None = PATIENCE_S) -> bytes:
        """Read the raw body of `head`, chunk framing and trailers included; `for_method` is for answers."""
        async with self._within("a body", timeout_s):
            return await self._incoming.take_body(head, method=for_method)

    async def read_request(self, *, timeout_s: float | None = PATIENCE_S) -> Request:
        async with self._within("a request", timeout_s):
            return await self._finish(await self._incoming.take_until(HEAD_END))

    async def finish_request(self, head: bytes, *, timeout_s: float | None = PATIENCE_S) -> Request:
        """Read the body after a `read_head` and return the request, for scripts that act between the two."""
        async with self._within("the body of a request", timeout_s):
            return await self._finish(head)

    async def read_response(self, *, method: str = "GET", timeout_s: float | None = PATIENCE_S) -> Response:
        """Read the final answer to a `method` request; the 1xx heads before it are collected, 101 is final."""
        async with self._within("a response", timeout_s):
            informational: list[bytes] = []
            while (code := read_status(head := await self._incoming.take_until(HEAD_END))) < 200 and code != 101:
                informational.append(head)
            return Response(head, await self._incoming.take_body(head, method=method), tuple(informational))

    async def wait_end(self, *, timeout_s: float | None = PATIENCE_S) -> Ended:
        """Wait for the other side's FIN or RST, dropping all bytes before it; return `ended`."""
        async with self._within("a FIN or RST", timeout_s):
            with contextlib.suppress(ConnectionError), self._noticing_end():
                await self._incoming.drop_rest()
        return self.ended

    # Sending and ending.

    async def handshake(self, *, timeout_s: float | None = PATIENCE_S) -> None:
        """Do the TLS handshake, if TLS is used; `connect` and `FakeUpstream` call it."""
        async with self._within("the end of the TLS handshake", timeout_s):
            await self._stream.handshake()

    async def send(self, data: bytes, *, timeout_s: float | None = PATIENCE_S) -> None:
        """Send `data`; return when the kernel has taken all of it: not while the other side does not read."""
        async with self._within(f"room to send {len(data)} bytes", timeout_s):
            await self._stream.send(data)

    async def drip(self, data: bytes, *, size: int = 1, every_s: float) -> None:
        """Send `size` bytes, wait `every_s`, and so on; no wait after the last."""
        for at in range(0, len(data), size):
            if at:
                await asyncio.sleep(every_s)
            await self.send(data[at : at + size])

    async def half_close(self) -> None:
        """Send FIN; this side can still read."""
        with self._noticing_end():
            await self._stream.half_close()

    def close(self) -> None:
        """Send FIN in both directions; RST instead if the kernel still has unread bytes."""
        self._stream.close()
        self._end("closed")

    def cut(self) -> None:
        """Close as `close` does, but a TLS connection gets no close_notify: truncated, as by a dying peer."""
        self._stream.cut()
        self._end("closed")

    def reset(self) -> None:
        """Send RST."""
        self._stream.reset()
        self._end("closed")

    # How it is done.

    async def _finish(self, head: bytes) -> Request:
        request = Request(head, await self._incoming.take_body(head, method="GET"))
        if self._on_request is not None:
            self._on_request(request)
        return request

    def _end(self, how: Ended) -> None:
        if self.ended == "open":
            self.ended = how
            if self._on_end is not None:
                self._on_end()

    @contextlib.contextmanager
    def _noticing_end(self) -> Generator[None]:
        try:
            yield
        except ConnectionError:
            self._end("reset")
            raise
        finally:
            if self._incoming.at_eof:
                self._end("eof")

    @contextlib.asynccontextmanager
    async def _within(self, what: str, timeout_s: float | None) -> AsyncIterator[None]:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                with self._noticing_end():
                    yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"waited {timeout_s} s for {what}: {self._incoming}; {self.n_sent} sent") from error


class PendingConnection:
    """A connection being made: `await` it for the `Peer`, or use it as `async with`, which closes it."""

    def __init__(self, make: Callable[[], Awaitable[Peer]]) -> None:
        self._make = make
        self._peer: Peer | None = None

    def __await__(self) -> Generator[object, None, Peer]:
        return self._make().__await__()

    async def __aenter__(self) -> Peer:
        self._peer = await self._make()
        return self._peer

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._peer is not None:
            self._peer.close()


def connect(
    host: str,
    port: int,
    *,
    ssl: ssl.SSLContext | None = None,
    server_name: str | None = None,
    rcvbuf: int | None = None,
    keep_bytes: int = KEEP_BYTES,
    timeout_s: float = PATIENCE_S,
) -> PendingConnection:
    """Open a raw client's connection: `peer = await connect(...)`, or `async with connect(...) as peer`.

    `rcvbuf` is the receive buffer in bytes, set before the handshake, for a client that reads slowly.
    """
    address = require_loopback(host)

    async def make() -> Peer:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            sock.setblocking(False)
            if rcvbuf is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
            plain = PlainStream(sock)
            stream = plain if ssl is None else TlsStream(plain, ssl, server_name=server_name or host)
            peer = Peer(stream, keep_bytes=keep_bytes)
            await peer.handshake(timeout_s=timeout_s)
        except TimeoutError as error:
            sock.close()
            raise TimeoutError(f"no connection to {address}:{port} within {timeout_s} s") from error
        except BaseException:
            sock.close()
            raise
        return peer

    return PendingConnection(make)
