"""The passthrough lane: one request spliced to an upstream connection, byte for byte, both ways.

Invariants: no byte of a body is looked at, but for the chunk framing; what the upstream did not finish never looks
finished to the client; a client that leaves an answer takes its upstream connection with it; an upstream connection
goes back to the pool only after a whole request and a whole answer.

Theory of operation. A splice has two halves that end independently, and two connections whose fates depend on both.
`Sending` (sending.py) is the upload: `_request` is the rest of the body, None once it is whole. `Splice` is the answer:
`_answer` is None until its final head was forwarded. `_upstream` is None while a connection is being opened, and again
once the splice has given it up.

1. *Start.* `start` takes an idle connection from the pool, or opens one in a task. Until that task ends, the client's
   bytes collect in `_pending`, and its reading is paused once they pass the high-water mark.
2. *Upload.* Each piece passes its framing check before it is written. An upstream may answer before the upload ends.
   So `request_received` first checks whether an unread answer waits, because a write into a closed connection loses it.
3. *Head.* A regular answer (one Content-Length, nothing about this hop) is forwarded as it came, without being parsed.
   Interim answers, other framings and heads in pieces take `_irregular_head`. Interim answers go only to HTTP/1.1
   clients, and 100 only to one that expects it (RFC 9110 sections 10.1.1 and 15.2).
4. *Body.* While a chunked body stands between two chunks, the upstream connection may write whole chunks to the client
   by itself (`relay`). `_take_back` ends that and adds the bytes to the account. Call it before you read `_moved`,
   count bytes, or give the connection up.
5. *End.* `_complete`: the answer is whole. `_fail`: no final head was forwarded, so the client gets an error of ours.
   `_cut`: a part was forwarded, so only the connection can show that the rest is missing. `_switch`: a tunnel takes
   over.

Back pressure. Each side's full write buffer pauses the other side's reading: `client_full` pauses the upstream, and
`upstream_full` pauses the client (SENDING). Reasons to pause are sets, since a body with very many chunks also pauses
its own side for a turn of the event loop (YIELDED). While the client is blocked, `sweep` measures nothing here: the
client's connection measures that itself.

Half-close. A FIN from the upstream ends the answer: `upstream_eof` aborts, and `upstream_lost` follows with no error
(the end of TLS without close_notify is an error). That completes a body that ends with its connection (RFC 9112 section
6.3) and cuts every other one. A FIN from the client counts as leaving, as in nginx.

Dangers.
- A cut answer that looks whole. Chunks and Content-Length show the cut by themselves (`_framed`). A body that ends with
  its connection does not, so the client then gets RST instead of FIN (RFC 9112 section 8).
- A second execution. A request is sent again only if its method is idempotent or it only computes (`may_repeat`), the
  connection was reused, no byte of an answer came, and what was sent is still here (RFC 9110 section 9.2.2, RFC 9112
  section 9.3.1). It goes over a fresh connection, so this happens once.
- An ordinary end that looks like leaving. Many clients leave at the last event of a stream, before the end of its body
  (`LastEvent`). Theirs is a whole answer, and `Remainder` reads the rest, so that the upstream connection is kept.
- A lost answer. If the answer ends before the upload, both connections end. The client's connection lingers, since
  closing with unread bytes would make the kernel send RST and discard our answer (RFC 9112 section 9.6).
- A callback that outlives the transaction. Forwarding may end it. So code that goes on afterwards looks again at
  `_upstream`, or at `client.transaction`.

https://www.rfc-editor.org/rfc/rfc9112#section-9 https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
"""

from time import perf_counter
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.http.error_response import error_answer, new_request_id
from gateway.http.redact import RedactedBody
from gateway.http.response_head import (
    ResponseError,
    ResponseHead,
    ResponseHeads,
    build_body,
    forwarded_head,
    measure_regular,
)
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.last_event import LastEvent, Remainder
from gateway.lanes.passthrough.pace import too_slow
from gateway.lanes.passthrough.sending import Sending
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.upstream.failures import UPSTREAMS_FAULT

#: The failure of an upstream whose answer cannot be finished, in words, by the outcome that is counted.
CUT: Final = {
    "invalid": "wrote a body that does not fit its framing",
    "truncated": "closed the connection in the middle of an answer",
    "timeout": "was silent for too long in the middle of an answer",
}


class Splice(Sending):
    """A passthrough transaction."""

    mode = "passthrough"

    # Each turn begins with these, too.
    _heads: ResponseHeads | None = None  # an answer's head that was not regular or not whole
    _keep_client = True
    _keep_upstream = True
    _until_close = False
    _framed = True  # a cut answer shows by its own framing
    _idle_timeout_s: float | None = None
    _last_event: LastEvent | None = None  # of an event stream
    _tunnels: type[Tunnel] = Tunnel

    @property
    def streaming(self) -> bool:
        return self._account.streaming

    def response_received(self, data: bytes) -> None:
        body = self._answer
        if body is None:
            self._head_received(data)
            return
        self._take_back()  # whole chunks went past us, and count before these bytes
        try:
            data = body.feed(data)
        except BodyError:
            self._cut("invalid")
            return
        if data:
            self._account.sent_bytes += len(data)
            self._client.transport.write(data)
            if self._last_event is not None:
                self._last_event.see(data)
        self._go_on(body)

    def _go_on(self, body: Body) -> None:
        """Wait for more of the answer's body, or end the transaction with it."""
        self._moved = None
        if body.done:
            self._complete(excess=bool(body.rest))
        elif self._upstream is None:
            return
        elif body.waiting:
            self._upstream.yield_turn(self._answer_on)
        elif isinstance(body, ChunkedBody) and body.passes_chunks:
            # Only between two chunks: the body's state does not change by a whole one, so it need not see it.
            self._upstream.relay = self._client.transport.write

    def _answer_on(self) -> bool:
        """Go on with what is here of the answer. Return whether more waits for another turn of the loop."""
        if self._upstream is not None:
            self.response_received(b"")
        return self._upstream is not None and self._answer is not None and self._answer.waiting

    def _take_back(self) -> None:
        """Take back what was lent for whole chunks, and account for those that went through."""
        if self._upstream is not None and (relayed := self._upstream.take_back()):
            self._account.sent_bytes += relayed
            self._moved = None
            if self._last_event is not None:
                self._last_event.see(self._upstream.relayed_last)

    def _head_received(self, data: bytes) -> None:
        """Handle the beginning of an answer. Nearly always it is regular, and often it is whole."""
        came = perf_counter()
        self._again_with = None
        client = self._client
        if self._plan.plain and self._request is None and self._heads is None and not client.listener.draining:
            regular = measure_regular(data)
            if regular is not None and not (regular[0] >= 400 and self._plan.secret):
                self._account.status, head_bytes, length = regular
                whole = head_bytes + length
                answer = data if len(data) <= whole else data[:whole]
                client.write(answer)
                if len(data) >= whole:
                    self._account.beginning = answer
                    self._account.sent_bytes = length
                    self._account.head_forwarded(came)
                    self._complete(excess=len(data) > whole)
                else:
                    self._account.head_forwarded(came)
                    self._account.sent_bytes = len(data) - head_bytes
                    self._answer = self._rest_of(data, whole - len(data))
                return
        self._irregular_head(data, came)

    def _rest_of(self, _data: bytes, left: int) -> Body:
        """Return the reader of the `left` bytes behind those of a regular answer that are here."""
        return LengthBody(left)

    def _irregular_head(self, data: bytes, came: float) -> None:
        """Interim answers, other framings, hop-by-hop fields, heads in pieces."""
        client, plan = self._client, self._plan
        if self._heads is None:
            self._heads = ResponseHeads(plan.method)
        try:
            for head in self._heads.feed(data):
                # Neither a head that drips nor an interim answer is the one that the upstream owes.
                if head.status >= 200:
                    self._moved = None
                    self._begin_answer(head, self._heads.rest, came)
                elif head.status != 101:
                    if self._forwards_interim(head.status):
                        client.write(forwarded_head(head, close=False))
                    self._invited = self._invited or head.status == 100
                elif plan.websocket:
                    self._switch(head, self._heads.rest, came)
                else:
                    raise ResponseError("it switched protocols without being asked")
        except ResponseError as error:
            self._fail(self._invalid(str(error)), outcome="invalid")

    def _forwards_interim(self, status: int) -> bool:
        """Return whether an interim answer goes to the client. It is invited once."""
        plan = self._plan
        return plan.minor == 1 and (status != 100 or (plan.expects_continue and not self._invited))

    def _begin_answer(self, head: ResponseHead, data: bytes, came: float) -> None:
        """Forward a final head that was not regular, with the beginning of its body."""
        client, plan = self._client, self._plan
        self._account.status = head.status
        self._account.streaming = head.event_stream
        self._keep_upstream = head.keep_alive
        self._idle_timeout_s = head.idle_timeout_s
        dechunk = head.framing == "chunked" and plan.minor == 0
        self._keep_client = head.framing != "close" and not dechunk and self._client_stays()
        self._framed = head.framing != "close" and not dechunk
        self._until_close = head.framing == "close"
        self._answer = body = self._body_of(head, payload_only=dechunk)
        sharing = plan.sharing if plan.shared else {}
        text = forwarded_head(head, close=not self._keep_client, dechunked=dechunk, sharing=sharing)
        if plan.secret and head.status >= 400 and head.framing != "none":
            self._answer = body = RedactedBody(body, plan.secret, hold=not self._until_close)
        try:
            fed = body.feed(data)
        except BodyError as error:
            self._answer = None
            raise ResponseError(f"its body is malformed: {error}") from None
        client.write(text + fed)
        if self._account.streaming:
            self._last_event = LastEvent()
            self._last_event.see(fed)
        self._account.sent_bytes = len(fed)
        self._account.head_forwarded(came)
        self._go_on(body)

    def _body_of(self, head: ResponseHead, *, payload_only: bool) -> Body:
        """Return the reader of the answer's body."""
        return build_body(head, payload_only=payload_only)

    def _switch(self, head: ResponseHead, data: bytes, came: float) -> None:
        """Start a tunnel: the upstream accepted WebSocket, and from here on bytes are copied both ways."""
        client, upstream = self._client, self._upstream
        assert upstream is not None
        self._account.status = head.status
        client.write(forwarded_head(head, close=False, upgrade=True) + data)
        self._account.head_forwarded(came)
        self._account.close("ok", self._client.listener)
        tunnel = self._tunnels(client, upstream, idle_s=self._plan.pool.endpoint.idle_s, key=self._plan.key)
        client.transaction = upstream.turn = tunnel
        if held := client.unhold():
            tunnel.request_received(held)

    # Ends.

    def stop(self) -> bool:
        """End the transaction, as the gateway stops. Return False if its client has a part of the answer."""
        if self._answer is not None:
            return False
        name = self._plan.pool.endpoint.name
        text = f"The gateway stops, and upstream {name!r} has not answered yet: send the request again."
        self._fail(GatewayError("gateway_stopping", text, retry_after_s=1), outcome="cancelled")
        return True

    def _complete(self, *, excess: bool) -> None:
        """End the transaction: the answer is whole. An upstream connection that is not clean is aborted."""
        upstream, self._upstream = self._upstream, None
        whole = self._request is None
        if upstream is not None:
            # An unfinished upload, or bytes behind the answer, would run into the next message (RFC 9112 section 9.3).
            if whole and not self._pending and self._keep_upstream and not excess:
                self._plan.pool.give(upstream, idle_timeout_s=self._idle_timeout_s)
            else:
                upstream.abort()
        self._count_whole()
        # The client may still be sending its body: without lingering, RST would take the answer from it.
        self._client.turn_done(keep=self._keep_client and whole, linger=not whole)

    def _count_whole(self) -> None:
        """Close the account of a whole answer."""
        if (status := self._account.status) >= 500:
            self._plan.pool.failures.note(f"Upstream {self._plan.pool.endpoint.name!r} answered {status}.")
        self._account.close("ok" if status < 500 else "error", self._client.listener)

    def _fail(self, error: GatewayError, *, outcome: str) -> None:
        """Answer with an error: nothing of the upstream's answer was forwarded yet."""
        self._drop_upstream()
        self._account.status = error.facts.status
        keep, whole = self._client_stays(), self._request is None
        request_id = new_request_id()
        if error.code in UPSTREAMS_FAULT:
            self._plan.pool.failures.note(error.message, request_id=request_id)
        is_head, sharing = self._plan.method == b"HEAD", self._plan.sharing
        self._client.write(
            error_answer(error, request_id=request_id, close=not keep, head_only=is_head, sharing=sharing)
        )
        self._account.close(outcome, self._client.listener, error=error, request_id=request_id)
        self._client.turn_done(keep=keep, linger=not whole)

    def _cut(self, outcome: str) -> None:
        """End an answer that cannot be finished, so that the client sees it."""
        self._drop_upstream()
        if outcome in CUT:
            self._plan.pool.failures.note(f"Upstream {self._plan.pool.endpoint.name!r} {CUT[outcome]}.")
        self._account.close(outcome, self._client.listener)
        self._client.cut(framed=self._framed)

    def upstream_eof(self) -> bool:
        # Unsent bytes would only delay the end: with `abort`, `connection_lost` follows at once.
        if self._upstream is not None:
            self._upstream.transport.abort()
        return False

    def upstream_lost(self, error: Exception | None) -> None:
        # The order matters: count relayed chunks, drain what was read, and only then decide between whole and cut.
        self._take_back()
        upstream, self._upstream = self._upstream, None
        while self._answer is not None and self._answer.waiting and not self._answer.done:
            self.response_received(b"")  # at most one read: what came before the end counts
        if self._client.transaction is not self:
            return  # the rest of the answer was here, and ended the transaction
        if self._answer is not None:
            if self._until_close and error is None:
                self._complete(excess=False)
            else:
                self._cut("truncated")
        elif upstream is None or not self._end_unanswered(upstream):
            self._fail(self._invalid("it closed the connection before it answered"), outcome="reset")

    @property
    def _unanswered(self) -> bool:
        return self._heads is None and self._answer is None

    def client_eof(self) -> bool:
        # A client that stops sending has left, as for nginx. Unsent bytes would only delay the end.
        self._client.transport.abort()
        return False

    def client_gone(self) -> None:
        self._take_back()
        last = self._last_event
        if last is not None and last.is_whole and self._client.blocked_since is None:
            self._leave_rest()
        else:
            self._abandon()

    def _abandon(self) -> None:
        """End the transaction of a client that did not wait for its answer."""
        self._drop_upstream()
        self._account.client_left(self._client.listener)

    def _leave_rest(self) -> None:
        """End the transaction of a client that has the last event of its answer."""
        upstream, self._upstream = self._upstream, None
        body, self._answer = self._answer, None
        if upstream is not None and body is not None:
            if self._request is None and not self._pending:
                Remainder(
                    upstream,
                    body,
                    self._plan.pool,
                    self._client.listener.loop,
                    idle_timeout_s=self._idle_timeout_s,
                    reusable=self._keep_upstream,
                )
            else:
                upstream.abort()
        self._count_whole()

    def client_full(self) -> None:
        # A connection that is still being opened is paused when it is attached (`Sending._attach`).
        if self._upstream is not None:
            self._upstream.pause()

    def client_drained(self) -> None:
        self._moved = None  # the upstream could send nothing meanwhile, so its time begins now
        if self._upstream is not None:
            self._upstream.resume()

    def sweep(self, now: float) -> None:
        if self._upstream is None or self._client.blocked_since is not None:
            if self._held is not None:
                self._end_if_late(now)
            elif self._pace is not None:
                self._pace.excuse(now)  # the rest of a body that was held waits for a place
            return  # connecting has a deadline of its own, and so has a client that does not read
        self._take_back()
        if self._moved is None:
            self._moved = now
        waited, endpoint = now - self._moved, self._plan.pool.endpoint
        uploading = self._answer is None and self._request is not None
        # While the upload goes on, the upstream owes nothing yet: the client's pace is what is measured.
        if uploading and (self._end_if_late(now) or not (self._upstream_full or self._waits_to_be_invited)):
            return
        if self._answer is None and not self._upstream_full:
            if waited > endpoint.first_byte_s:
                self._overdue(
                    "first_byte", f"Upstream {endpoint.name!r} did not answer within {endpoint.first_byte_s:g} s."
                )
        elif waited > endpoint.idle_s:
            self._overdue("idle", f"Upstream {endpoint.name!r} was silent for {endpoint.idle_s:g} s.")

    def _end_if_late(self, now: float) -> bool:
        """End the transaction if the client takes too long over its body. Return whether it does."""
        late = self._body_late(now)
        if late:
            limit_s = self._client.listener.router.timeouts.body_idle_s
            self._overdue("body", too_slow(limit_s, self._least_rate), code="request_timeout")
        return late

    def _overdue(self, deadline: str, message: str, *, code: str = "upstream_timeout") -> None:
        self._client.listener.metrics.deadlines[deadline] += 1
        if self._answer is None:
            self._fail(GatewayError(code, message), outcome="timeout")
        else:
            self._cut("timeout")

    def _client_stays(self) -> bool:
        """Return whether the client's connection can take another request after this answer."""
        return self._plan.keep_alive and self._request is None and not self._client.listener.draining

    def _drop_upstream(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._take_back()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()

    def _invalid(self, reason: str) -> GatewayError:
        return GatewayError("upstream_error", f"Upstream {self._plan.pool.endpoint.name!r} failed: {reason}.")


_EXTENDED: Final[dict[tuple[type[Splice], str], type[Splice]]] = {}


def extended(
    kind: type[Splice],
    name: str,
    accounts: type[Accounting] | None,
    extensions: tuple[tuple[type[Splice], type[Splice]], ...],
    **more: object,
) -> type[Splice]:
    """Return the class of transactions of this kind with an extension, and with `accounts` added to their accounts.

    `extensions` are pairs of a class and what extends it, the most special first. `name` begins the names of the new
    classes. `accounts` None: those of the kind stay as they are. `more` are further attributes of the class.
    """
    made = _EXTENDED.get((kind, name))
    if made is None:
        extension, own = next(one for of, one in extensions if issubclass(kind, of)), kind._accounts
        if accounts is not None:
            own = type(f"{name}{own.__name__}", (accounts, own), {})
        made = type(f"{name}{kind.__name__}", (extension, kind), {"_accounts": own, **more})
        _EXTENDED[kind, name] = made
    return made
