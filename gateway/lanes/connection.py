"""The client's connection: reads heads, starts a transaction for each, and buffers what came too early.

Invariants: one transaction at a time, answers in the order of the requests; a head outside the grammar is answered
and ends the connection; nothing is parsed behind it. Reading is paused for a set of reasons and goes on when none is
left.

Theory of operation. Three facts make the state: `transaction` (a request is under way), `closing` (no further request
is taken) and `blocked_since` (the client does not read). `data_received` checks them in that order:

1. With a transaction, bytes belong to it. It takes its body, and gives back through `hold_bytes` what lies behind the
   body.
2. While closing, bytes are counted and dropped.
3. While the client does not read, bytes are held, so that a client cannot collect answers that it never reads.
4. Otherwise they are a head. `_read_request` looks for a remembered plan, and parses the head if there is none.

The end of a transaction is `end_transaction`. With `keep`, held bytes are the next request (pipelining, RFC 9112
section 9.3.2). Without it, `close` ends the connection. `cut_connection` ends it in the middle of an answer instead.

Pausing. `_paused` is a set of bits, one for each reason in `gateway.lanes.client`: HELD (too much is buffered for
later), SENDING (the upstream or handler does not keep up), YIELDED (the rest waits for the next turn of the loop). Each
reason is removed by the code that set it. `end_transaction` with `keep` and a lingering `close` remove all of them.

Deadlines. `deadline_name` names the one that runs: `connect` (no byte yet), `head`, `keepalive` or `close`. A
transaction has its own. `sweep` compares them twice a second, so none needs a timer. `_since` None means "since the
last sweep": a connection that is reused at once never reads the clock. `write` is measured apart from them, by the
bytes that the kernel reports as unacknowledged, because a full buffer looks the same with a slow reader as with a dead
one.

Ends, from the softest to the hardest:
- `close(linger=False)`: FIN after the last byte.
- `close(linger=True)`: FIN, and the rest of the request is still read and dropped, for `LINGER_S` and at most
  `LINGER_LIMIT_BYTES`. Otherwise the kernel would answer unread bytes with RST and discard our answer (RFC 9112 section
  9.6).
- `cut_connection(framed=True)`: FIN. The answer's framing shows that bytes are missing.
- `cut_connection(framed=False)`: RST, once the buffer is empty. A FIN would make the answer look whole.
- `abort`: RST at once, for a client that stopped reading.

Dangers.
- Request smuggling: after a refused head nothing behind it is parsed (RFC 9112 section 11.2). A refused request with a
  well-formed head lets the connection go on only if its body is here in full (`_answer_with_error`).
- Recursion and starvation: pipelined requests that are declined are answered one per turn of the event loop.
- A late callback: `connection_lost` clears `transaction` before it calls `on_client_gone`, so this happens once.

https://www.rfc-editor.org/rfc/rfc9112#section-9
"""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from time import perf_counter
from typing import cast

from gateway.contracts.errors import GatewayError
from gateway.http.error_response import build_error_answer, generate_request_id
from gateway.http.request_head import RequestHead, check_beginning
from gateway.lanes.aiohttp_adapter import LocalTransaction
from gateway.lanes.client import HELD, HIGH_WATER_BYTES, LOW_WATER_BYTES, SENDING, YIELDED, Transaction
from gateway.lanes.listener_state import ListenerState
from gateway.lanes.passthrough.exchange import PassthroughExchange
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.routes import get_path
from gateway.upstream.connection import reset

#: The kernel shows reading in pieces only: on loopback a window opens by up to 95 KB at once. So a client that reads
#: may take as long over its next piece as over the last one at this rate, in bytes a second. Larger pieces count as
#: this one. Smaller ones come back at this rate, too: a piece now and then must not hold an upstream up.
LEAST_READ_RATE = 512
SHOWN_AT_ONCE_BYTES = 131072
#: Bytes of later (pipelined) requests that are held before reading is paused.
HELD_LIMIT_BYTES = 65536
#: Time and bytes for which a client is still read that was refused in the middle of its request: without that the
#: kernel would answer its bytes with RST and take our answer away from it.
LINGER_S = 2.0
LINGER_LIMIT_BYTES = 64 << 20
#: Empty lines tolerated before a request line (RFC 9112 section 2.2 requires one).
EMPTY_LINES_LIMIT = 4


class ClientConnection(asyncio.Protocol):
    """One client, from accept to close. `is_inner`: it is the console of this process."""

    __slots__ = (
        "_held",
        "_lingered",
        "_patience_s",
        "_paused",
        "_since",
        "_unread",
        "blocked_since",
        "closing",
        "deadline",
        "deadline_name",
        "is_inner",
        "listener",
        "transaction",
        "transport",
    )

    def __init__(self, listener: ListenerState, *, is_inner: bool = False) -> None:
        self.listener = listener
        self.is_inner = is_inner
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything can happen
        self.transaction: Transaction | None = None
        self.closing = False
        self.blocked_since: float | None = None
        self.deadline = 0.0
        self._since: float | None = 0.0  # None: since the last sweep
        self.deadline_name = "head"
        self._held = b""
        self._paused = 0
        self._lingered = 0
        self._unread = -1
        self._patience_s = 0.0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, and refuse or abort it if the gateway is stopping or full."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)
        listener = self.listener
        self._set_deadline("connect", listener.timeouts.head_s)
        listener.connections.add(self)
        listener.inner += self.is_inner
        if listener.has_ended:
            self.closing = True
            self.transport.abort()
        elif not self.is_inner and listener.clients > listener.most_connections:
            if listener.count_refused_client():
                error = GatewayError("overloaded", "Too many connections are open; try again shortly.", retry_after_s=1)
                self._refuse_input(error)
            else:
                self.closing = True
                self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the transaction, or hold them, or read the next request in them."""
        transaction = self.transaction
        if transaction is not None:
            transaction.on_request_bytes(data)
        elif self.closing:
            self._lingered += len(data)
            if self._lingered > LINGER_LIMIT_BYTES:
                self.transport.abort()
        elif self.blocked_since is not None:
            self.hold_bytes(data)
        else:
            if self._held:
                data, self._held = self._held + data, b""
            self._read_request(data)

    def eof_received(self) -> bool:
        return self.transaction is not None and self.transaction.on_client_eof()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Unregister the connection, and report the loss to its transaction."""
        self.listener.connections.discard(self)
        self.listener.inner -= self.is_inner
        self.listener.paused.discard(self)
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            self.listener.record_end()
            transaction.on_client_gone()

    def pause_writing(self) -> None:
        """Note since when the client does not keep up, and report it to the transaction."""
        self.blocked_since = self.listener.clock()
        self._patience_s = max(self._patience_s, self.listener.timeouts.write_s)
        self._unread = -1  # not looked at yet
        if self.transaction is not None:
            self.transaction.on_client_full()

    def resume_writing(self) -> None:
        """Note that the client has caught up, and continue its transaction or its next request."""
        if self._unread >= 0:  # it was behind for longer: this is how it reads
            self._is_stalled(self.listener.clock())
        self.blocked_since = None
        if self.transaction is not None:
            self.transaction.on_client_drained()
        else:
            self._continue_reading()

    # The turn's side.

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def hold_bytes(self, data: bytes) -> None:
        """Store the bytes behind the request under way; a client that sends ever more is paused."""
        self._held += data
        if len(self._held) > HELD_LIMIT_BYTES:
            self.pause(HELD)

    def take_held_bytes(self) -> bytes:
        """Return the bytes that were held, for a transaction that takes over the connection."""
        held, self._held = self._held, b""
        self.resume(HELD)
        return held

    @property
    def paused(self) -> bool:
        return self._paused != 0

    def pause(self, reason: int) -> None:
        """Stop reading from the client until each such reason is resumed."""
        if not self._paused and not self.transport.is_closing():
            self.transport.pause_reading()
            self.listener.watch_paused_client(self)
        self._paused |= reason

    def resume(self, reason: int) -> None:
        """Remove a reason for a pause, and read on if it was the last one."""
        before, self._paused = self._paused, self._paused & ~reason
        if before and not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()
            self.listener.paused.discard(self)

    def yield_turn(self, read_on: Callable[[], bool]) -> None:
        """Stop reading, and call `read_on` once in each of the next turns of the loop while it returns True."""
        if not self._paused & YIELDED:
            self.pause(YIELDED)
            self.listener.loop.call_soon(self._call_each_turn, read_on)

    def _call_each_turn(self, read_on: Callable[[], bool]) -> None:
        if read_on():
            self.listener.loop.call_soon(self._call_each_turn, read_on)
        else:
            self.resume(YIELDED)

    def end_transaction(self, *, keep: bool, linger: bool = False) -> None:
        """End a transaction, its answer written. `keep`: take another request. `linger`: this one is not whole yet."""
        self.transaction = None
        self.listener.record_end()
        if not keep:
            self.close(linger=linger)
            return
        self.deadline_name, self._since = "keepalive", None
        if self._paused:
            self.resume(HELD | SENDING | YIELDED)
        if self._held:
            self._read_request(self.take_held_bytes())

    def cut_connection(self, *, framed: bool) -> None:
        """End the connection in the middle of an answer so that the client can see it.

        `framed`: the answer's own framing shows that bytes are missing, so what was received is still delivered.
        """
        self.transaction = None
        self.listener.record_end()
        self.closing = True
        if framed:
            self._set_deadline("close", LINGER_S)
            self.transport.close()
        else:
            self._reset_when_sent()

    def close(self, *, linger: bool) -> None:
        """End the connection after what was written. `linger`: the client may still be sending."""
        self.closing = True
        self._held = b""
        if linger and not self.transport.is_closing():
            self._set_deadline("close", LINGER_S)
            self.resume(HELD | SENDING | YIELDED)
            self.transport.write_eof()
        else:
            self._set_deadline("close", self.listener.timeouts.write_s)
            self.transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        reset(self.transport)

    def close_if_idle(self, now: float, idle_s: float) -> None:
        """Close a connection that waits for a request since `idle_s` seconds; for draining."""
        if (
            self.transaction is not None
            or self._held.strip(b"\r\n")
            or self.deadline_name not in ("connect", "keepalive")
        ):
            return
        if self._since is None:
            self._set_deadline("keepalive", self.listener.timeouts.keepalive_s)
        elif now - self._since > idle_s:
            self.close(linger=False)

    # Deadlines.

    def sweep(self, now: float) -> None:
        """End what takes too long: called twice a second."""
        transaction = self.transaction
        if self._is_stalled(now):
            self.listener.metrics.deadlines["write"] += 1
            self.abort()
        elif transaction is not None:
            transaction.sweep(now)
        elif self._since is None:
            self._set_deadline("keepalive", self.listener.timeouts.keepalive_s)
        elif now > self.deadline:
            self._end_overdue()

    def _is_stalled(self, now: float) -> bool:
        """Return whether the client has read too little for too long. The kernel reports the unacknowledged bytes."""
        if self.blocked_since is None:
            return False
        queue = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        unread = int.from_bytes(queue, sys.byteorder) + self.transport.get_write_buffer_size()
        if unread < self._unread:
            read_s = min(self._unread - unread, SHOWN_AT_ONCE_BYTES) / LEAST_READ_RATE
            left_s = self.blocked_since + self._patience_s - now
            self._patience_s = min(left_s + read_s, max(self.listener.timeouts.write_s, read_s))
            self.blocked_since = now
        self._unread = unread
        return now - self.blocked_since > self._patience_s

    def _end_overdue(self) -> None:
        """End the connection after its deadline: with 408 if a request head is incomplete."""
        if self.deadline_name != "keepalive":
            self.listener.metrics.deadlines[self.deadline_name] += 1
        if self.closing:
            self.abort()
        elif self.deadline_name == "head":
            seconds = self.listener.timeouts.head_s
            self._refuse_input(
                GatewayError(
                    "request_timeout",
                    f"The request head did not arrive within {seconds:g} s: send all of it sooner.",
                )
            )
        else:
            self.close(linger=False)

    def _set_deadline(self, name: str, seconds: float) -> None:
        """Set the deadline of the connection; `name` is its label in metrics."""
        self.deadline_name = name
        self._since = self.listener.clock()
        self.deadline = self._since + seconds

    # Reading heads.

    def _read_request(self, data: bytes) -> None:
        """Start the transaction of the request that `data` begins with, or answer it if it is refused."""
        if data[0] == 0x0D and not (data := self._strip_empty_lines(data)):
            return
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._hold_partial_head(data)
            return
        began = perf_counter()
        listener = self.listener
        found = listener.router.find_plan(data, end, self.transport)
        if found is None or listener.full:
            self._read_new_head(data, end, began)
        else:
            self._start_exchange(*found, data[end + 4 :], began)

    def _start_exchange(self, plan: Plan, digits: bytes, body: bytes, began: float) -> None:
        """Start a passthrough exchange for a planned request."""
        self.listener.inflight += 1
        self.transaction = transaction = PassthroughExchange(self, plan, began)
        transaction.start(digits, body)

    def _read_new_head(self, data: bytes, end: int, began: float) -> None:
        """Parse a head and act on it."""
        listener, rest = self.listener, data[end + 4 :]
        try:
            decision = listener.router.decide(data, end, self.transport)
        except GatewayError as error:
            self._refuse_input(error)
            return
        plan, refusal = decision.plan, decision.error
        if plan is not None:
            refusal = listener.build_overload_error()
        if refusal is not None:
            self._answer_with_error(refusal, decision.head, rest)
        elif plan is not None:
            self._start_exchange(plan, decision.digits, rest, began)
        else:
            listener.inflight += 1
            self.transaction = transaction = LocalTransaction(self, decision.head)
            transaction.start(rest)

    def _answer_with_error(self, error: GatewayError, head: RequestHead, rest: bytes) -> None:
        """Answer a well-formed request with an error; the connection goes on if the request's body is all here."""
        length = head.length or 0
        keep = head.keep_alive and not head.chunked and length <= len(rest) and not self.listener.draining
        self._write_error(error, close=not keep, head=head)
        if not keep:
            self.close(linger=True)
            return
        self._set_deadline("keepalive", self.listener.timeouts.keepalive_s)
        if length < len(rest):
            # One answer by the gateway a turn of the loop, and none while the client does not read: others wait, too.
            self.hold_bytes(rest[length:])
            self.listener.loop.call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        """Read the held bytes once the client has read its answer."""
        if self._held and self.transaction is None and not self.closing and self.blocked_since is None:
            self._read_request(self.take_held_bytes())

    def _refuse_input(self, error: GatewayError) -> None:
        """Answer malformed or incomplete input with an error, and end the connection."""
        self._write_error(error, close=True, head=None)
        self.close(linger=True)

    def _write_error(self, error: GatewayError, *, close: bool, head: RequestHead | None) -> None:
        """Answer with a gateway error; without a head, for input that is not a request."""
        request_id, listener = generate_request_id(), self.listener
        if head is None:
            method = path = b"-"
            self.write(build_error_answer(error, request_id=request_id, close=close))
        else:
            method, path, sharing = head.method, get_path(head.target), listener.get_cors_fields(head)
            is_head = method == b"HEAD"
            self.write(
                build_error_answer(error, request_id=request_id, close=close, head_only=is_head, sharing=sharing)
            )
        peer = self.transport.get_extra_info("peername")
        listener.record_rejection(error, request_id=request_id, method=method, path=path, peer=peer)

    def _hold_partial_head(self, data: bytes) -> None:
        """Store the beginning of a head; its deadline counts from the first byte."""
        self._held = data
        try:
            check_beginning(data, self.listener.router.limits.head)
        except GatewayError as error:
            self._refuse_input(error)
        else:
            if self.deadline_name != "head" and data.strip(b"\r\n"):  # an empty line is no beginning of one
                self._set_deadline("head", self.listener.timeouts.head_s)

    def _strip_empty_lines(self, data: bytes) -> bytes:
        """Return the data without the empty lines before a request (RFC 9112, 2.2), within a limit."""
        start = 0
        while start < 2 * EMPTY_LINES_LIMIT and data.startswith(b"\r\n", start):
            start += 2
        if start == len(data):
            self._hold_partial_head(data)
        return data[start:]

    def _reset_when_sent(self) -> None:
        """Reset the connection once the kernel has all that was written, or after LINGER_S."""
        last_look = self.listener.clock() + LINGER_S

        def check_if_sent() -> None:
            if self.transport.is_closing():
                return
            if self.transport.get_write_buffer_size() == 0 or self.listener.clock() > last_look:
                reset(self.transport)
            else:
                self.listener.loop.call_later(0.01, check_if_sent)

        check_if_sent()
