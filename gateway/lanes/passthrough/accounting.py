"""The account of one passthrough transaction: its status, sizes and times, for metrics and the access log."""

from time import perf_counter
from typing import TYPE_CHECKING

from gateway.contracts.errors import GatewayError
from gateway.lanes.plan import Plan
from gateway.lanes.transaction import AccessLog, Client, Clients

if TYPE_CHECKING:
    from gateway.limits.holds import Hold, Share
    from gateway.usage.tokens import RequestUsage

CLIENT_LEFT = 499


def address_of(peer: object) -> str:
    """Return a client's address without its port, of what asyncio names it by."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else "a local socket"


class Accounting:
    """One transaction's account. `began` and `sent_at` are perf_counter seconds; closed exactly once."""

    status = 0
    streaming = False  # the answer is an event stream
    sent_at = 0.0
    received_bytes = 0
    sent_bytes = 0
    beginning = b""  # a regular answer that came whole with its head
    tokens: int | None = None  # that the request used, where that is read
    used: "tuple[RequestUsage, str] | None" = None  # in full, and the model that its answer names
    asked_model = ""  # that the request names, where its upstream is chosen by that
    hold: "Hold | None" = None  # the places of the request in its limits, where there are any
    share: "Share | None" = None  # in place of them: those that it shares with requests like it
    tries = 0  # where the endpoint was chosen
    trace_id: str | None = None  # where there are traces
    overhead_s = 0.0

    def __init__(self, plan: Plan, client: Client, began: float) -> None:
        self.plan = plan
        self._client = client
        self.began = began

    def use(self, plan: Plan) -> None:
        """Note that the request goes to another endpoint than it was planned for, or goes there again."""
        self.plan = plan
        self.tries += 1

    def request_started(self) -> None:
        """Note that the request is on its way to the upstream, or waits for a connection."""
        self.overhead_s = perf_counter() - self.began

    def head_forwarded(self, came: float) -> None:
        """Note that the head of the answer, which began to arrive at `came`, is on its way to the client."""
        plan = self.plan
        plan.upstream.first_byte.observe(came - self.sent_at)
        plan.route.overhead.observe(self.overhead_s + perf_counter() - came)

    def held(self) -> "Hold | None":
        """Return the places of the request in its limits as a hold, also those that it shares; None: it has none."""
        if self.share is not None:
            self.hold, self.share = [*self.share], None
        return self.hold

    def client_left(self, listener: Clients) -> None:
        """Note that the client closed its connection before it had the whole answer."""
        self.status = CLIENT_LEFT
        listener.metrics.client_disconnects += 1
        self.close("cancelled", listener)

    def close(
        self,
        outcome: str,
        listener: Clients,
        error: GatewayError | None = None,
        request_id: str | None = None,
    ) -> None:
        """Count it; `outcome` is the upstream's (metrics.UpstreamTally). Log it if there is an access log."""
        plan, duration_s = self.plan, perf_counter() - self.began
        plan.codes[self.status] += 1
        plan.upstream.outcomes[outcome] += 1
        (plan.route.streamed if self.streaming else plan.route.answered).observe(duration_s)
        if listener.access_log is not None:
            self.log(outcome, listener.access_log, duration_s, error, request_id)

    def log(
        self,
        outcome: str,
        access_log: AccessLog,
        duration_s: float,
        error: GatewayError | None = None,
        request_id: str | None = None,
    ) -> None:
        """Write a line about it to the access log."""
        plan = self.plan
        access_log(
            mode="passthrough",
            route=plan.route.route,
            method=plan.method,
            path=plan.path,
            status=self.status,
            duration_ms=round(duration_s * 1000, 3),
            outcome=outcome,
            upstream=plan.pool.endpoint.name,
            endpoint=plan.endpoint,
            tries=self.tries or None,
            key=plan.caller.name,
            client=address_of(self._client.transport.get_extra_info("peername")),
            bytes_in=self.received_bytes,
            bytes_out=self.sent_bytes,
            error_code=error and error.code,
            request_id=request_id,
            trace_id=self.trace_id,
        )
