"""One request of our own to an upstream, and its answer as it arrives: what the context lane reads models with.

It stands on the same pool and the same strict reading as the passthrough lane, so a stray answer, a cut body or a stale
connection cannot look like an answer here either. The body is decoded of its chunk framing and handed out in pieces.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.contracts.errors import GatewayError, without_traceback
from gateway.http.body import Body, BodyError, ChunkedBody
from gateway.http.response_head import ResponseError, ResponseHead, ResponseHeads, build_body
from gateway.upstream.connection import HIGH_WATER_BYTES, UpstreamConnection
from gateway.upstream.pool import Pool

#: So much of an answer is read in one turn of the event loop: events can be a few bytes long, and cost some 10 us each.
TURN_BYTES = 8192

#: Takes the next of a body; the pause that it returns, if any, is awaited before more comes.
Take: TypeAlias = Callable[[bytes], Callable[[], Awaitable[None]] | None]


class _Answer:
    """The answer to a call, as far as it came, and where its pieces go."""

    __slots__ = ("body", "head", "heads", "held_bytes", "pause", "pieces", "take", "unread")

    def __init__(self, method: bytes) -> None:
        self.heads = ResponseHeads(method)
        self.head: ResponseHead | None = None
        self.body: Body | None = None
        self.pieces: list[bytes] = []
        self.held_bytes = 0
        self.unread = b""  # what came beyond the turn of the loop
        self.take: Take | None = None  # while pieces go there as they come
        self.pause: Callable[[], Awaitable[None]] | None = None  # what it wants awaited


class _Silence:
    """The waits of a call for its upstream, each with a limit. One timer looks after all of them, which costs less.

    `since_s` is the time, by `loop`, from which on the upstream is silent.
    """

    __slots__ = ("_limit", "_over", "_timer", "_waiter", "idle_s", "loop", "since_s")

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._limit: tuple[float, str] = (0.0, "")
        self._over: Callable[[str, float], None] = _do_nothing

    async def wait(self) -> None:
        """Wait until something comes, or the limit is reached."""
        self.since_s = self.loop.time()
        self._waiter = self.loop.create_future()
        await self._waiter

    def wake(self) -> None:
        """End the wait."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def allow(self, limit_s: float, meaning: str, over: Callable[[str, float], None]) -> None:
        """Limit each wait from now on: `over` is called then. The timer looks often enough for the next limit, too."""
        self._limit, self._over = (limit_s, meaning), over
        if self._timer is None and limit_s < math.inf:
            self._timer = self.loop.call_later(min(limit_s, self.idle_s), self._check_silence)

    def call_later(self, delay_s: float, end: Callable[[], None]) -> None:
        """Call `end` after so long, in place of all limits."""
        self._timer = self.loop.call_later(delay_s, end)

    def stop(self) -> None:
        """Remove the limit on waiting."""
        self._over = _do_nothing  # which referred to the call
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self) -> None:
        """Call the callback if the wait has reached its limit; else check again later."""
        limit_s, meaning = self._limit
        waited_s = self.loop.time() - self.since_s if self._waiter is not None else 0.0
        if waited_s >= limit_s:
            self._over(meaning, limit_s)
        else:
            self._timer = self.loop.call_later(min(limit_s - waited_s, self.idle_s), self._check_silence)


def _do_nothing(meaning: str, limit_s: float) -> None:
    """Do nothing at a limit that holds no more."""


class UpstreamCall:
    """A request under way; a turn of its upstream connection. Close it whatever happens: `close` is idempotent.

    `silence_s` replaces the limits of the endpoint for the first byte and between bytes; `math.inf`: there is none.
    `is_once`: the request may have an effect as soon as it is sent, so it is never sent again.
    """

    def __init__(
        self, pool: Pool, *, method: bytes = b"POST", silence_s: float | None = None, is_once: bool = False
    ) -> None:
        self._pool = pool
        self._first_byte_s = pool.endpoint.first_byte_s if silence_s is None else silence_s
        self._silence = _Silence(pool.endpoint.idle_s if silence_s is None else silence_s)
        self._is_once = is_once
        self._upstream: UpstreamConnection | None = None
        self._answer = _Answer(method)
        self.kept_bytes = 0  # of the body, but for what `read_each` gave on as it came
        self._failure: BaseException | None = None
        self._began = False  # some byte of the answer came
        self._unanswered = False  # the connection closed before
        self._reading = False
        self._done = False
        self._left = False  # the rest has no reader
        self.given_up = False  # closed by its maker before the answer was whole
        self.sent = False  # it had a connection to go over

    async def send(self, request: bytes) -> ResponseHead:
        """Send a whole request; return the head of the answer. Raises GatewayError (upstream_error, upstream_timeout).

        A reused connection that closes before it answers anything costs nothing: the request goes over a fresh one,
        unless it is to be sent once. After a limit, or `close`, it is never sent again.
        """
        upstream = self._pool.take_idle()
        if upstream is not None:
            self._attach(upstream, request)
            head = await self._await_head()
            if head is not None or not self._unanswered or not upstream.reused:
                return self._require_head(head)
            self._pool.end_old_connections(upstream)
            if self._is_once:
                return self._require_head(head)
            self._failure, self._unanswered = None, False
        self._attach(await self._pool.connect(), request)
        return self._require_head(await self._await_head())

    async def read_more(self) -> bytes:
        """Return the payload of the body that came since the last call; wait if there is none. b"" at its end.

        Raises GatewayError if the answer is cut, broken, or silent for too long.
        """
        self._begin_reading()
        while not self._answer.pieces:
            self._raise_failure()
            if self._done:
                return b""
            await self._silence.wait()
        return self._take_held()

    async def read_each(self, take: Take) -> None:
        """Give the rest of the body to `take`, as it comes: a turn of the event loop less than `read_more`.

        Raises what `read_more` does, and what `take` raises, which ends the call.
        """
        self._begin_reading()
        while True:
            while self._answer.pieces:
                if (pause := take(self._take_held())) is not None:
                    await pause()
            if self._left:
                return
            self._raise_failure()
            if self._done:
                return
            self._answer.take = take
            self._begin_chunk_relay()
            try:
                await self._silence.wait()
            finally:
                self._end_chunk_relay()
                self._answer.take = None
            if (wanted := self._answer.pause) is not None:
                self._answer.pause = None
                await wanted()

    def leave(self, *, within_s: float) -> None:
        """End the reading: the rest of the body does not matter.

        The connection can be used again if the body ends `within_s`; else it is closed.
        """
        self._end_chunk_relay()
        self._answer.take, self._left = None, True
        self._answer.pieces.clear()
        self._silence.stop()
        if self._upstream is not None and not (self._answer.body is not None and self._answer.body.done):
            self._silence.call_later(within_s, self._abort_connection)
        self._silence.wake()

    def _abort_connection(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()

    async def read_within(self, limit_bytes: int) -> bytes:
        """Read the body; of one that is longer than `limit_bytes` a little more than that. Raises GatewayError."""
        pieces: list[bytes] = []
        while limit_bytes >= 0 and (piece := await self.read_more()):
            pieces.append(piece)
            limit_bytes -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """End the call; a connection whose answer is not whole is closed at once, and its reader gets the error."""
        if self._left:
            return
        self._end_chunk_relay()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        self._silence.stop()
        if not self._done and self._failure is None:
            self.given_up = True
            self._failure = GatewayError("upstream_error", f"Upstream {self._pool.endpoint.name!r} was given up.")
        self._silence.wake()

    # As a turn of the connection.

    def on_response_bytes(self, data: bytes) -> None:
        """Read a bounded part of the answer in this turn of the loop, and the rest in the next ones."""
        self._began = True
        self._end_chunk_relay()
        if self._answer.unread:
            data = self._answer.unread + data
        if len(data) > TURN_BYTES:
            data, self._answer.unread = data[:TURN_BYTES], data[TURN_BYTES:]
        else:
            self._answer.unread = b""
        self._read_answer(data)
        if self._has_pending and self._upstream is not None:
            self._upstream.yield_turn(self._continue_reading)

    @property
    def _has_pending(self) -> bool:
        """Return whether something of the answer is here that waits for another turn of the loop."""
        return bool(self._answer.unread) or (self._answer.body is not None and self._answer.body.waiting)

    def _continue_reading(self) -> bool:
        if self._upstream is not None and self._has_pending:
            self.on_response_bytes(b"")
        return self._upstream is not None and self._has_pending

    def _read_answer(self, data: bytes) -> None:
        """Parse bytes of the answer: head first, then the body for the reader or its callback."""
        try:
            if self._answer.body is None:
                for head in self._answer.heads.feed(data):
                    if head.status == 101:
                        raise ResponseError("it switched protocols although the request did not")
                    if head.status >= 200:
                        self._answer.head, self._answer.body = head, build_body(head, payload_only=True)
                if self._answer.body is None:
                    return
                data = self._answer.heads.rest
            payload = self._answer.body.feed(data)
        except (ResponseError, BodyError) as error:
            self._fail(str(error))
            return
        if payload and self._answer.take is not None:
            self._deliver(payload)
        elif payload and not self._left:
            self._answer.pieces.append(payload)
            self._answer.held_bytes += len(payload)
            self.kept_bytes += len(payload)
            if self._answer.held_bytes > HIGH_WATER_BYTES and self._upstream is not None:
                self._upstream.pause()
        if self._answer.body.done:
            self._complete(clean=not self._answer.body.rest and not self._answer.unread)
            self._silence.wake()
        elif self._answer.take is not None:
            self._begin_chunk_relay()
        else:
            self._silence.wake()

    def _begin_chunk_relay(self) -> None:
        """Pass whole chunks to `take` directly, as most events of a stream arrive."""
        body = self._answer.body
        if (
            self._upstream is not None
            and not self._answer.unread
            and isinstance(body, ChunkedBody)
            and body.between_chunks
        ):
            self._upstream.relay = self._take_chunk

    def _end_chunk_relay(self) -> None:
        if self._upstream is not None:
            self._upstream.take_back()

    def _take_chunk(self, chunk: bytes) -> None:
        """Take one whole chunk, with its framing."""
        self._deliver(chunk[chunk.index(b"\n") + 1 : -2])

    def _deliver(self, payload: bytes) -> None:
        """Pass payload to the callback of `read_each`; an exception of it ends the call."""
        self._silence.since_s = self._silence.loop.time()
        assert self._answer.take is not None
        try:
            pause = self._answer.take(payload)
        except Exception as error:
            self._answer.take, self._failure = None, without_traceback(error)
            self.close()
        else:
            if pause is not None:
                self._answer.take, self._answer.pause = None, pause
                self._end_chunk_relay()
                self._silence.wake()

    def on_upstream_eof(self) -> bool:
        return False

    def on_upstream_lost(self, error: Exception | None) -> None:
        """Complete an answer that ends with its connection; else fail the call."""
        self._upstream = None
        while self._has_pending and not self._done and self._failure is None:
            self.on_response_bytes(b"")  # at most one read: what came before the end counts
        if self._done or self._failure is not None:
            return
        if self._answer.head is not None and self._answer.head.framing == "close" and error is None:
            self._done = True
        else:
            self._unanswered = not self._began
            self._fail("it closed the connection in the middle of its answer" if self._began else "it did not answer")
        self._silence.wake()

    def on_upstream_full(self) -> None:
        """Do nothing: a request is written whole, and how much of it the kernel has taken does not matter."""

    def on_upstream_drained(self) -> None:
        """See `on_upstream_full`."""

    def _begin_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._silence.allow(self._silence.idle_s, "was silent for", self._fail_silent)

    def _take_held(self) -> bytes:
        """Return the bytes that have come and were not taken."""
        pieces, self._answer.pieces = self._answer.pieces, []
        self._answer.held_bytes = 0
        if self._upstream is not None:
            self._upstream.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _attach(self, upstream: UpstreamConnection, request: bytes) -> None:
        self._upstream, self.sent = upstream, True
        upstream.begin(self, request)

    async def _await_head(self) -> ResponseHead | None:
        """Wait for the head, at most the first-byte limit. Return None if the call failed."""
        limit_s = self._first_byte_s
        self._silence.allow(limit_s, "did not answer within", self._fail_silent)
        while self._answer.head is None and self._failure is None:
            await self._silence.wait()
        return self._answer.head

    def _require_head(self, head: ResponseHead | None) -> ResponseHead:
        if head is None:
            self._raise_failure()
        assert head is not None
        return head

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise without_traceback(self._failure)

    def _fail_silent(self, meaning: str, limit_s: float) -> None:
        """End a call whose upstream was silent for too long."""
        said = f"Upstream {self._pool.endpoint.name!r} {meaning} {limit_s:g} s."
        self._failure = GatewayError("upstream_timeout", said)
        self.close()

    def _complete(self, *, clean: bool) -> None:
        """Mark the answer as whole, and give the connection back to the pool if it can be reused."""
        self._done = True
        self._silence.stop()
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        assert self._answer.head is not None
        if clean and self._answer.head.keep_alive:
            self._pool.return_connection(upstream, idle_timeout_s=self._answer.head.idle_timeout_s)
        else:
            upstream.abort()

    def _fail(self, reason: str) -> None:
        """Fail the call with an upstream_error, or only close the connection if its reader has left."""
        if self._left:
            self._abort_connection()
            return
        self._failure = GatewayError("upstream_error", f"Upstream {self._pool.endpoint.name!r} failed: {reason}.")
        self.close()
