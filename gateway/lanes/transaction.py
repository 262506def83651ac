"""A transaction: one request and its answer on a client connection. The lanes differ in what they do with it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.contracts.errors import GatewayError
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from aiohttp.web import RequestHandler

    from gateway.lanes.router import Router

#: Reasons for the client's reading to be paused: too much is held for later; where the body goes does not keep up; what
#: came takes more than one turn of the event loop.
HELD: Final = 1
SENDING: Final = 2
YIELDED: Final = 4
#: Above `HIGH` unsent bytes the upstream is paused. One read of 64 KiB can come on top of it, and the read before that
#: is kept while a byte of it is unsent: a reader that stands still costs about 134 KiB.
HIGH_WATER_BYTES: Final = 6144
LOW_WATER_BYTES: Final = 2048


class Transaction(Protocol):
    """Holds a client connection from the end of a request's head until its answer is whole.

    It ends by `ClientConnection.turn_done` or by the end of the connection; then `client_gone` was called, once.
    """

    @property
    def mode(self) -> str: ...

    @property
    def streaming(self) -> bool:
        """Return whether the answer is an event stream on its way."""
        ...

    def request_received(self, data: bytes) -> None:
        """Bytes from the client: of this request's body, or of what the client sent behind it."""
        ...

    def client_eof(self) -> bool:
        """Handle the client's FIN. Return True to leave our side open, False to close it after what is unsent."""
        ...

    def client_gone(self) -> None:
        """Handle the loss of the client's connection."""
        ...

    def client_full(self) -> None:
        """Handle a client that does not keep up with its answer."""
        ...

    def client_drained(self) -> None: ...

    def sweep(self, now: float) -> None:
        """Look at this transaction's deadlines; called twice a second with the loop's time."""
        ...


class AccessLog(Protocol):
    """Takes the facts of one answered request."""

    def __call__(self, **facts: object) -> None: ...


class Clients(Protocol):
    """The state that all client connections of a worker share, as far as a transaction needs it."""

    listening: int
    answering: int

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def router(self) -> "Router": ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def new_handler(self) -> "Callable[[], RequestHandler]": ...
    @property
    def access_log(self) -> AccessLog | None: ...
    @property
    def websockets(self) -> set[Any]: ...
    @property
    def draining(self) -> bool: ...


class Client(Protocol):
    """The connection as the transaction that holds it needs it."""

    transaction: Transaction | None

    @property
    def listener(self) -> Clients: ...
    @property
    def is_inner(self) -> bool: ...
    @property
    def transport(self) -> asyncio.Transport: ...
    @property
    def blocked_since(self) -> float | None: ...
    @property
    def paused(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def hold(self, data: bytes) -> None: ...
    def unhold(self) -> bytes: ...
    def pause(self, reason: int) -> None: ...
    def resume(self, reason: int) -> None: ...
    def yield_turn(self, read_on: Callable[[], bool]) -> None: ...
    def turn_done(self, *, keep: bool, linger: bool = False) -> None: ...
    def cut(self, *, framed: bool) -> None: ...
    def abort(self) -> None: ...


class ListenerState(Clients, Protocol):
    """The shared state as a connection needs it."""

    inflight: int
    inner: int
    has_ended: bool

    @property
    def connections(self) -> set[Any]: ...
    @property
    def clients(self) -> int: ...
    @property
    def paused(self) -> set[Any]: ...
    @property
    def most_connections(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def refuse(self) -> bool: ...
    def admit(self) -> None: ...
    def watch(self, connection: Any) -> None: ...
    def record_end(self) -> None: ...
    def record_rejection(
        self, error: GatewayError, *, request_id: str, method: bytes, path: bytes, peer: object
    ) -> None: ...
