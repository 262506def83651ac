"""The record of one passthrough exchange: its status, sizes and times, for metrics and the access log."""

from time import perf_counter
from typing import TYPE_CHECKING

from gateway.contracts.errors import GatewayError
from gateway.lanes.client import AccessLog, Client
from gateway.lanes.passthrough.plan_records import PlannedHead, PlanTarget, RequestPolicy
from gateway.limits.reservation import AnyReservation

if TYPE_CHECKING:
    from gateway.usage.tokens import RequestUsage

CLIENT_LEFT = 499


def format_address(peer: object) -> str:
    """Return a client's address without its port, of what asyncio names it by."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else "a local socket"


class AccessRecord:
    """The record of one exchange. All times are perf_counter seconds; it is counted exactly once.

    `began`: the request's head was here; `overhead_s` later it was on its way, or waited for a connection; `sent_at`:
    it went to the upstream; `came`: the head of the response began to arrive; `forwarded`: a regular response was sent
    on that came whole with its head, which then is `beginning`; `ended`: any other response ended.
    """

    # Each exchange begins with these; as class attributes they cost nothing until they change.
    status = 0
    answered_status: int | None = None  # that the client had before it left
    streaming = False  # the response is an event stream
    sent_at = came = forwarded = ended = 0.0
    received_bytes = 0
    sent_bytes = 0
    beginning = b""
    attempts = 0  # where the endpoint was chosen
    overhead_s = 0.0
    requested_model = ""  # that the body names, where its upstream is chosen by that
    # What observers tell each other, and the access log.
    tokens: int | None = None  # that the request used, where that is read
    used: "tuple[RequestUsage, str] | None" = None  # in full, and the model that its response names
    asked_model = ""  # the name of `requested_model`, where usage is recorded
    reservation: AnyReservation | None = None  # of the request in its limits, where there are any
    trace_id: str | None = None

    def __init__(
        self, head: PlannedHead, policy: RequestPolicy, target: PlanTarget, client: Client, began: float
    ) -> None:
        self.head = head
        self.policy = policy
        self.target = target
        self.client = client
        self.began = began

    def note_head_forwarded(self, came: float) -> None:
        """Note that the head of a response is on its way to the client, whose body follows. It is counted now."""
        self.came = came
        self.target.group.tally.first_byte.observe(came - self.sent_at)
        self.policy.counts.route.overhead.observe(self.overhead_s + perf_counter() - came)

    def count(self, outcome: str) -> None:
        """Count the exchange; `outcome` is the upstream's (metrics.UpstreamTally)."""
        counts, tally = self.policy.counts, self.target.group.tally
        if self.forwarded:
            tally.first_byte.observe(self.came - self.sent_at)
            counts.route.overhead.observe(self.overhead_s + self.forwarded - self.came)
        counts.codes[self.status] += 1
        tally.outcomes[outcome] += 1
        duration_s = (self.forwarded or self.ended) - self.began
        (counts.route.streamed if self.streaming else counts.route.answered).observe(duration_s)

    def log(
        self, access_log: AccessLog, outcome: str, error: GatewayError | None = None, request_id: str | None = None
    ) -> None:
        """Write a line about the exchange to the access log."""
        head, target = self.head, self.target
        access_log(
            mode="passthrough",
            route=self.policy.counts.route.route,
            method=head.method,
            path=head.path,
            status=self.status,
            duration_ms=round(((self.forwarded or self.ended) - self.began) * 1000, 3),
            outcome=outcome,
            upstream=target.member.pool.endpoint.name,
            endpoint=target.endpoint,
            tries=self.attempts or None,
            key=target.identity.caller.name,
            client=format_address(self.client.transport.get_extra_info("peername")),
            bytes_in=self.received_bytes,
            bytes_out=self.sent_bytes,
            error_code=error and error.code,
            request_id=request_id,
            trace_id=self.trace_id,
        )
