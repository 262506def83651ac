"""The request of a passthrough exchange: its way to an upstream connection, pooled or made for it, as fast as it reads.

Invariants: the framing of a body is checked before it goes on; nothing piles up: a client whose body cannot go on is
paused; a request goes out a second time only over a fresh connection, if it is repeatable and nothing was answered.

A request that takes places which others want (`Policy.held_bytes`) begins when its body is whole, or longer than is
held: until then it is no reason to keep anybody out. From then on its body has to keep up `limits.body_rate`.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from gateway.auth.keyring import build_invalid_key_error, get_peer_address
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.lanes.client import SENDING, Client
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.body_timeout import LEAST_RATE, BodyPace
from gateway.lanes.passthrough.dispatch.dispatcher import DIRECT, Dispatcher
from gateway.lanes.passthrough.observers.observer import REFUSED, Observer
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.upstream.connection import HIGH_WATER_BYTES, UpstreamConnection

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: An upload pauses for so long when its upstream begins to answer, so that the answer is read first.
EARLY_ANSWER_S = 0.005
#: The longest body that is kept to be sent again, until the answer begins: as long as `retry.body` is by itself.
REPEAT_BYTES: Final = 1 << 20


class RequestRelay:
    """The half of an exchange that sends; `PassthroughExchange` has the other one, which answers and ends it."""

    # Each exchange begins with these; as class attributes they cost nothing until they change.
    observers: Sequence[Observer] = ()
    dispatcher: Dispatcher = DIRECT
    has_choice = False  # of endpoints: the dispatcher takes more phases than the start
    has_followed_attempts = False  # by an observer
    request_body: Body | None = None  # the rest of the request's body, None once it is whole
    response_body: Body | None = None  # the response's body, None before its head
    upstream: UpstreamConnection | None = None
    connecting: asyncio.Task[None] | None = None
    repeat: list[bytes] | None = None  # the request so far, while it may be sent again over a fresh connection
    upload_blocked = False  # the upstream does not keep up
    invited = False  # to send its body (100 Continue)
    moved: float | None = None  # loop time at which something last moved; None: since the last sweep
    _pace: BodyPace | None = None  # from the first sweep that finds the body unfinished
    _least_rate = LEAST_RATE
    _held: bytearray | None = None  # the body so far of a request that has not begun
    _held_digits = b""
    _waits_for_room = False  # it has not begun, because it is not known yet whether there is room
    _length = 0  # of the held body, as its head says

    def __init__(self, client: Client, plan: Plan, began: float) -> None:
        self.client = client
        self.plan = plan
        self.target = plan.target
        self.record = record = AccessRecord(plan.head, plan.policy, plan.target, client, began)
        self.pending: list[bytes] = []
        if plan.dispatcher is not None:
            self.dispatcher = plan.dispatcher.build_dispatcher()
            self.has_choice = True
        if plan.observers is not None:
            self.observers = observers = []
            for make_observer in plan.observers.makers:
                observers.append(make_observer(record))  # noqa: PERF401 - a comprehension is a call
            if plan.observers.takes_attempts:
                self.has_followed_attempts = True

    def start(self, digits: bytes, body: bytes) -> None:
        """Send the request's head, with what is here of its body, to an upstream connection."""
        plan = self.plan
        length = int(digits) if digits else plan.head.length
        if length is None or len(body) < length:
            self.request_body = ChunkedBody() if length is None else LengthBody(length)
            if (fed := self._check_framing(body)) is None:
                return
            body = fed
            if plan.policy.held_bytes is not None and self.request_body is not None:
                self._length = length or 0
                self._hold_request(digits, body, most_bytes=plan.policy.held_bytes)
                return
        elif len(body) > length:
            self.client.hold_bytes(body[length:])
            body = body[:length]
        record = self.record
        record.received_bytes = len(body)
        self._begin(digits, body, length or len(body))
        record.overhead_s = perf_counter() - record.began

    def _hold_request(self, digits: bytes, body: bytes, *, most_bytes: int) -> None:
        """Hold the request until its body is whole, or longer than `most_bytes`."""
        self._held, self._held_digits = bytearray(body), digits
        self.record.received_bytes = len(body)
        if self.plan.head.expects_continue and not body:
            self.invite_body()
        self.record.overhead_s = perf_counter() - self.record.began
        self._begin_if_here(self._held, most_bytes)

    def invite_body(self) -> None:
        """Ask the client for a body that is held here, so that no upstream can ask."""
        self.invited = True
        self.client.write(CONTINUE)

    def _begin_if_here(self, held: bytearray, most_bytes: int) -> None:
        """Begin a request that is held, if enough of its body is here."""
        if self.request_body is not None and len(held) <= most_bytes:
            return
        body, self._held = bytes(held), None
        key, listener = self.target.identity.key, self.client.listener
        if key is not None and not listener.allows_key(key, get_peer_address(self.client.transport)):
            self.handle_failure(build_invalid_key_error(), outcome="cancelled")
            return
        self._least_rate = listener.timeouts.body_rate
        self._begin(self._held_digits, body, self._length or len(body))

    def _begin(self, digits: bytes, body: bytes, length: int) -> None:
        """Begin the request, unless an observer refuses it."""
        plan = self.plan
        if plan.observers is not None and plan.observers.requested:
            # A length that is only said, of a body that may stop, would keep others out.
            grows = self.request_body is not None and (plan.head.length is None or plan.policy.held_bytes is not None)
            try:
                for at in plan.observers.requested:
                    self.observers[at].on_request(length, body, grows)
            except UndecidedError as undecided:
                self._waits_for_room = True
                self.await_room(undecided, lambda: self._begin_anew(digits, body, length))
                return
            except GatewayError as error:
                self.fail_soon(error, outcome=REFUSED)
                return
        self.dispatcher.start(self, digits, body)

    def _begin_anew(self, digits: bytes, body: bytes, length: int) -> None:
        """Begin a request that had to wait, with what came of its body meanwhile."""
        self._waits_for_room = False
        pending, self.pending = self.pending, []
        body = b"".join((body, *pending))
        self._begin(digits, body, max(length, len(body)))

    def await_room(self, undecided: UndecidedError, resume: Callable[[], None]) -> None:
        """Go on once it is known whether there is room, unless the client has left by then."""

        def continue_exchange(_: object) -> None:
            if self.is_under_way:
                resume()

        undecided.answered.add_done_callback(continue_exchange)

    def on_request_bytes(self, data: bytes) -> None:
        if self.request_body is None:
            self.client.hold_bytes(data)
            return
        if fed := self._feed_request(data):
            self._relay_piece(fed)
        if self.dispatcher.awaits_body and self.is_under_way:
            self.dispatcher.on_body_arrived(self)

    def _relay_piece(self, fed: bytes) -> None:
        """Send a piece of the body on, or keep it until it can be sent."""
        record = self.record
        record.received_bytes += len(fed)
        self.moved = None
        if (request := self.repeat) is not None:
            if record.received_bytes <= REPEAT_BYTES:
                request.append(fed)
            else:
                self.repeat = None
        if self._held is not None and self.plan.policy.held_bytes is not None:
            self._held += fed
            self._begin_if_here(self._held, self.plan.policy.held_bytes)
        elif self.upstream is None:
            self.pending.append(fed)
            if record.received_bytes > HIGH_WATER_BYTES:  # nothing of it has gone on
                self.client.pause(SENDING)
        elif self.pending or (self.response_body is None and self.upstream.is_stale()):
            # An early answer waits to be read, perhaps with the end of its connection behind it. Writing into that end
            # would lose the answer, so it is read first.
            self.pending.append(fed)
            self.client.pause(SENDING)
            self.client.listener.loop.call_later(EARLY_ANSWER_S, self._send_pending)
        else:
            self.upstream.write(fed)

    def _feed_request(self, data: bytes) -> bytes | None:
        """Return the bytes of the client that go upstream; None after the exchange ended with them."""
        fed = self._check_framing(data)
        if fed is None or self._held is not None or self._waits_for_room:
            return fed
        self.dispatcher.note_request_piece(self, fed)
        if not fed:
            return fed
        for observer in self.observers:
            try:
                observer.on_request_body(fed)
            except GatewayError as error:
                if self.response_body is None:  # else the request is being answered
                    self.handle_failure(error, outcome=REFUSED)
                    return None
        return fed

    def _check_framing(self, data: bytes) -> bytes | None:
        """Return the bytes that belong to the request's body; None after its framing broke and the exchange ended."""
        body = self.request_body
        assert body is not None
        try:
            fed = body.feed(data)
        except BodyError as error:
            if self.response_body is None:
                self.handle_failure(
                    GatewayError("bad_framing", f"The request body is malformed: {error}."), outcome="cancelled"
                )
            else:
                self.cut_answer("cancelled")
            return None
        if body.done:
            self.request_body = None
            if body.rest:
                self.client.hold_bytes(body.rest)
        elif body.waiting:
            self.client.yield_turn(self._continue_request)
        return fed

    def _continue_request(self) -> bool:
        """Go on with what is here of the body. Return whether more waits for another turn of the loop."""
        if self.request_body is not None and self.is_under_way:
            self.on_request_bytes(b"")
        return self.request_body is not None and self.request_body.waiting and self.is_under_way

    # Attempts.

    @property
    def has_routed_observers(self) -> bool:
        """Return whether an observer may refuse an upstream."""
        return self.plan.observers is not None and bool(self.plan.observers.routed)

    def start_attempt(self, target: PlanTarget) -> PlanTarget:
        """Return a target as the request is to be sent there: an attempt begins."""
        for observer in self.observers:
            target = observer.on_attempt_started(target)
        return target

    def end_attempt(self, target: PlanTarget, outcome: str, status: int = 0) -> None:
        """Note that an attempt has ended whose response is not the client's."""
        for observer in self.observers:
            observer.on_attempt_ended(target, outcome, status)

    def choose_model(self, model: str, pieces: Sequence[bytes]) -> None:
        """Note the model of the request, with what is here of its body. Raises GatewayError: it may not go there."""
        if self.plan.observers is not None:
            for at in self.plan.observers.modelled:
                self.observers[at].on_model(model, pieces)

    def choose_upstream(self, upstream: str) -> None:
        """Note that the request is about to go to an upstream. Raises GatewayError: it has no room there."""
        if self.plan.observers is not None:
            for at in self.plan.observers.routed:
                self.observers[at].on_upstream(upstream)

    def switch_target(self, target: PlanTarget) -> None:
        """Send the request to this endpoint from now on."""
        self.target = self.record.target = target

    def open(self, request: bytes) -> None:
        """Open a connection for the request; `Dispatcher.on_connected` follows."""
        self.pending.append(request)
        self.connecting = self.client.listener.loop.create_task(self.connect())

    async def connect(self) -> None:
        """Open a connection for what is pending."""
        try:
            upstream = await self.target.member.pool.connect()
        except GatewayError as error:
            self.connecting = None
            self.handle_failure(error, outcome="timeout" if error.code == "upstream_timeout" else "connect")
            return
        self.connecting = None
        pending, self.pending = b"".join(self.pending), []
        self.dispatcher.on_connected(self, upstream, pending)

    def attach_connection(self, upstream: UpstreamConnection, data: bytes) -> None:
        """Send the request, or the beginning of it, over a connection."""
        client = self.client
        self.upstream = upstream
        if client.blocked_since is not None:
            upstream.pause()
        if not self.upload_blocked:
            client.resume(SENDING)
        self.moved = None
        self.record.sent_at = perf_counter()
        upstream.begin(self, data)

    def _repeat_unanswered(self, upstream: UpstreamConnection) -> bool:
        """End a connection that was lost before it answered. Return whether the request goes over a fresh one instead.

        A balancer that forgot this connection has forgotten those that have waited for longer, too.
        """
        if not (upstream.reused and self.is_unanswered and self.dispatcher.is_silent):
            return False
        pool, request = self.target.member.pool, self.repeat
        pool.end_old_connections(upstream)
        if request is None:
            return False
        self.target.group.tally.retries["stale"] += 1
        self.repeat, self.upload_blocked = None, False
        self.pending.clear()  # they are parts of the request, too
        self.open(b"".join(request))
        return True

    def _send_pending(self) -> None:
        """Go on with the request's body after a look at what the upstream had to say."""
        if self.upstream is not None and self.pending:
            self.upstream.write(b"".join(self.pending))
            self.pending.clear()
            if not self.upload_blocked:
                self.client.resume(SENDING)

    def on_upstream_full(self) -> None:
        self.upload_blocked = True
        if self.request_body is not None:
            self.client.pause(SENDING)

    def on_upstream_drained(self) -> None:
        self.upload_blocked = False
        self.moved = None
        self.client.resume(SENDING)

    @property
    def is_under_way(self) -> bool:
        """Return whether this is still the transaction of its client."""
        turn: object = self.client.transaction
        return turn is self

    @property
    def _waits_to_be_invited(self) -> bool:
        return self.plan.head.expects_continue and not (self.invited or self.record.received_bytes)

    def _is_body_late(self, now: float) -> bool:
        """Return whether the client takes too long over its body; time when it cannot or need not send is free."""
        received, limit_s = self.record.received_bytes, self.client.listener.timeouts.body_idle_s
        if self._pace is None:
            self._pace = BodyPace(now, idle_s=limit_s, received_bytes=received)
        elif self.upload_blocked or self._waits_to_be_invited:
            self._pace.excuse_elapsed_time(now)
        else:
            return self._pace.is_late(now, idle_s=limit_s, received_bytes=received, least_rate=self._least_rate)
        return False

    # The other half.

    @property
    def is_unanswered(self) -> bool:
        """Return whether no byte of a response came."""
        raise NotImplementedError

    def on_response_bytes(self, data: bytes) -> None:
        raise NotImplementedError

    def on_upstream_eof(self) -> bool:
        raise NotImplementedError

    def on_upstream_lost(self, error: Exception | None) -> None:
        raise NotImplementedError

    def forward_response(self, data: bytes) -> None:
        raise NotImplementedError

    def forwards_interim(self, status: int) -> bool:
        raise NotImplementedError

    def forget_response(self) -> None:
        raise NotImplementedError

    def drop_upstream(self) -> None:
        raise NotImplementedError

    def handle_failure(self, error: GatewayError, *, outcome: str) -> None:
        raise NotImplementedError

    def fail_soon(self, error: GatewayError, *, outcome: str) -> None:
        raise NotImplementedError

    def respond_error(self, error: GatewayError, *, outcome: str) -> None:
        raise NotImplementedError

    def cut_answer(self, outcome: str) -> None:
        raise NotImplementedError
