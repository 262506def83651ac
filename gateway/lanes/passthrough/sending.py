"""A passthrough transaction's request: its way to an upstream connection, pooled or made for it, as fast as it reads.

Invariants: the framing of a body is checked before it goes on; nothing piles up: a client whose body cannot go on is
paused; a request goes out a second time only over a fresh connection, if it is repeatable and nothing was answered.

A request that takes places which others want (`Plan.gathers`) begins when its body is whole, or longer than is held:
until then it is no reason to keep anybody out. From then on its body has to keep up `limits.body_rate`.
"""

import asyncio
from time import perf_counter
from typing import Final

from gateway.auth.keyring import get_peer_address, invalid_key
from gateway.contracts.errors import GatewayError
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.pace import LEAST_RATE, BodyPace
from gateway.lanes.plan import Plan
from gateway.lanes.transaction import SENDING, Client
from gateway.upstream.connection import HIGH_WATER_BYTES, UpstreamConnection

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: An upload pauses for so long when its upstream begins to answer, so that the answer is read first.
EARLY_ANSWER_S = 0.005
#: The longest body that is kept to be sent again, until the answer begins: as long as `retry.body` is by itself.
REPEAT_BYTES: Final = 1 << 20


class Sending:
    """The half of a passthrough transaction that sends; `Splice` has the other one, which answers and ends it."""

    # Each turn begins with these; as class attributes they cost nothing until they change.
    _length: int  # of the request's body; if it is chunked, of what was here with its head
    _request: Body | None = None  # the rest of the request's body, None once it is whole
    _answer: Body | None = None  # the answer's body, None before its head
    _upstream: UpstreamConnection | None = None
    _connecting: asyncio.Task[None] | None = None
    _again_with: list[bytes] | None = None  # the request so far, while it may be sent again over a fresh connection
    _upstream_full = False
    _invited = False  # to send its body (100 Continue)
    _moved: float | None = None  # loop time at which something last moved; None: since the last sweep
    _pace: BodyPace | None = None  # from the first sweep that finds the body unfinished
    _least_rate = LEAST_RATE
    _held: bytearray | None = None  # the body so far of a request that has not begun
    _held_digits = b""
    _accounts: type[Accounting] = Accounting

    def __init__(self, client: Client, plan: Plan, began: float) -> None:
        self._client = client
        self._plan = plan
        self._account = self._accounts(plan, client, began)
        self._pending: list[bytes] = []

    def start(self, digits: bytes, body: bytes) -> None:
        """Send the request's head, with what is here of its body, to an upstream connection."""
        plan, client = self._plan, self._client
        length = int(digits) if digits else plan.length
        if plan.chunked or len(body) < length:
            self._request = ChunkedBody() if plan.chunked else LengthBody(length)
            if (fed := self._feed_request(body)) is None:
                return
            body = fed
            if plan.gathers is not None and self._request is not None:
                self._length = length
                self._hold(digits, body, most_bytes=plan.gathers)
                return
        elif len(body) > length:
            client.hold(body[length:])
            body = body[:length]
        self._account.received_bytes = len(body)
        self._length = length or len(body)
        self._begin(digits, body)
        self._account.request_started()

    def _hold(self, digits: bytes, body: bytes, *, most_bytes: int) -> None:
        """Hold the request until its body is whole, or longer than `most_bytes`."""
        self._held, self._held_digits = bytearray(body), digits
        self._account.received_bytes = len(body)
        if self._plan.expects_continue and not body:
            self._invited = True  # nobody else can invite what is held
            self._client.write(CONTINUE)
        self._account.request_started()
        self._begin_if_here(self._held, most_bytes)

    def _begin_if_here(self, held: bytearray, most_bytes: int) -> None:
        """Begin a request that is held, if enough of its body is here."""
        if self._request is not None and len(held) <= most_bytes:
            return
        body, self._held = bytes(held), None
        key, router = self._plan.key, self._client.listener.router
        if key is not None and not router.keys.allows(key, get_peer_address(self._client.transport)):
            self._fail(invalid_key(), outcome="cancelled")
            return
        self._length = self._length or len(body)
        self._least_rate = router.timeouts.body_rate
        self._begin(self._held_digits, body)

    def _begin(self, digits: bytes, body: bytes) -> None:
        """Send the head and what is here of the body, over an idle connection or a new one."""
        plan = self._plan
        request = b"".join((plan.before, digits, plan.after, body))
        upstream = plan.pool.take()
        if upstream is None:
            self._open(request)
        else:
            if plan.repeatable:
                self._again_with = [request]
            self._attach(upstream, request)

    def request_received(self, data: bytes) -> None:
        if self._request is None:
            self._client.hold(data)
            return
        fed = self._feed_request(data)
        if not fed:
            return
        self._account.received_bytes += len(fed)
        self._moved = None
        if (request := self._again_with) is not None:
            if self._account.received_bytes <= REPEAT_BYTES:
                request.append(fed)
            else:
                self._again_with = None
        if self._held is not None and self._plan.gathers is not None:
            self._held += fed
            self._begin_if_here(self._held, self._plan.gathers)
        elif self._upstream is None:
            self._pending.append(fed)
            if self._account.received_bytes > HIGH_WATER_BYTES:  # nothing of it has gone on
                self._client.pause(SENDING)
        elif self._pending or (self._answer is None and self._upstream.stale()):
            # An early answer waits to be read, perhaps with the end of its connection behind it. Writing into that end
            # would lose the answer, so it is read first.
            self._pending.append(fed)
            self._client.pause(SENDING)
            self._client.listener.loop.call_later(EARLY_ANSWER_S, self._send_pending)
        else:
            self._upstream.write(fed)

    def _feed_request(self, data: bytes) -> bytes | None:
        """Return the bytes of the client that go upstream; None after its framing broke and the transaction ended."""
        body = self._request
        assert body is not None
        try:
            fed = body.feed(data)
        except BodyError as error:
            if self._answer is None:
                self._fail(GatewayError("bad_framing", f"The request body is malformed: {error}."), outcome="cancelled")
            else:
                self._cut("cancelled")
            return None
        if body.done:
            self._request = None
            if body.rest:
                self._client.hold(body.rest)
        elif body.waiting:
            self._client.yield_turn(self._request_on)
        return fed

    def _request_on(self) -> bool:
        """Go on with what is here of the body. Return whether more waits for another turn of the loop."""
        if self._request is not None and self._under_way:
            self.request_received(b"")
        return self._request is not None and self._request.waiting and self._under_way

    def _open(self, request: bytes) -> None:
        self._pending.append(request)
        self._connecting = self._client.listener.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            upstream = await self._plan.pool.connect()
        except GatewayError as error:
            self._connecting = None
            self._fail(error, outcome="timeout" if error.code == "upstream_timeout" else "connect")
            return
        self._connecting = None
        pending, self._pending = b"".join(self._pending), []
        self._attach(upstream, pending)

    def _end_unanswered(self, upstream: UpstreamConnection) -> bool:
        """End a connection that was lost before it answered. Return whether the request goes over a fresh one instead.

        A balancer that forgot this connection has forgotten those that have waited for longer, too.
        """
        if not upstream.reused or not self._unanswered:
            return False
        plan, request = self._plan, self._again_with
        plan.pool.doubt(upstream)
        if request is None:
            return False
        plan.upstream.retries["stale"] += 1
        self._again_with, self._upstream_full = None, False
        self._pending.clear()  # they are parts of the request, too
        self._open(b"".join(request))
        return True

    def _send_pending(self) -> None:
        """Go on with the request's body after a look at what the upstream had to say."""
        if self._upstream is not None and self._pending:
            self._upstream.write(b"".join(self._pending))
            self._pending.clear()
            if not self._upstream_full:
                self._client.resume(SENDING)

    def _attach(self, upstream: UpstreamConnection, data: bytes) -> None:
        client = self._client
        self._upstream = upstream
        if client.blocked_since is not None:
            upstream.pause()
        if not self._upstream_full:
            client.resume(SENDING)
        self._moved = None
        self._account.sent_at = perf_counter()
        upstream.begin(self, data)

    def upstream_full(self) -> None:
        self._upstream_full = True
        if self._request is not None:
            self._client.pause(SENDING)

    def upstream_drained(self) -> None:
        self._upstream_full = False
        self._moved = None
        self._client.resume(SENDING)

    @property
    def _unanswered(self) -> bool:
        """Return whether no byte of an answer came."""
        raise NotImplementedError

    @property
    def _under_way(self) -> bool:
        turn: object = self._client.transaction
        return turn is self

    @property
    def _waits_to_be_invited(self) -> bool:
        return self._plan.expects_continue and not (self._invited or self._account.received_bytes)

    def _body_late(self, now: float) -> bool:
        """Return whether the client takes too long over its body; time when it cannot or need not send is free."""
        received, limit_s = self._account.received_bytes, self._client.listener.router.timeouts.body_idle_s
        if self._pace is None:
            self._pace = BodyPace(now, idle_s=limit_s, received_bytes=received)
        elif self._upstream_full or self._waits_to_be_invited:
            self._pace.excuse(now)
        else:
            return self._pace.late(now, idle_s=limit_s, received_bytes=received, least_rate=self._least_rate)
        return False

    # The other half.

    def response_received(self, data: bytes) -> None:
        raise NotImplementedError

    def upstream_eof(self) -> bool:
        raise NotImplementedError

    def upstream_lost(self, error: Exception | None) -> None:
        raise NotImplementedError

    def _fail(self, error: GatewayError, *, outcome: str) -> None:
        raise NotImplementedError

    def _cut(self, outcome: str) -> None:
        raise NotImplementedError
