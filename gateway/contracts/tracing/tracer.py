"""The maker of spans. It draws ids, decides what is sampled, and hands ended spans to their sender.

The gateway has its own spans and not the SDK's: a span of a run ends in another process than it began in, and one of a
passthrough request is made when that is over, of times that were taken anyway (docs/decisions/0054).
"""

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import getrandbits
from time import time_ns
from typing import Final, Literal, TypeAlias

from gateway.contracts.errors import GatewayError
from gateway.contracts.tracing.context import CURRENT, TraceContext

Kind: TypeAlias = Literal["internal", "server", "client"]
Attribute: TypeAlias = str | bool | int | float | tuple[str, ...] | None
Attributes: TypeAlias = Mapping[str, Attribute]
#: What trace context is passed on to.
Receiver: TypeAlias = Literal["upstreams", "tools", "mcp"]

#: Of the 64 random bits of a trace id that decide about sampling, as `TraceIdRatioBased` of the SDKs does.
_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Record:
    """A span that has ended. Times are Unix nanoseconds; an attribute that is None is not sent; `error`: its type."""

    name: str
    kind: Kind
    context: TraceContext
    began_ns: int
    ended_ns: int
    attributes: Attributes
    error: str = ""
    links: tuple[TraceContext, ...] = ()


class Span:
    """A span under way. `attributes` may change until it ends."""

    __slots__ = ("_began_ns", "_send", "attributes", "context", "error", "kind", "links", "name")

    def __init__(
        self,
        name: str,
        kind: Kind,
        context: TraceContext,
        attributes: dict[str, Attribute],
        *,
        send: Callable[[Record], None] | None,
        links: tuple[TraceContext, ...] = (),
    ) -> None:
        """Begin now. `send` None: it is not sampled."""
        self.name = name
        self.kind: Kind = kind
        self.context = context
        self.attributes = attributes
        self.error = ""
        self.links = links
        self._send = send
        self._began_ns = 0 if send is None else time_ns()

    @property
    def is_sampled(self) -> bool:
        """Return whether the span is exported."""
        return self._send is not None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the span the current one of this task for the block. An exception ends it, as its error."""
        token = CURRENT.set(self.context)
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise
        finally:
            CURRENT.reset(token)

    def end(self, error: BaseException | str | None = None) -> None:
        """End the span, with an error or its type. Idempotent."""
        send, self._send = self._send, None
        if send is None:
            return
        self.error = get_error_type(error) or self.error
        facts = (self.name, self.kind, self.context, self._began_ns, time_ns(), self.attributes, self.error)
        send(Record(*facts, self.links))


class Tracer:
    """The maker of the spans of one process. `share` of the traces that begin here are sampled.

    A trace that began elsewhere is sampled if it was there. `receivers` get trace context, and with `passthrough`
    the upstreams of passthrough requests. Without `trusts_clients`, all traces begin here.
    """

    def __init__(
        self,
        send: Callable[[Record], None],
        *,
        share: float,
        receivers: frozenset[Receiver],
        passthrough: bool = False,
        trusts_clients: bool = True,
    ) -> None:
        self.send = send
        self.receivers = receivers
        self.passthrough = passthrough
        self._trusts_clients = trusts_clients
        self._below = round(share * (1 << _BITS))

    def open_child_span(self, parent: TraceContext | None) -> TraceContext:
        """Return a new span below one of this program; None: at the top of a new trace."""
        if parent is None:
            drawn = getrandbits(128) or 1
            return TraceContext(f"{drawn:032x}", generate_span_id(), drawn % (1 << _BITS) < self._below)
        return TraceContext(parent.trace_id, generate_span_id(), parent.sampled, parent.state, parent.span_id)

    def find_trusted_sender(self, sender: TraceContext | None) -> TraceContext | None:
        """Return the span that a client names as a request's origin, if clients are trusted with that."""
        return sender if self._trusts_clients else None

    def build_request_context(self, sender: TraceContext | None) -> TraceContext:
        """Return a new span of a request, below the span of its sender if that named one."""
        if sender is None:
            return self.open_child_span(None)
        return TraceContext(
            sender.trace_id, generate_span_id(), sender.sampled, sender.state, sender.span_id, remote=True
        )

    def begin(self, name: str, kind: Kind, attributes: dict[str, Attribute], *, parent: TraceContext | None) -> Span:
        """Begin a span below one of this program, or at the top of a trace. It has to be ended."""
        if parent is not None and not parent.sampled:
            return Span(name, kind, parent, attributes, send=None)
        return self.begin_span(self.open_child_span(parent), name, kind, attributes)

    def begin_span(
        self,
        context: TraceContext,
        name: str,
        kind: Kind,
        attributes: dict[str, Attribute],
        links: tuple[TraceContext, ...] = (),
    ) -> Span:
        """Begin a span whose ids were drawn before."""
        return Span(name, kind, context, attributes, send=self.send if context.sampled else None, links=links)

    @contextmanager
    def under_way(self, name: str, kind: Kind, attributes: dict[str, Attribute]) -> Iterator[Span]:
        """Begin a span below the current one, which it is until it ends with the block. An exception is its error."""
        span = self.begin(name, kind, attributes, parent=CURRENT.get())
        with span.current():
            yield span
        span.end()


def generate_span_id() -> str:
    """Return a new id of a span."""
    return f"{getrandbits(64) or 1:016x}"


def get_error_type(error: BaseException | str | None) -> str:
    """Return the type of an error as spans and metrics have it, of a closed set; "" for none."""
    if error is None or isinstance(error, str):
        return error or ""
    if isinstance(error, GatewayError):
        return error.code
    return "cancelled" if isinstance(error, CancelledError | GeneratorExit) else type(error).__name__
