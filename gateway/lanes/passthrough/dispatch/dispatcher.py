"""The choice of the endpoints of a request: the phases of a dispatcher, and the one for a single endpoint.

A dispatcher says where the attempts of one request go. The exchange tells it what happens, and it acts on the exchange.
That is an argument of each phase, so that neither keeps the other alive. `Direct` is for an upstream of one endpoint.
`Failover` (failover.py) tries others, `Hedge` (hedge.py) asks two at once, and `ModelRouting` (model_routing.py) stands
in front of those until the model of the request is known.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.http.body import Body
from gateway.lanes.client import Client
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.upstream.connection import UpstreamConnection, UpstreamTurn


class DispatchedExchange(UpstreamTurn, Protocol):
    """A passthrough exchange, as its dispatcher needs it.

    `pending` are the pieces of the request that wait for a connection, the first of them for its head. `request_body`
    is the rest of the request, None once it is whole, and `response_body` that of the response, None before its head.
    `upload_blocked`: the upstream does not keep up with the request. `repeat` is the request so far, while it may be
    sent again over a fresh connection.
    """

    client: Client
    record: AccessRecord
    dispatcher: "Dispatcher"
    target: PlanTarget
    pending: list[bytes]
    request_body: Body | None
    response_body: Body | None
    upstream: UpstreamConnection | None
    upload_blocked: bool
    connecting: asyncio.Task[None] | None
    repeat: list[bytes] | None
    invited: bool
    moved: float | None
    has_followed_attempts: bool

    @property
    def has_routed_observers(self) -> bool: ...
    @property
    def is_under_way(self) -> bool: ...
    def start_attempt(self, target: PlanTarget) -> PlanTarget:
        """Return a target as the request is to be sent there: an attempt begins."""
        ...

    def end_attempt(self, target: PlanTarget, outcome: str, status: int = 0) -> None:
        """Note that an attempt has ended whose response is not the client's."""
        ...

    def choose_model(self, model: str, pieces: Sequence[bytes]) -> None:
        """Note the model of the request, with what is here of its body. Raises GatewayError: it may not go there."""
        ...

    def choose_upstream(self, upstream: str) -> None:
        """Note that the request is about to go to an upstream. Raises GatewayError: it has no room there."""
        ...

    def switch_target(self, target: PlanTarget) -> None: ...
    def attach_connection(self, upstream: UpstreamConnection, data: bytes) -> None:
        """Send the request, or the beginning of it, over a connection."""
        ...

    def open(self, request: bytes) -> None:
        """Open a connection for the request; `Dispatcher.on_connected` follows."""
        ...

    async def connect(self) -> None: ...
    def forward_response(self, data: bytes) -> None:
        """Pass the beginning of a response on to the client."""
        ...

    def forwards_interim(self, status: int) -> bool: ...
    def forget_response(self) -> None:
        """Begin anew: nothing of a response was forwarded."""
        ...

    def drop_upstream(self) -> None:
        """End the connection to the upstream, or the opening of one."""
        ...

    def invite_body(self) -> None: ...
    def handle_failure(self, error: GatewayError, *, outcome: str) -> None: ...
    def fail_soon(self, error: GatewayError, *, outcome: str) -> None:
        """Fail in the next turn of the loop: requests that are held behind would be refused inside each other."""
        ...

    def await_room(self, undecided: UndecidedError, resume: Callable[[], None]) -> None:
        """Go on once it is known whether there is room, unless the exchange is over by then."""
        ...

    def respond_error(self, error: GatewayError, *, outcome: str) -> None:
        """End the exchange with an error of ours."""
        ...


class Dispatcher:
    """The phases of a dispatcher, which do nothing by themselves.

    `awaits_body`: the choice waits for more of the request. `is_silent`: no byte of the attempt's response was seen.
    """

    awaits_body = False
    is_silent = True

    def start(self, exchange: DispatchedExchange, digits: bytes, body: bytes) -> None:
        """Begin the first attempt, with what is here of the body."""
        raise NotImplementedError

    def note_request_piece(self, exchange: DispatchedExchange, piece: bytes) -> None:
        """Note a further piece of the request's body, before it goes on."""

    def on_body_arrived(self, exchange: DispatchedExchange) -> None:
        """Look at the body again: more of it is here, or all (only with `awaits_body`)."""

    def on_connected(self, exchange: DispatchedExchange, upstream: UpstreamConnection, request: bytes) -> None:
        """Send the request over the connection that was opened for it."""
        exchange.attach_connection(upstream, request)

    def on_response_bytes(self, exchange: DispatchedExchange, data: bytes) -> None:
        """Take bytes of a response whose head was not forwarded yet."""
        exchange.forward_response(data)

    def attempt_failed(self, exchange: DispatchedExchange, error: GatewayError, outcome: str) -> bool:
        """Return whether the exchange goes on after a failure, because another attempt or a response follows."""
        del exchange, error, outcome
        return False

    def stop(self, exchange: DispatchedExchange) -> bool:
        """Return whether the client gets a response that was kept, now that the gateway stops."""
        del exchange
        return False

    def drop(self, exchange: DispatchedExchange) -> None:
        """End all connections of the request."""
        exchange.drop_upstream()

    def end(self, exchange: DispatchedExchange, outcome: str, status: int = 0) -> None:
        """Note the end of the exchange: `ok` with the status of the response, or why it was cut."""


class DispatcherFactory(Protocol):
    """Makes the dispatcher of each request of a plan, which may go to so many targets at most."""

    @property
    def most_targets(self) -> int: ...
    def build_dispatcher(self) -> Dispatcher: ...


class Direct(Dispatcher):
    """A dispatcher for one endpoint. It keeps nothing of a request, so one serves all of them.

    Most exchanges have this one, so those do not call the phases in which it does nothing but go on.
    """

    def start(self, exchange: DispatchedExchange, digits: bytes, body: bytes) -> None:
        """Send the head and what is here of the body, over an idle connection or a new one."""
        if exchange.has_followed_attempts:
            exchange.switch_target(exchange.start_attempt(exchange.target))
        target = exchange.target
        before, after = target.head
        request = b"".join((before, digits, after, body))
        upstream = target.member.pool.take_idle()
        if upstream is None:
            exchange.open(request)
        else:
            if exchange.record.policy.repeatable:
                exchange.repeat = [request]
            exchange.attach_connection(upstream, request)


DIRECT: Final = Direct()
