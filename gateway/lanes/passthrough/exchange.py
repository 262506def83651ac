"""The passthrough lane: one exchange of a request and its response with an upstream, byte for byte, both ways.

Invariants: no byte of a body is looked at, but for the chunk framing; what the upstream did not finish never looks
finished to the client; a client that leaves an answer takes its upstream connection with it; an upstream connection
goes back to the pool only after a whole request and a whole answer.

Theory of operation. An exchange has two halves that end independently, and two connections whose fates depend on both.
`RequestRelay` (request_relay.py) is the upload: `request_body` is the rest of the body, None once it is whole.
`ResponseRelay` (response_relay.py) is the response: `response_body` is None until its final head was forwarded.
`PassthroughExchange` ends both. `upstream` is None while a connection is being opened, and again once the exchange has
given it up. Neither half knows a feature: a
dispatcher (dispatch/) says where the attempts go, and observers (observers/observer.py) follow each phase.

1. *Start.* The dispatcher takes an idle connection from a pool, or has one opened in a task. Until that task ends, the
   client's bytes collect in `pending`, and its reading is paused once they pass the high-water mark.
2. *Upload.* Each piece passes its framing check before it is written. An upstream may answer before the upload ends.
   So `on_request_bytes` first checks whether an unread answer waits, because a write into a closed connection loses it.
3. *Head.* A regular answer (one Content-Length, nothing about this hop) is forwarded as it came, without being parsed.
   Interim answers, other framings and heads in pieces take `_read_irregular_head`. Interim answers go only to HTTP/1.1
   clients, and 100 only to one that expects it (RFC 9110 sections 10.1.1 and 15.2).
4. *Body.* While a chunked body stands between two chunks, the upstream connection may write whole chunks to the client
   by itself (`relay`). `_end_chunk_relay` ends it and counts the bytes. Call it before you read `moved`, count
   bytes, or give the connection up.
5. *End.* `_complete`: the answer is whole. `handle_failure`: no final head was forwarded, so the client gets an error
   of ours, unless the dispatcher goes on. `cut_answer`: a part was forwarded, so only the connection can show that the
   rest is missing. `_start_tunnel`: a tunnel takes over. Each of them closes the record and the observers (`_close`).

Back pressure. Each side's full write buffer pauses the other side's reading: `on_client_full` pauses the upstream, and
`upstream_full` pauses the client (SENDING). Reasons to pause are sets, since a body with very many chunks also pauses
its own side for a turn of the event loop (YIELDED). While the client is blocked, `sweep` measures nothing here: the
client's connection measures that itself.

Half-close. A FIN from the upstream ends the answer: `on_upstream_eof` aborts, and `on_upstream_lost` follows with no
error (the end of TLS without close_notify is an error). That completes a body that ends with its connection (RFC 9112
section 6.3) and cuts every other one. A FIN from the client counts as leaving, as in nginx.

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
  `upstream`, or at `client.transaction`.

https://www.rfc-editor.org/rfc/rfc9112#section-9 https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
"""

import logging
from time import perf_counter
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.http.error_response import build_error_answer, generate_request_id
from gateway.http.response_head import ResponseHead, build_forwarded_head
from gateway.lanes.passthrough.access_record import CLIENT_LEFT
from gateway.lanes.passthrough.body_timeout import format_too_slow
from gateway.lanes.passthrough.last_event import Remainder
from gateway.lanes.passthrough.response_relay import ResponseRelay
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.upstream.failures import UPSTREAMS_FAULT

log = logging.getLogger("gateway")

#: The failure of an upstream whose answer cannot be finished, in words, by the outcome that is counted.
CUT: Final = {
    "invalid": "wrote a body that does not fit its framing",
    "truncated": "closed the connection in the middle of an answer",
    "timeout": "was silent for too long in the middle of an answer",
}


class PassthroughExchange(ResponseRelay):
    """A passthrough transaction: both halves, and how they end."""

    mode = "passthrough"

    @property
    def streaming(self) -> bool:
        return self.record.streaming

    def _start_tunnel(self, head: ResponseHead, data: bytes, came: float) -> None:
        """Start a tunnel: the upstream accepted WebSocket, and from here on bytes are copied both ways."""
        client, upstream, target = self.client, self.upstream, self.target
        assert upstream is not None
        self.dispatcher.end(self, "ok", head.status)
        for observer in self.observers:
            observer.on_tunnel()
        self.record.status = head.status
        client.write(build_forwarded_head(head, close=False, upgrade=True) + data)
        self.record.note_head_forwarded(came)
        self._close("ok")
        idle_s, key = target.member.pool.endpoint.idle_s, target.identity.key
        tunnel = Tunnel(client, upstream, idle_s=idle_s, key=key, observers=self.observers)
        client.transaction = upstream.turn = tunnel
        if held := client.take_held_bytes():
            tunnel.on_request_bytes(held)

    # Ends.

    def stop(self) -> bool:
        """End the exchange, as the gateway stops. Return False if its client has a part of the answer."""
        if self.response_body is not None:
            return False
        if not self.dispatcher.stop(self):
            name = self.target.member.pool.endpoint.name
            text = f"The gateway stops, and upstream {name!r} has not answered yet: send the request again."
            self.handle_failure(GatewayError("gateway_stopping", text, retry_after_s=1), outcome="cancelled")
        return True

    def _complete(self, *, excess: bool) -> None:
        """End the exchange: the answer is whole. An upstream connection that is not clean is aborted."""
        if self.has_choice:
            self.dispatcher.end(self, "ok", self.record.status)
        upstream, self.upstream = self.upstream, None
        whole = self.request_body is None
        if upstream is not None:
            # An unfinished upload, or bytes behind the answer, would run into the next message (RFC 9112 section 9.3).
            if whole and not self.pending and self._keep_upstream and not excess:
                self.target.member.pool.return_connection(upstream, idle_timeout_s=self._idle_timeout_s)
            else:
                upstream.abort()
        self._close_whole_answer()
        # The client may still be sending its body: without lingering, RST would take the answer from it.
        self.client.end_transaction(keep=self._keep_client and whole, linger=not whole)

    def _close_whole_answer(self) -> None:
        """Close the record of a whole answer, which may report a failure."""
        if (status := self.record.status) < 500:
            self._close("ok")
            return
        pool = self.target.member.pool
        pool.failures.record_failure(f"Upstream {pool.endpoint.name!r} answered {status}.")
        self._close("error")

    def _close(self, outcome: str, error: GatewayError | None = None, request_id: str | None = None) -> None:
        """Count the exchange, write its line of the access log, and tell the observers."""
        record, is_counted = self.record, False
        if not record.forwarded:
            record.ended = perf_counter()
        if (planned := self.plan.observers) is not None:
            observers = self.observers
            for at in planned.closing:
                try:
                    is_counted = observers[at].on_closed(outcome, error) or is_counted
                except Exception:  # the exchange is over all the same: it is counted, and the client's turn ends
                    log.exception("an observer failed at the end of an exchange")
        if not is_counted:
            record.count(outcome)
        if (access_log := self.client.listener.access_log) is not None:
            record.log(access_log, outcome, error, request_id)

    def handle_failure(self, error: GatewayError, *, outcome: str) -> None:
        """Go on after a failure, where the dispatcher can, or answer with an error."""
        if not self.dispatcher.attempt_failed(self, error, outcome):
            self.respond_error(error, outcome=outcome)

    def fail_soon(self, error: GatewayError, *, outcome: str) -> None:
        """Fail in the next turn of the loop: requests that are held behind would be refused inside each other."""
        self.client.listener.loop.call_soon(self._fail_now, error, outcome)

    def _fail_now(self, error: GatewayError, outcome: str) -> None:
        if self.is_under_way:
            self.handle_failure(error, outcome=outcome)

    def respond_error(self, error: GatewayError, *, outcome: str) -> None:
        """Answer with an error: nothing of the upstream's answer was forwarded yet."""
        self.dispatcher.drop(self)
        self.record.status = error.facts.status
        keep, whole = self._can_reuse_client(), self.request_body is None
        request_id = generate_request_id()
        if error.code in UPSTREAMS_FAULT:
            self.target.member.pool.failures.record_failure(error.message, request_id=request_id)
        is_head, sharing = self.plan.head.method == b"HEAD", self.plan.policy.sharing
        self.client.write(
            build_error_answer(error, request_id=request_id, close=not keep, head_only=is_head, sharing=sharing)
        )
        self._close(outcome, error, request_id)
        self.client.end_transaction(keep=keep, linger=not whole)

    def cut_answer(self, outcome: str) -> None:
        """End an answer that cannot be finished, so that the client sees it."""
        self.dispatcher.end(self, outcome)
        self.dispatcher.drop(self)
        if outcome in CUT:
            pool = self.target.member.pool
            pool.failures.record_failure(f"Upstream {pool.endpoint.name!r} {CUT[outcome]}.")
        self._close(outcome)
        self.client.cut_connection(framed=self._framed)

    def on_upstream_eof(self) -> bool:
        # Unsent bytes would only delay the end: with `abort`, `connection_lost` follows at once.
        if self.upstream is not None:
            self.upstream.transport.abort()
        return False

    def on_upstream_lost(self, error: Exception | None) -> None:
        """Decide between a whole answer, a cut one and a failure, after the connection was lost."""
        # The order matters: count relayed chunks, drain what was read, and only then decide between whole and cut.
        self._end_chunk_relay()
        upstream, self.upstream = self.upstream, None
        while self.response_body is not None and self.response_body.waiting and not self.response_body.done:
            self.on_response_bytes(b"")  # at most one read: what came before the end counts
        if self.client.transaction is not self:
            return  # the rest of the answer was here, and ended the exchange
        if self.response_body is not None:
            if self._until_close and error is None:
                self._complete(excess=False)
            else:
                self.cut_answer("truncated")
        elif upstream is None or not self._repeat_unanswered(upstream):
            self.handle_failure(
                self._build_invalid_error("it closed the connection before it answered"), outcome="reset"
            )

    def on_client_eof(self) -> bool:
        # A client that stops sending has left, as for nginx. Unsent bytes would only delay the end.
        self.client.transport.abort()
        return False

    def on_client_gone(self) -> None:
        """End the exchange of a client that left, with or without the last event of its answer."""
        self._end_chunk_relay()
        last = self._last_event
        if last is not None and last.is_whole and self.client.blocked_since is None:
            self._drain_rest()
        else:
            self._end_abandoned()

    def _end_abandoned(self) -> None:
        """End the exchange of a client that did not wait for its answer."""
        self.dispatcher.end(self, "cancelled")
        self.dispatcher.drop(self)
        record = self.record
        record.answered_status, record.status = record.status, CLIENT_LEFT
        self.client.listener.metrics.client_disconnects += 1
        self._close("cancelled")

    def _drain_rest(self) -> None:
        """End the exchange of a client that has the last event of its answer."""
        self.dispatcher.end(self, "ok")
        upstream, self.upstream = self.upstream, None
        body, self.response_body = self.response_body, None
        if upstream is not None and body is not None:
            if self.request_body is None and not self.pending:
                Remainder(
                    upstream,
                    body,
                    self.target.member.pool,
                    self.client.listener.loop,
                    idle_timeout_s=self._idle_timeout_s,
                    reusable=self._keep_upstream,
                )
            else:
                upstream.abort()
        self._close_whole_answer()

    def on_client_full(self) -> None:
        # A connection that is still being opened is paused when it is attached (`RequestRelay.attach`).
        if self.upstream is not None:
            self.upstream.pause()

    def on_client_drained(self) -> None:
        self.moved = None  # the upstream could send nothing meanwhile, so its time begins now
        if self.upstream is not None:
            self.upstream.resume()

    def sweep(self, now: float) -> None:
        """Check the deadlines of body, first byte and idle time; called twice a second."""
        if self.upstream is None or self.client.blocked_since is not None:
            if self._held is not None or self.dispatcher.awaits_body:
                self._end_if_late(now)
            elif self._pace is not None:
                self._pace.excuse_elapsed_time(now)  # the rest of a body that was held waits for a place
            return  # connecting has a deadline of its own, and so has a client that does not read
        self._end_chunk_relay()
        if self.moved is None:
            self.moved = now
        waited, endpoint = now - self.moved, self.target.member.pool.endpoint
        uploading = self.response_body is None and self.request_body is not None
        # While the upload goes on, the upstream owes nothing yet: the client's pace is what is measured.
        if uploading and (self._end_if_late(now) or not (self.upload_blocked or self._waits_to_be_invited)):
            return
        if self.response_body is None and not self.upload_blocked:
            if waited > endpoint.first_byte_s:
                self._end_overdue(
                    "first_byte", f"Upstream {endpoint.name!r} did not answer within {endpoint.first_byte_s:g} s."
                )
        elif waited > endpoint.idle_s:
            self._end_overdue("idle", f"Upstream {endpoint.name!r} was silent for {endpoint.idle_s:g} s.")

    def _end_if_late(self, now: float) -> bool:
        """End the exchange if the client takes too long over its body. Return whether it does."""
        late = self._is_body_late(now)
        if late:
            limit_s = self.client.listener.timeouts.body_idle_s
            self._end_overdue("body", format_too_slow(limit_s, self._least_rate), code="request_timeout")
        return late

    def _end_overdue(self, deadline: str, message: str, *, code: str = "upstream_timeout") -> None:
        """Count a missed deadline, and answer with an error or cut the answer."""
        self.client.listener.metrics.deadlines[deadline] += 1
        if self.response_body is None:
            self.handle_failure(GatewayError(code, message), outcome="timeout")
        else:
            self.cut_answer("timeout")

    def _can_reuse_client(self) -> bool:
        """Return whether the client's connection can take another request after this answer."""
        return self.plan.head.keep_alive and self.request_body is None and not self.client.listener.draining

    def drop_upstream(self) -> None:
        """End the connection to the upstream, or the opening of one."""
        if self.connecting is not None:
            self.connecting.cancel()
            self.connecting = None
        self._end_chunk_relay()
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abort()

    def _build_invalid_error(self, reason: str) -> GatewayError:
        """Return the error for a malformed or broken answer of the upstream."""
        return GatewayError("upstream_error", f"Upstream {self.target.member.pool.endpoint.name!r} failed: {reason}.")
