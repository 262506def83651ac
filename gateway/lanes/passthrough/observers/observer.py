"""The phases of a passthrough exchange, as a feature sees them. An observer is one object of one exchange.

The exchange knows no feature. It calls the observers of its plan at each phase, in their order. They may refuse the
request (with a GatewayError, where it says so), read what passes, and say nothing else: no observer changes a byte that
is relayed, but for the target of an attempt. A feature has them in `observer.py` of its folder (`gateway/features/`),
with its `PassthroughFeature`. The order of the phases is drawn in docs/architecture.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import RequestHead
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.observers.tee import PayloadSink
from gateway.lanes.passthrough.plan_records import PlanTarget

#: The outcome of an exchange that an observer refused.
REFUSED: Final = "limited"


class Observer:
    """The phases of one exchange, which do nothing by themselves."""

    def on_request(self, length: int, body: bytes, grows: bool) -> None:
        """Before anything is sent: `length` bytes are to come in all, or more if it `grows`; `body` is here.

        It is as the client sends it, with the framing of its chunks. Raises GatewayError: the request is refused; or
        UndecidedError: it waits, and this phase comes again for all observers.
        """

    def on_request_body(self, piece: bytes) -> None:
        """Before a further piece of the body is sent. Raises GatewayError: refused, unless the response has begun."""

    def on_model(self, model: str, body: Sequence[bytes]) -> None:
        """Once the model is known that decides the upstream, with what is here of the body. Raises as `on_request`."""

    def on_upstream(self, upstream: str) -> None:
        """Before an upstream is asked, where there is a choice.

        Raises GatewayError: it is passed over; or UndecidedError, as `on_request`.
        """

    def on_attempt_started(self, target: PlanTarget) -> PlanTarget:
        """Before the head of an attempt is sent. Return the target, perhaps with further fields in its head."""
        return target

    def on_attempt_ended(self, target: PlanTarget, outcome: str, status: int) -> None:
        """After an attempt whose response is not the client's; `status` 0: it had none."""

    def on_response_head(self, content_coding: Callable[[], bytes]) -> PayloadSink | None:
        """Once the head is forwarded of a response whose body follows. Return what reads the payload, or None.

        `content_coding` returns the Content-Encoding.
        """
        del content_coding
        return None

    def on_tunnel(self) -> None:
        """Before the exchange closes because a tunnel takes its place."""

    def on_tunnel_ended(self) -> None:
        """After the end of the tunnel. It may come twice."""

    def on_closed(self, outcome: str, error: GatewayError | None) -> bool:
        """After the end, once for each exchange, however it ends.

        Return whether the observer counts the exchange itself, a little later (`AccessRecord.count`).
        """
        del outcome, error
        return False


class ObserverFactory:
    """Makes the observer of an exchange: of a `kind`, with what it takes before the record of the exchange."""

    __slots__ = ("kind", "make")

    def __init__(self, kind: Callable[..., Observer], *facts: object) -> None:
        self.kind = kind
        self.make: Callable[[AccessRecord], Observer] = partial(kind, *facts)

    def takes(self, phase: str) -> bool:
        """Return whether these observers do something at a phase."""
        return getattr(self.kind, phase) is not getattr(Observer, phase)


class Observers:
    """The observers of a plan's exchanges. A phase that none of them takes costs an exchange nothing."""

    __slots__ = ("closing", "makers", "modelled", "reading", "requested", "routed", "takes_attempts")

    def __init__(self, factories: Iterable[ObserverFactory]) -> None:
        factories = tuple(factories)
        self.makers = tuple(factory.make for factory in factories)
        # The places of those that take a phase.
        self.requested = _find_phase_places(factories, "on_request")
        self.modelled = _find_phase_places(factories, "on_model")
        self.routed = _find_phase_places(factories, "on_upstream")
        self.reading = _find_phase_places(factories, "on_response_head")
        self.closing = _find_phase_places(factories, "on_closed")
        self.takes_attempts = bool(_find_phase_places(factories, "on_attempt_started"))


def _find_phase_places(factories: Sequence[ObserverFactory], phase: str) -> tuple[int, ...]:
    """Return where the factories stand whose observers take a phase."""
    return tuple(at for at, factory in enumerate(factories) if factory.takes(phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """The facts of a plan's requests by which their observers are chosen.

    `upstream` is the one that they go to, if no body or failure decides that. `upstreams` are all that they may go to
    where there is a choice, and `by_model`: a model in the body chooses among these. `reads_tokens`: a feature needs
    the tokens of their answers, `reads_at_once`: when the exchange closes.
    """

    head: RequestHead
    path: bytes
    caller: Caller
    upstream: str | None
    upstreams: tuple[str, ...]
    by_model: bool
    reads_tokens: bool = False
    reads_at_once: bool = False


class PassthroughFeature:
    """A feature of one configuration, as passthrough sees it. By itself it does nothing.

    `written_fields` are fields of the head that it writes in place of the client. `reads_at_once`: its observers want
    the tokens of an answer when the exchange closes, so that no answer may wait to be read with others.
    """

    written_fields: frozenset[bytes] = frozenset()
    reads_at_once = False

    def needs_tokens(self, caller: Caller) -> bool:
        """Return whether the tokens of a caller's requests are to be read."""
        del caller
        return False

    def needs_whole_body(self, caller: Caller, upstreams: Iterable[str], *, by_model: bool) -> bool:
        """Return whether a request begins only once its body is whole, or `retry.body` of it is here.

        So it takes no place that others want while its client sends, and its observers see the body before anything
        is sent. `upstreams` are those that it may go to, `by_model`: as the models say that bodies name.
        """
        del caller, upstreams, by_model
        return False

    def choose_observer(self, request: PlannedRequest) -> ObserverFactory | None:
        """Return what makes the observers of a plan's requests; None: the feature has no use for them.

        Raises GatewayError: the requests are refused.
        """
        del request
        return None
