"""One raw connection to an upstream: it carries one turn at a time and belongs to its pool between turns."""

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Final, Protocol, cast

from gateway.http.body import SIZE_LINES, note_length

#: Above `HIGH` unsent bytes the sender is paused, below `LOW` it goes on. uvloop's own default low mark is 16 bytes.
HIGH_WATER_BYTES = 65536
LOW_WATER_BYTES = 16384
#: So many bytes are held of an upstream that sends before its connection has a turn.
EARLY_LIMIT_BYTES = 65536
#: Most that is read at once of a long answer.
SMALL_READ_BYTES = 65536
_TABLED = len(SIZE_LINES)
#: A host that is gone without a word is noticed within 20 s, also by a request that waits for its answer: after 10 s of
#: silence the kernel probes it three times.
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
#: Reasons for reading to be paused: where the answer goes does not keep up; what came takes more than one turn of the
#: event loop.
FULL: Final = 1
YIELDED: Final = 2


class Owner(Protocol):
    """The pool of a connection, as far as the connection needs it."""

    @property
    def buffer(self) -> memoryview: ...
    def forget_connection(self, connection: "UpstreamConnection") -> None: ...
    def finish(self, connection: "UpstreamConnection") -> None: ...


class UpstreamTurn(Protocol):
    """A request's use of the upstream connection that carries it."""

    def on_response_bytes(self, data: bytes) -> None: ...
    def on_upstream_eof(self) -> bool:
        """Handle the upstream's FIN. Return True to leave our side of the connection open."""
        ...

    def on_upstream_lost(self, error: Exception | None) -> None:
        """Handle the loss of the connection; `error` is None after a FIN."""
        ...

    def on_upstream_full(self) -> None: ...
    def on_upstream_drained(self) -> None: ...


class _EarlyEvents:
    """The events of a connection before its first turn: what came, and the error that it was lost with, in a tuple."""

    __slots__ = ("early", "lost")

    def __init__(self) -> None:
        self.early = b""
        self.lost: tuple[Exception | None] | None = None


class UpstreamConnection(asyncio.Protocol):
    """A connection to an upstream. Bytes that arrive while no turn holds it have no owner: it is closed.

    A streamed event is nearly always one whole chunk. While its turn lends `relay` (the writer of its client, or what
    reads a model), such chunks go there at once, framing and all. They are counted in `relayed`, in bytes, and the last
    one is `relayed_last`. Anything else goes to the turn, which takes `relay` back. Two calls less for each event: they
    cost more than their work where caches are cold.
    """

    __slots__ = (
        "_first",
        "_poll",
        "_small_reads",
        "idle_limit_s",
        "idle_since",
        "paused",
        "pool",
        "relay",
        "relayed",
        "relayed_last",
        "reused",
        "spoke_first",
        "transport",
        "turn",
    )

    def __init__(self, pool: "Owner") -> None:
        self.pool = pool
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything can happen
        self.turn: UpstreamTurn | None = None
        self.relay: Callable[[bytes], None] | None = None
        self.relayed = 0
        self.relayed_last = b""
        self.reused = False
        self._first: _EarlyEvents | None = _EarlyEvents()
        self.spoke_first = False
        self.paused = 0
        self._small_reads = False
        self.idle_since = 0.0
        self.idle_limit_s = 0.0
        self._poll: select.poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the write limits and TCP keep-alive of the new connection."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            for level, name, value in _KEEPALIVE:
                sock.setsockopt(level, name, value)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the turn; whole chunks of a table of sizes go directly to `relay`."""
        relay = self.relay
        if relay is not None:
            length = len(data)
            if length < _TABLED:
                if data.startswith(SIZE_LINES[length]) and data.endswith(b"\r\n"):
                    self.relayed += length
                    self.relayed_last = data
                    relay(data)
                    return
                note_length(length)
        turn = self.turn
        if turn is not None:
            if len(data) > SMALL_READ_BYTES:
                self._use_small_reads()
            turn.on_response_bytes(data)
        elif (first := self._first) is not None and len(first.early) < EARLY_LIMIT_BYTES:
            first.early += data
        else:
            self.abort()

    def eof_received(self) -> bool:
        return self.turn is not None and self.turn.on_upstream_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss to the turn; TLS without close_notify counts as an error."""
        turn, self.turn = self.turn, None
        self.pool.forget_connection(self)
        first = self._first
        if turn is None and first is None:
            return
        if exc is None and not self._has_ended_cleanly():
            exc = ConnectionResetError("TLS ended without close_notify")
        if turn is not None:
            turn.on_upstream_lost(exc)
        elif first is not None:
            first.lost = (exc,)

    def pause_writing(self) -> None:
        if self.turn is not None:
            self.turn.on_upstream_full()

    def resume_writing(self) -> None:
        if self.turn is not None:
            self.turn.on_upstream_drained()

    @property
    def is_lost(self) -> bool:
        """Return whether the connection ended before its first turn."""
        return self._first is not None and self._first.lost is not None

    @property
    def early(self) -> bytes:
        """Return the bytes that came before the first turn."""
        return b"" if self._first is None else self._first.early

    def begin(self, turn: UpstreamTurn, request: bytes) -> None:
        """Give the connection to a turn, and send its request, or the beginning of it.

        An upstream at its limit answers when it accepts, before it has read anything: that is its answer to the first
        request, which is not sent if the answer is whole, or the connection gone. It carries no further one.
        """
        self.turn = turn
        if (first := self._first) is not None:
            self._first = None
            if first.early:
                self.spoke_first = True
                turn.on_response_bytes(first.early)
                if self.turn is not turn:
                    return
            if first.lost is not None:
                self.turn = None
                turn.on_upstream_lost(first.lost[0])
                return
        self.transport.write(request)

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def pause(self, reason: int = FULL) -> None:
        """Stop reading while there is a reason. From now on it reads in small pieces."""
        before, self.paused = self.paused, self.paused | reason
        if not before and not self.transport.is_closing():
            self.transport.pause_reading()
            self._use_small_reads()

    def _use_small_reads(self) -> None:
        """Read in small pieces until the end of the turn."""
        if not self._small_reads and not self.transport.is_closing():
            self._small_reads = True
            self.transport.set_protocol(_SmallReads(self))

    def end_turn(self) -> None:
        """End the turn; the connection is idle until the next one."""
        self.turn, self._first, self.relayed_last = None, None, b""
        if self._small_reads and not self.transport.is_closing():
            self._small_reads = False
            self.transport.set_protocol(self)

    def resume(self, reason: int = FULL) -> None:
        """Read on if this was the last reason not to."""
        before, self.paused = self.paused, self.paused & ~reason
        if before and not self.paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def yield_turn(self, read_on: Callable[[], bool]) -> None:
        """Stop reading, and call `read_on` once in each of the next turns of the loop while it returns True."""
        if not self.paused & YIELDED:
            self.pause(YIELDED)
            asyncio.get_running_loop().call_soon(self._call_each_turn, read_on)

    def _call_each_turn(self, read_on: Callable[[], bool]) -> None:
        if read_on():
            asyncio.get_running_loop().call_soon(self._call_each_turn, read_on)
        else:
            self.resume(YIELDED)

    def take_back(self) -> int:
        """Stop the direct relay of chunks, and return how many bytes it got."""
        self.relay = None
        relayed, self.relayed = self.relayed, 0
        return relayed

    def is_stale(self) -> bool:
        """Return whether a FIN or unexpected bytes already wait unread on this idle connection."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        return bool(self._poll.poll(0))

    def _has_ended_cleanly(self) -> bool:
        """Return whether a TLS peer announced its end (RFC 8446 section 6.1): a FIN alone could be forged."""
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            tls.read(1)
        except ssl.SSLError:
            return False
        return True

    def abort(self) -> None:
        """End the connection at once, whatever is still unsent, and forget the turn."""
        self.turn = self.relay = None
        self.transport.abort()


class _SmallReads(asyncio.BufferedProtocol):
    """Reads at most 64 KiB at once where an answer is long or its client does not keep up, into a buffer of its pool's.

    uvloop reads up to 256,000 bytes otherwise, and a client that stands still would hold two such buffers. Not from the
    start: it costs a call and a copy each time. The buffer is shared, because a read is over before the next begins.
    """

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._buffer = connection.pool.buffer
        self.eof_received = connection.eof_received  # type: ignore[method-assign]
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(self._buffer[:nbytes].tobytes())


def reset(transport: asyncio.Transport) -> None:
    """End a connection with RST, dropping unsent bytes: the peer sees an error, never a clean end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
