"""The second request of a hedge: the same request at another endpoint, until one of the two answers.

It holds its own connection and its own place. It reads no answer: with the first bytes that can be judged, its
connection goes to the splice, or ends. Exactly one of `drop`, `release` and the loss of the connection ends it.
"""

import asyncio
from time import perf_counter
from typing import Final, Protocol

from gateway.errors import GatewayError
from gateway.lanes.plan import Plan
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.tries import FAILING, Tries

_STATUS_BYTES: Final = 12


class Hedged(Protocol):
    """The transaction that the second request belongs to."""

    def second_answers(self, second: "Second", data: bytes) -> None: ...
    def second_connected(self, second: "Second") -> None: ...
    def second_failed(self, second: "Second", error: GatewayError, *, outcome: str, answer: bytes) -> None: ...


class Second:
    """A request under way beside another; a turn of its upstream connection."""

    def __init__(self, owner: Hedged, tries: Tries, plan: Plan, request: bytes) -> None:
        self.tries = tries
        self.plan = plan
        self.sent_at = 0.0
        self._owner = owner
        self._request = request
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._seen = b""

    @property
    def connected(self) -> bool:
        return self._upstream is not None

    def start(self) -> None:
        """Send the request, over an idle connection or a new one."""
        upstream = self.plan.pool.take()
        if upstream is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._begin(upstream)

    async def _connect(self) -> None:
        try:
            upstream = await self.plan.pool.connect()
        except GatewayError as error:
            self._connecting = None
            self._fail(error, outcome="connect", reason="connect")
            return
        self._connecting = None
        self._begin(upstream)

    def _begin(self, upstream: UpstreamConnection) -> None:
        self._upstream, self.sent_at = upstream, perf_counter()
        upstream.begin(self, self._request)
        if self._upstream is not None:
            self._owner.second_connected(self)

    def release(self) -> UpstreamConnection:
        """Hand the connection over."""
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
        self.tries.ended(failed=None)

    def _fail(self, error: GatewayError, *, outcome: str, reason: str, answer: bytes = b"") -> None:
        self.tries.again(reason, possible=False)
        self._owner.second_failed(self, error, outcome=outcome, answer=answer)

    # As a turn of the connection.

    def response_received(self, data: bytes) -> None:
        data = self._seen + data
        status = data[9:_STATUS_BYTES].decode("latin-1")
        if len(data) < _STATUS_BYTES:
            self._seen = data
        elif status in FAILING or status == "429":
            upstream, self._upstream = self._upstream, None
            if upstream is not None:
                upstream.abort()
            name = self.plan.pool.endpoint.name
            error = GatewayError("upstream_error", f"Upstream {name!r} answered {status}.")
            self._fail(error, outcome="error", reason=status, answer=data)
        else:
            self._owner.second_answers(self, data)

    def upstream_eof(self) -> bool:
        if self._upstream is not None:
            self._upstream.transport.abort()
        return False

    def upstream_lost(self, error: Exception | None) -> None:
        del error
        self._upstream = None
        name = self.plan.pool.endpoint.name
        cause = f"Upstream {name!r} failed: it closed the connection before it answered."
        self._fail(GatewayError("upstream_error", cause), outcome="reset", reason="reset")

    def upstream_full(self) -> None:
        """Do nothing: the request is whole, and written at once."""

    def upstream_drained(self) -> None:
        """See `upstream_full`."""
