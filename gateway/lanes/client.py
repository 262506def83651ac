"""The client's connection and the state of all of them, as a transaction needs them: one request and its answer.

The lanes differ in what they do with a transaction.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.auth.keyring import Key
from gateway.contracts.tracing.tracer import Tracer
from gateway.http.request_head import RequestHead
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from aiohttp.web import RequestHandler

#: Reasons for the client's reading to be paused: too much is held for later; where the body goes does not keep up; what
#: came takes more than one turn of the event loop.
HELD: Final = 1
SENDING: Final = 2
YIELDED: Final = 4
#: Above `HIGH` unsent bytes the upstream is paused. One read of 64 KiB can come on top of it, and the read before that
#: is kept while a byte of it is unsent: a reader that stands still costs about 134 KiB.
HIGH_WATER_BYTES: Final = 6144
LOW_WATER_BYTES: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimeouts:
    """The times that a client may take, in seconds (configuration: `limits`).

    `body_rate` is the least of a body that holds places which others want, in bytes a second.
    """

    head_s: float = 10.0
    body_idle_s: float = 60.0
    body_rate: int = 8 << 10
    write_s: float = 60.0
    keepalive_s: float = 75.0


class Transaction(Protocol):
    """Holds a client connection from the end of a request's head until its answer is whole.

    It ends by `ClientConnection.end_transaction` or by the end of the connection; then `on_client_gone` was called,
    once.
    """

    @property
    def mode(self) -> str: ...

    @property
    def streaming(self) -> bool:
        """Return whether the answer is an event stream on its way."""
        ...

    def on_request_bytes(self, data: bytes) -> None:
        """Bytes from the client: of this request's body, or of what the client sent behind it."""
        ...

    def on_client_eof(self) -> bool:
        """Handle the client's FIN. Return True to leave our side open, False to close it after what is unsent."""
        ...

    def on_client_gone(self) -> None:
        """Handle the loss of the client's connection."""
        ...

    def on_client_full(self) -> None:
        """Handle a client that does not keep up with its answer."""
        ...

    def on_client_drained(self) -> None: ...

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
    def timeouts(self) -> ClientTimeouts: ...
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
    @property
    def tracer(self) -> Tracer | None: ...
    def allows_key(self, key: Key, peer: str | None) -> bool:
        """Return whether a key with which a request began may still be used, from the address `peer`."""
        ...

    def get_cors_fields(self, head: RequestHead) -> Mapping[str, str]:
        """Return the header fields with which a page of another origin may read an answer of ours."""
        ...


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
    def hold_bytes(self, data: bytes) -> None: ...
    def take_held_bytes(self) -> bytes: ...
    def pause(self, reason: int) -> None: ...
    def resume(self, reason: int) -> None: ...
    def yield_turn(self, read_on: Callable[[], bool]) -> None: ...
    def end_transaction(self, *, keep: bool, linger: bool = False) -> None: ...
    def cut_connection(self, *, framed: bool) -> None: ...
    def abort(self) -> None: ...
