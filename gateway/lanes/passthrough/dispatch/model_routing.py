"""The choice of an upstream by the `model` in the body of a request (`passthrough.by_model`).

The body is held until its model is known, or until there is none in the part that is looked at; then the dispatcher of
the upstream that serves the model takes over. No byte of the body is changed. A second reader takes the chunk framing
off for the look, and nothing else.
"""

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.http.body import BodyError, ChunkedBody
from gateway.lanes.client import SENDING
from gateway.lanes.passthrough.dispatch.dispatcher import DispatchedExchange, Dispatcher
from gateway.lanes.passthrough.dispatch.failover import Failover
from gateway.lanes.passthrough.dispatch.hedge import Hedge
from gateway.lanes.passthrough.dispatch.model_scanner import LIMIT_BYTES, ModelField, find_model
from gateway.lanes.passthrough.dispatch.targets import ModelTargets
from gateway.lanes.passthrough.observers.observer import REFUSED


class ModelRouting(Dispatcher):
    """A dispatcher that looks for the model, and then makes the one of the model's upstream take its place."""

    awaits_body = False
    _digits = b""
    _field: ModelField | None = None  # while it is looked for
    _payload: ChunkedBody | None = None

    def __init__(self, targets: ModelTargets) -> None:
        self._targets = targets

    def start(self, exchange: DispatchedExchange, digits: bytes, body: bytes) -> None:
        self._digits = digits
        is_chunked = exchange.record.head.length is None
        if exchange.request_body is None and not is_chunked:  # nearly always: the body came with its head
            self._choose(exchange, find_model(body), [body])
            return
        self._field, self.awaits_body = ModelField(), True
        if is_chunked:
            self._payload = ChunkedBody(payload_only=True)
        exchange.pending = [b"", body]
        self._scan_for_model(self._field, body)
        self.on_body_arrived(exchange)
        if self.awaits_body and exchange.record.head.expects_continue and not body:
            exchange.invite_body()

    def note_request_piece(self, exchange: DispatchedExchange, piece: bytes) -> None:
        del exchange
        if piece and self._field is not None:
            self._scan_for_model(self._field, piece)

    def _scan_for_model(self, field: ModelField, piece: bytes) -> None:
        if self._payload is not None:
            try:
                piece = self._payload.feed(piece)
            except BodyError:  # its framing was checked before
                field.done = True
        field.feed(piece)

    def on_body_arrived(self, exchange: DispatchedExchange) -> None:
        """Go on, if the model is known or there is none; else wait for more of the body."""
        field = self._field
        if field is None:
            return
        if not field.done and exchange.request_body is not None and exchange.record.received_bytes < LIMIT_BYTES:
            exchange.client.resume(SENDING)
            return
        self._field, self._payload, self.awaits_body = None, None, False
        self._choose(exchange, field.model, exchange.pending[1:])

    def _choose(self, exchange: DispatchedExchange, model: str | None, pieces: list[bytes]) -> None:
        """Go on to the upstream of a model, with what is here of the body."""
        exchange.record.requested_model = model or ""
        try:
            targets = self._targets.find(model)
        except GatewayError as error:
            exchange.fail_soon(error, outcome="unavailable")
            return
        try:
            exchange.choose_model(model or "", pieces)
        except UndecidedError as undecided:
            exchange.pending = [b"", *pieces]
            exchange.await_room(undecided, lambda: self._choose(exchange, model, exchange.pending[1:]))
            return
        except GatewayError as error:
            exchange.fail_soon(error, outcome=REFUSED)
            return
        kind = Failover if targets.group.hedges is None else Hedge
        exchange.dispatcher = dispatcher = kind(targets)
        dispatcher.begin(exchange, self._digits, pieces, model=model)


class ModelRoutingFactory:
    """Makes the dispatchers of a plan whose requests go where their model is served."""

    def __init__(self, targets: ModelTargets) -> None:
        self._targets = targets
        self.most_targets = targets.count

    def build_dispatcher(self) -> ModelRouting:
        """Return the dispatcher of a request."""
        return ModelRouting(self._targets)
