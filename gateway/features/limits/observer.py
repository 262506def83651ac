"""The limits of a passthrough exchange: a request without room is answered here, and nothing of it goes upstream.

A request takes its places before anything else happens, and gives them back when the exchange closes: that happens
exactly once, however it ends. A tunnel keeps them to its own end. What is relayed is never changed. The tokens that
were reserved are corrected when the answer is read, which may be a little later (`usage_batch.py`).

Where there is a choice of upstreams, the places at an upstream are taken when the request is about to go there, and
given back when it goes on to a fallback.
"""

from collections.abc import Iterable, Sequence

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.features.usage.observer_meter import is_model_path
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.observers.observer import Observer, ObserverFactory, PassthroughFeature, PlannedRequest
from gateway.lanes.path_normalization import may_act_as_post
from gateway.limits.admission import Admission
from gateway.limits.limit_rule import LimitRule
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import BYTES_A_TOKEN, NEVER, AnyReservation, Reservation, join_reservations


class LimitFeature(PassthroughFeature):
    """The limits of one configuration. Where tokens are read, the observer of usage gives the places back."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def needs_tokens(self, caller: Caller) -> bool:
        return self._limiter.counts_tokens(caller)

    def needs_whole_body(self, caller: Caller, upstreams: Iterable[str], *, by_model: bool) -> bool:
        return self._limiter.takes_shared_room(caller, upstreams, by_model=by_model)

    def choose_observer(self, request: PlannedRequest) -> ObserverFactory | None:
        """Return what makes the observers of requests with limits. Raises GatewayError (overloaded): uncountable."""
        limiter, upstream = self._limiter, request.upstream
        own = () if upstream is None else limiter.list_upstream_rules(upstream)
        rules = (*limiter.list_caller_rules(request.caller), *own)
        if not rules and not self._has_later_limits(request):
            return None
        makes = may_act_as_post(request.head.method, has_body=request.head.has_body)
        admission = Admission(limiter, rules, takes_tokens=is_model_path(request.path, makes=makes))
        kind = LimitObserver if request.reads_tokens else ClosingLimitObserver
        return ObserverFactory(kind, admission, upstream is None)

    def _has_later_limits(self, request: PlannedRequest) -> bool:
        """Return whether limits of the later upstream or model may apply, too."""
        if request.upstream is not None:
            return False
        return (
            self._limiter.has_targets if request.by_model else any(map(self._limiter.has_upstream, request.upstreams))
        )


class LimitObserver(Observer):
    """The places of one request. The observer of its usage gives them back."""

    # Each begins with these; as class attributes they cost nothing until they change.
    _length = 0  # of the body, as far as it counts
    _grows = False  # what the request reserves, with its body
    _body: Sequence[bytes] = ()  # what is here of it, until the request goes somewhere
    #: The parts of the reservation, with their rules, if it changes.
    _parts: list[tuple[AnyReservation, Sequence[LimitRule]]] | None = None
    _has_upstream = False  # the last part is at an upstream
    _of_tunnel: Reservation | None = None

    def __init__(self, admission: Admission, has_choice: bool, record: AccessRecord) -> None:
        """`has_choice`: places at the upstream are taken later (`on_upstream`)."""
        self._admission = admission
        self._has_choice = has_choice
        self._record = record

    def on_request(self, length: int, body: bytes, grows: bool) -> None:
        """Reserve places and tokens for the request, by the length of its body."""
        admission = self._admission
        if grows:
            length = len(body)
        shared = None if grows else admission.take_prefetched(length)
        self._record.reservation = reservation = shared or admission.reserve_places(body, length)
        if grows or self._has_choice:
            self._grows, self._length, self._body = grows, length, (body,)
            self._parts = [(reservation, admission.rules)]

    def on_request_body(self, piece: bytes) -> None:
        """Reserve more tokens as a body of unknown length grows. Raises GatewayError without room."""
        if not (self._grows and self._parts and self._admission.takes_tokens):
            return
        self._length += len(piece)
        try:
            shown = [rule for _, rules in self._parts for rule in rules]
            for reservation, rules in self._parts:
                assert isinstance(reservation, Reservation)
                self._admission.limiter.reserve_more(reservation, rules, self._length // BYTES_A_TOKEN, shown=shown)
        finally:
            self._join_parts()

    def on_model(self, model: str, body: Sequence[bytes]) -> None:
        """Reserve places in the rules of the model. Raises GatewayError without room."""
        rules = self._admission.limiter.list_model_rules(model)
        self._body = tuple(body)
        if rules:
            self._reserve_further(rules)

    def on_upstream(self, upstream: str) -> None:
        """Reserve places in the rules of the upstream, and close the reservation of the previous one."""
        rules, parts = self._admission.limiter.list_upstream_rules(upstream), self._parts
        assert parts is not None
        if rules:
            self._reserve_further(rules)
        if self._has_upstream:
            before, _ = parts.pop(-2 if rules else -1)
            self._join_parts()
            before.close(tokens=0)
        self._has_upstream = bool(rules)
        self._body = ()

    def _reserve_further(self, rules: tuple[LimitRule, ...]) -> None:
        """Reserve places in further rules, too. Raises GatewayError, and reserves none, without room."""
        admission = self._admission.with_rules(rules)
        shared = None if self._grows else admission.take_prefetched(self._length)
        assert self._parts is not None
        more = shared or admission.reserve_places(b"".join(self._body), self._length)
        self._parts.append((more, rules))
        before = self._record.reservation
        assert before is not None
        self._record.reservation = admission.combine_reservations(before, more)

    def _join_parts(self) -> None:
        """Make one reservation of all parts."""
        assert self._parts is not None
        self._record.reservation = join_reservations(*[reservation for reservation, _ in self._parts])

    def on_tunnel(self) -> None:
        """Keep the reservation for the tunnel; its tokens are not counted."""
        reservation, self._record.reservation = self._record.reservation, None
        assert reservation is not None
        self._of_tunnel = reservation.close(tokens=NEVER)

    def on_tunnel_ended(self) -> None:
        if self._of_tunnel is not None:
            self._of_tunnel.close()


class ClosingLimitObserver(LimitObserver):
    """The places of a request whose tokens are not read."""

    def on_closed(self, outcome: str, error: GatewayError | None) -> bool:
        del error
        if self._record.reservation is not None:
            self._record.reservation.close(outcome)
        return False
