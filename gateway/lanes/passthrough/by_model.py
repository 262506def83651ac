"""A passthrough request whose upstream is chosen by the `model` of its body (`passthrough.by_model`).

The body is held until its model is known, or until there is none in the part that is looked at; then the request goes
on as any other. No byte of it is changed. A second reader takes the chunk framing off for the look, and nothing else.
"""

from gateway.contracts.errors import GatewayError
from gateway.http.body import BodyError, ChunkedBody
from gateway.lanes.passthrough.hedging import Hedging
from gateway.lanes.passthrough.model_field import LIMIT_BYTES, ModelField, model_of
from gateway.lanes.passthrough.sending import CONTINUE
from gateway.lanes.transaction import SENDING


class ByModel(Hedging):
    """A passthrough transaction that looks for its model first."""

    _field: ModelField | None = None  # while it is looked for
    _payload: ChunkedBody | None = None

    def _begin(self, digits: bytes, body: bytes) -> None:
        self._digits = digits
        if self._request is None and not self._plan.chunked:  # nearly always: the body came with its head
            self._choose(model_of(body), [body])
            return
        self._field = ModelField()
        if self._plan.chunked:
            self._payload = ChunkedBody(payload_only=True)
        self._pending = [b"", body]
        self._look_at(self._field, body)
        self._decide_if_known()
        if self._field is not None and self._plan.expects_continue and not body:
            self._invited = True  # nobody else can invite the body that the choice depends on
            self._client.write(CONTINUE)

    def request_received(self, data: bytes) -> None:
        super().request_received(data)
        if self._field is not None and self._under_way:
            self._decide_if_known()

    def _feed_request(self, data: bytes) -> bytes | None:
        fed = super()._feed_request(data)
        if fed and self._field is not None:
            self._look_at(self._field, fed)
        return fed

    def _look_at(self, field: ModelField, piece: bytes) -> None:
        if self._payload is not None:
            try:
                piece = self._payload.feed(piece)
            except BodyError:  # its framing was checked before
                field.done = True
        field.feed(piece)

    def _decide_if_known(self) -> None:
        """Go on, if the model is known or there is none; else wait for more of the body."""
        field = self._field
        if field is None:
            return
        if not field.done and self._request is not None and self._account.received_bytes < LIMIT_BYTES:
            self._client.resume(SENDING)
            return
        self._field = self._payload = None
        self._choose(field.model, self._pending[1:])

    def _choose(self, model: str | None, pieces: list[bytes]) -> None:
        """Go on to the upstream of a model, with what is here of the body."""
        by_model = self._plan.by_model
        assert by_model is not None
        try:
            ways = by_model.get_ways(model)
        except GatewayError as error:
            self._client.listener.loop.call_soon(self._refuse, error)
            return
        self._go_ways(ways, pieces, model=model)

    def sweep(self, now: float) -> None:
        if self._field is None or not self._end_if_late(now):
            super().sweep(now)
