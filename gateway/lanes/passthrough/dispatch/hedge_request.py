"""The second request of a hedge: the same request at another endpoint, until one of the two answers.

It holds its own connection and its own place. Of the answer it reads the head and the first byte behind it: if the head
is a final one and no error, the exchange takes the connection, with all that came so far; anything else ends it.
Exactly one of `drop`, `release` and a failure ends it.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Any, Protocol

from gateway.contracts.errors import GatewayError
from gateway.http.body import BodyError
from gateway.http.response_head import (
    HEAD_LIMIT_BYTES,
    ResponseError,
    ResponseHead,
    build_body,
    find_final_head,
    may_become_head,
    parse_response_head,
)
from gateway.lanes.passthrough.dispatch.dispatcher import DispatchedExchange
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.upstream.attempts import Tries
from gateway.upstream.connection import UpstreamConnection


class HedgeOwner(Protocol):
    """The dispatcher that asked a second endpoint."""

    def on_second_answered(self, exchange: DispatchedExchange, second: "HedgeRequest") -> None: ...
    def on_second_connected(
        self, exchange: DispatchedExchange, second: "HedgeRequest", upstream: UpstreamConnection
    ) -> bool:
        """Return whether the connection is taken, because the first request has failed meanwhile."""
        ...

    def on_second_failed(self, exchange: DispatchedExchange, second: "HedgeRequest", failure: "Failure") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of a second request without a good answer.

    `reason` is that of `Tries.again`. `stale`: an idle connection was closed, which is no fault. `answer` is what came
    of an answer, and `head` its head, which ends at `end`; None: there is none.
    """

    error: GatewayError
    outcome: str
    reason: str
    stale: bool = False
    head: ResponseHead | None = None
    answer: bytes = b""
    end: int = 0


class HedgeRequest:
    """A request under way beside another; a turn of its upstream connection."""

    def __init__(
        self, owner: HedgeOwner, exchange: DispatchedExchange, tries: Tries, target: PlanTarget, request: bytes
    ) -> None:
        self.tries = tries
        self.target = target
        self.request = request
        self.sent_at = 0.0
        self.seen = b""  # of the answer
        self._owner = owner
        self._exchange = exchange
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._upstream is not None

    def start(self) -> None:
        """Send the request, over an idle connection or a new one."""
        upstream = self.target.member.pool.take_idle()
        if upstream is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._send_request(upstream)

    async def _connect(self) -> None:
        """Open a connection and send the request, or report the failure to the owner."""
        try:
            upstream = await self.target.member.pool.connect()
        except GatewayError as error:
            self._connecting = None
            self._owner.on_second_failed(
                self._exchange, self, Failure(error=error, outcome="connect", reason="connect")
            )
            return
        self._connecting = None
        self._send_request(upstream)

    def _send_request(self, upstream: UpstreamConnection) -> None:
        """Send the request, unless the owner takes the connection for its own request."""
        if not self._owner.on_second_connected(self._exchange, self, upstream):
            self._upstream, self.sent_at = upstream, perf_counter()
            upstream.begin(self, self.request)

    def release(self) -> UpstreamConnection:
        """Return the connection to a caller that continues with it."""
        upstream, self._upstream = self._upstream, None
        assert upstream is not None
        return upstream

    def drop(self) -> None:
        """End the request: the other one has answered, or the client has left. Idempotent."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        self.tries.end(failed=None)

    def _fail(self, cause: str, *, outcome: str, reason: str, **more: Any) -> None:
        """Close the connection, and report the failure to the owner."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        error = GatewayError("upstream_error", f"Upstream {self.target.member.pool.endpoint.name!r} {cause}.")
        self._owner.on_second_failed(self._exchange, self, Failure(error=error, outcome=outcome, reason=reason, **more))

    # As a turn of the connection.

    def on_response_bytes(self, data: bytes) -> None:
        """Read the head of the answer, and report to the owner whether it is good or failed."""
        self.seen = data = self.seen + data
        try:
            start = find_final_head(data, method=self._exchange.record.head.method)
            end = data.find(b"\r\n\r\n", start) + 4
            if end < 4 and len(data) <= HEAD_LIMIT_BYTES and may_become_head(data[start:]):
                return
            if end < 4 or end - start > HEAD_LIMIT_BYTES:
                raise ResponseError("its head is malformed or too large")
            head = parse_response_head(data[start:end], method=self._exchange.record.head.method)
            if head.status < HTTPStatus.OK:
                raise ResponseError("it switched protocols without being asked")
        except ResponseError as error:
            self._fail(f"failed: {error}", outcome="invalid", reason="reset")
            return
        if head.status >= HTTPStatus.BAD_REQUEST:
            outcome = "error" if head.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "ok"
            answer = {"head": head, "answer": data[start:], "end": end - start}
            self._fail(f"answered {head.status}", outcome=outcome, reason=str(head.status), **answer)
        elif not _is_body_pending(head, data[end:]):
            self._owner.on_second_answered(self._exchange, self)

    def on_upstream_eof(self) -> bool:
        if self._upstream is not None:
            self._upstream.transport.abort()
        return False

    def on_upstream_lost(self, error: Exception | None) -> None:
        """Report the lost connection as a failure; a stale idle one also ends others as old as it."""
        del error
        upstream, self._upstream = self._upstream, None
        stale = upstream is not None and upstream.reused and not self.seen
        if stale and upstream is not None:
            self.target.member.pool.end_old_connections(upstream)
        cause = "failed: it closed the connection before it answered"
        self._fail(cause, outcome="reset", reason="reset", stale=stale)

    def on_upstream_full(self) -> None:
        """Do nothing: the request is whole, and written at once."""

    def on_upstream_drained(self) -> None:
        """See `on_upstream_full`."""


def is_only_success_head(data: bytes, method: bytes) -> bool:
    """Return whether an answer so far is a whole final head, no error, of whose body nothing is here yet."""
    end = data.find(b"\r\n\r\n") + 4
    if end < 4 or not data.startswith((b"2", b"3"), 9):
        return False
    with suppress(ResponseError):  # it is reported where it is read
        return _is_body_pending(parse_response_head(data[:end], method=method), data[end:])
    return False


def _is_body_pending(head: ResponseHead, begun: bytes) -> bool:
    """Return whether the head promises a body (by length or chunks) of which no byte is here yet."""
    body = build_body(head, payload_only=True)
    try:
        return head.framing != "close" and not body.feed(begun) and not body.done
    except BodyError:
        return False
