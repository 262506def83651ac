"""The response of a passthrough exchange: its way from the upstream connection to the client, as it came.

A regular response (one Content-Length, nothing about this hop) is not parsed. Whole chunks of a chunked one may go past
the exchange. Observers that read the payload get a copy of it (observers/tee.py).
"""

from collections.abc import Callable
from time import perf_counter

from gateway.contracts.errors import GatewayError
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.http.redact import RedactedBody, get_maskable_key
from gateway.http.response_head import (
    ResponseError,
    ResponseHead,
    ResponseHeads,
    build_body,
    build_forwarded_head,
    measure_regular,
)
from gateway.lanes.passthrough.last_event import LastEvent
from gateway.lanes.passthrough.observers.tee import JoinedSinks, PayloadSink, Tee, read_content_coding
from gateway.lanes.passthrough.request_relay import RequestRelay


class ResponseRelay(RequestRelay):
    """The half of an exchange that forwards the response; `PassthroughExchange` ends both."""

    # Each exchange begins with these, too.
    _heads: ResponseHeads | None = None  # an answer's head that was not regular or not whole
    _keep_client = True
    _keep_upstream = True
    _until_close = False
    _framed = True  # a cut answer shows by its own framing
    _idle_timeout_s: float | None = None
    _last_event: LastEvent | None = None  # of an event stream
    _tee: Tee | None = None  # where an observer reads the payload

    def on_response_bytes(self, data: bytes) -> None:
        """Forward the response: its head by the dispatcher or itself, its body to the client."""
        body = self.response_body
        if body is None:
            if self.has_choice:
                self.dispatcher.on_response_bytes(self, data)
            else:
                self.forward_response(data)
            return
        self._end_chunk_relay()  # whole chunks went past us, and count before these bytes
        try:
            data = body.feed(data)
        except BodyError:
            self.cut_answer("invalid")
            return
        if data:
            self.record.sent_bytes += len(data)
            self.client.transport.write(data)
            if self._last_event is not None:
                self._last_event.scan_piece(data)
        self._continue_or_end(body)

    def _continue_or_end(self, body: Body) -> None:
        """Wait for more of the answer's body, or end the exchange with it."""
        self.moved = None
        if body.done:
            self._complete(excess=bool(body.rest))
        elif self.upstream is None:
            return
        elif body.waiting:
            self.upstream.yield_turn(self._continue_answer)
        elif isinstance(body, ChunkedBody) and body.passes_chunks:
            # Only between two chunks: the body's state does not change by a whole one, so it need not see it.
            write = self.client.transport.write
            self.upstream.relay = write if self._tee is None else self._tee.build_relay(write)
        if self._tee is not None and self._tee.sink.is_late and self.upstream is not None:
            self.moved = None  # the upstream may not go on, so it is not silent
            self.upstream.yield_turn(self._is_tee_late)

    def _continue_answer(self) -> bool:
        """Go on with what is here of the answer. Return whether more waits for another turn of the loop."""
        if self._is_tee_late():
            return True
        if self.upstream is not None:
            self.on_response_bytes(b"")
        is_waiting = self.upstream is not None and self.response_body is not None and self.response_body.waiting
        return is_waiting or self._is_tee_late()

    def _is_tee_late(self) -> bool:
        """Return whether no more of the answer should be read before an observer has worked some of it through."""
        if self._tee is None or self.upstream is None or not self._tee.sink.is_late:
            return False
        self.moved = None  # the upstream may not go on, so it is not silent
        return True

    def _end_chunk_relay(self) -> None:
        """Stop the direct relay of whole chunks, and account for the bytes that it forwarded."""
        relayed = 0
        if self.upstream is not None and (relayed := self.upstream.take_back()):
            self.record.sent_bytes += relayed
            self.moved = None
            if self._last_event is not None:
                self._last_event.scan_piece(self.upstream.relayed_last)
        if self._tee is not None:
            self._tee.keep_relayed(relayed)

    def forward_response(self, data: bytes) -> None:
        """Pass the beginning of a response on to the client. Nearly always it is regular, and often it is whole."""
        came = perf_counter()
        self.repeat = None
        client = self.client
        if self.plan.policy.plain and self.request_body is None and self._heads is None:
            regular = None if client.listener.draining else measure_regular(data)
            if regular is not None and not (regular[0] >= 400 and self._secret):
                record = self.record
                record.status, head_bytes, length = regular
                whole = head_bytes + length
                answer = data if len(data) <= whole else data[:whole]
                client.write(answer)
                if len(data) >= whole:
                    record.beginning = answer
                    record.sent_bytes = length
                    record.came = came
                    record.forwarded = perf_counter()
                    self._complete(excess=len(data) > whole)
                else:
                    record.note_head_forwarded(came)
                    record.sent_bytes = len(data) - head_bytes
                    self.response_body = LengthBody(whole - len(data))
                    if self.observers:
                        self._tee_regular(data, head_bytes, whole - len(data))
                return
        self._read_irregular_head(data, came)

    @property
    def _secret(self) -> bytes | None:
        """Return the upstream's key, which is masked in its errors; None: there is none to mask."""
        return get_maskable_key(self.target.member.pool.endpoint.api_key)

    def _tee_regular(self, data: bytes, head_bytes: int, left: int) -> None:
        """Let observers read the payload of a regular answer, of which `left` bytes are to come."""
        self._tee = self._build_tee(lambda: read_content_coding(data[:head_bytes]))
        if self._tee is not None:
            self._tee.keep(data[head_bytes:])
            self.response_body = self._tee.build_rest_body(left)

    def _build_tee(self, content_coding: Callable[[], bytes]) -> Tee | None:
        """Return the tee that copies the payload to observers; None: no observer reads it."""
        if self.plan.observers is None:
            return None
        sinks: list[PayloadSink] = []
        for at in self.plan.observers.reading:
            if (sink := self.observers[at].on_response_head(content_coding)) is not None:
                sinks.append(sink)  # noqa: PERF401 - a comprehension is a call
        if not sinks:
            return None
        return Tee(sinks[0] if len(sinks) == 1 else JoinedSinks(sinks))

    def _read_irregular_head(self, data: bytes, came: float) -> None:
        """Forward a head that is not regular: interim answers, hop-by-hop fields, heads in pieces."""
        client, head_facts = self.client, self.plan.head
        if self._heads is None:
            self._heads = ResponseHeads(head_facts.method)
        try:
            for head in self._heads.feed(data):
                # Neither a head that drips nor an interim answer is the one that the upstream owes.
                if head.status >= 200:
                    self.moved = None
                    self._begin_answer(head, self._heads.rest, came)
                elif head.status != 101:
                    if self.forwards_interim(head.status):
                        client.write(build_forwarded_head(head, close=False))
                    self.invited = self.invited or head.status == 100
                elif head_facts.websocket:
                    self._start_tunnel(head, self._heads.rest, came)
                else:
                    raise ResponseError("it switched protocols without being asked")
        except ResponseError as error:
            self.handle_failure(self._build_invalid_error(str(error)), outcome="invalid")

    def forwards_interim(self, status: int) -> bool:
        """Return whether an interim answer goes to the client. It is invited once."""
        head = self.plan.head
        return head.minor == 1 and (status != 100 or (head.expects_continue and not self.invited))

    def _begin_answer(self, head: ResponseHead, data: bytes, came: float) -> None:
        """Forward a final head that was not regular, with the beginning of its body."""
        record, minor = self.record, self.plan.head.minor
        record.status = head.status
        record.streaming = head.event_stream
        self._keep_upstream = head.keep_alive
        self._idle_timeout_s = head.idle_timeout_s
        dechunk = head.framing == "chunked" and minor == 0
        self._keep_client = head.framing != "close" and not dechunk and self._can_reuse_client()
        self._framed = head.framing != "close" and not dechunk
        self._until_close = head.framing == "close"
        self.response_body = body = self._build_body(head, payload_only=dechunk)
        sharing = self.plan.policy.response_fields
        text = build_forwarded_head(head, close=not self._keep_client, dechunked=dechunk, sharing=sharing)
        if head.status >= 400 and head.framing != "none" and (secret := self._secret):
            self.response_body = body = RedactedBody(body, secret, hold=not self._until_close)
        try:
            fed = body.feed(data)
        except BodyError as error:
            self.response_body = None
            raise ResponseError(f"its body is malformed: {error}") from None
        self.client.write(text + fed)
        if record.streaming:
            self._last_event = LastEvent()
            self._last_event.scan_piece(fed)
        record.sent_bytes = len(fed)
        record.note_head_forwarded(came)
        self._continue_or_end(body)

    def _build_body(self, head: ResponseHead, *, payload_only: bool) -> Body:
        """Return the reader of the answer's body, which observers may read with it."""
        if self.observers:
            self._tee = self._build_tee(lambda: head.find_value(b"content-encoding") or b"")
            if self._tee is not None:
                return self._tee.build_body(head, payload_only=payload_only)
        return build_body(head, payload_only=payload_only)

    @property
    def is_unanswered(self) -> bool:
        """Return whether no byte of a response came."""
        return self._heads is None and self.response_body is None

    def forget_response(self) -> None:
        """Reset the state of the response: nothing of it was forwarded."""
        self._heads = self.response_body = self._idle_timeout_s = self._last_event = self._tee = None
        self.upload_blocked, self._until_close = False, False
        self._keep_client = self._keep_upstream = self._framed = True
        self.record.status, self.record.streaming = 0, False

    # Ends, which `PassthroughExchange` has.

    def _complete(self, *, excess: bool) -> None:
        raise NotImplementedError

    def _start_tunnel(self, head: ResponseHead, data: bytes, came: float) -> None:
        raise NotImplementedError

    def _build_invalid_error(self, reason: str) -> GatewayError:
        raise NotImplementedError

    def _can_reuse_client(self) -> bool:
        raise NotImplementedError
