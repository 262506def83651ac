"""One non-blocking socket, plain or with TLS: it takes nothing from the kernel unless you read.

Invariant: no `await` lies between the system call that takes bytes and the return of those bytes, so a cancelled or
timed-out read loses none. Transports of asyncio are not used: they read ahead, which would hide missing back-pressure.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

BLOCK_BYTES = 65536
TLS_RECORD_BYTES = 16384


def require_loopback(host: str) -> str:
    """Return `host` as a loopback address; refuse any other."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ValueError(f"gateway.testing talks to loopback only, not to {host!r}: use 127.0.0.1, ::1 or localhost")
    return str(address)


class PlainStream:
    """A connected TCP socket; `n_sent` counts the bytes that the kernel took."""

    tls: ssl.SSLObject | None = None

    def __init__(self, sock: socket.socket) -> None:
        self.n_sent = 0
        self.closed = False
        self._sock = sock
        self._waiting: dict[str, asyncio.Future[None]] = {}
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def handshake(self) -> None:
        """Do nothing: plain TCP has no further handshake."""

    async def recv(self) -> bytes:
        """Return the kernel's bytes, at most 64 KiB, waiting for at least one byte; b"" after the other side's FIN."""
        await asyncio.sleep(0)
        while True:
            self._require_open()
            try:
                return self._sock.recv(BLOCK_BYTES)
            except BlockingIOError:
                await self._wait_until_ready("read")

    async def send(self, data: bytes | memoryview) -> None:
        """Hand all of `data` to the kernel, at the pace at which the other side reads."""
        rest = memoryview(data)
        while rest:
            await asyncio.sleep(0)
            self._require_open()
            if taken := self.send_now(rest):
                rest = rest[taken:]
            else:
                await self._wait_until_ready("write")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send without waiting; return how many bytes the kernel took."""
        try:
            taken = self._sock.send(data)
        except BlockingIOError:
            return 0
        self.n_sent += taken
        return taken

    async def half_close(self) -> None:
        self._require_open()
        self._sock.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Close as `close` does: TCP alone has no other end than FIN or RST."""
        self.close()

    def close(self) -> None:
        """Send FIN; as for any program, RST instead if the kernel still has unread bytes."""
        if self.closed:
            return
        self.closed = True
        for direction, waiter in self._waiting.items():
            loop = waiter.get_loop()
            (loop.remove_reader if direction == "read" else loop.remove_writer)(self._sock)
            if not waiter.done():
                waiter.set_exception(_build_closed_error())
        self._sock.close()

    def reset(self) -> None:
        """Send RST: the other side sees ECONNRESET, and undelivered bytes are dropped."""
        if not self.closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    def _require_open(self) -> None:
        if self.closed:
            raise _build_closed_error()

    async def _wait_until_ready(self, direction: Literal["read", "write"]) -> None:
        if direction in self._waiting:
            raise RuntimeError(f"two tasks {direction} one connection at once: let one task own each direction")
        loop = asyncio.get_running_loop()
        add, remove = (
            (loop.add_reader, loop.remove_reader) if direction == "read" else (loop.add_writer, loop.remove_writer)
        )
        waiter = self._waiting[direction] = loop.create_future()
        try:
            add(self._sock, _wake, waiter)
            await waiter
        finally:
            del self._waiting[direction]
            if not self.closed:
                remove(self._sock)


class TlsStream:
    """TLS over a `PlainStream`, without a transport: records are read and written only when plain text is requested."""

    def __init__(self, wire: PlainStream, context: ssl.SSLContext, *, server_name: str | None) -> None:
        """Prepare the session; `server_name` None: the accepting side."""
        self.n_sent = 0
        self._wire = wire
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._unsent = bytearray()
        self._flushing = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return self._wire.closed

    async def handshake(self) -> None:
        try:
            await self._pump(self.tls.do_handshake)
        finally:
            if not self.closed:
                self._flush_now()
        await self._flush()

    async def recv(self) -> bytes:
        """Return plain text, at most 64 KiB; b"" after a close_notify, and after a FIN without one."""
        try:
            return await self._pump(lambda: self.tls.read(BLOCK_BYTES))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""

    async def send(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            await self._flush()
            taken = self.tls.write(rest[:TLS_RECORD_BYTES])
            self.n_sent += taken
            rest = rest[taken:]
        await self._flush()

    async def half_close(self) -> None:
        """Send close_notify, then FIN; reading goes on."""
        self._write_close_notify()
        await self._flush()
        await self._wire.half_close()

    def cut(self) -> None:
        """Send FIN without a close_notify: a truncation."""
        self._wire.close()

    def close(self) -> None:
        """Send close_notify, as far as the kernel takes it without waiting, and FIN."""
        if not self.closed:
            self._write_close_notify()
            with contextlib.suppress(OSError):
                self._flush_now()
            self._wire.close()

    def reset(self) -> None:
        self._wire.reset()

    def _write_close_notify(self) -> None:
        # unwrap() writes this side's alert first, then reads the other side's, for which no caller waits.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self.tls.unwrap()

    async def _pump(self, step: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                await self._flush()
                if data := await self._wire.recv():
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._flushing:
            self._unsent += self._outgoing.read()
            while self._unsent:
                before = self._wire.n_sent
                try:
                    await self._wire.send(bytes(self._unsent))
                finally:
                    del self._unsent[: self._wire.n_sent - before]
                self._unsent += self._outgoing.read()

    def _flush_now(self) -> None:
        self._unsent += self._outgoing.read()
        if self._unsent and not self._flushing.locked():
            del self._unsent[: self._wire.send_now(self._unsent)]


Stream = PlainStream | TlsStream


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _build_closed_error() -> ConnectionAbortedError:
    return ConnectionAbortedError("this side has closed the connection: nothing can be read or sent any more")
