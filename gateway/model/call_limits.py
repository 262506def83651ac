"""The places of one call of a model in the limits of its caller, and of the model and the upstream that are asked."""

from collections.abc import Sequence

import orjson

from gateway.contracts.exchange import Exchange
from gateway.limits.holds import Hold, end, withdraw
from gateway.limits.limiter import BYTES_A_TOKEN, Limiter
from gateway.limits.rule import Rule


class CallLimits:
    """The places of one call. For its caller a call only takes tokens: the run that makes it is the request."""

    def __init__(self, limiter: Limiter, exchange: Exchange) -> None:
        """Take the tokens of the caller. Raises GatewayError (rate_limit_exceeded, insufficient_quota)."""
        self._limiter = limiter
        self._body = exchange.body
        self._least: int | None = None
        self._model: Hold | None = None
        self._upstream: Hold | None = None
        self._has_entered = False  # an upstream had room, since the model was asked for
        self._caller = self._taken(limiter.of_caller(exchange.caller), requests=0)

    def ask(self, model: str) -> None:
        """Take the places at a model, in place of those at the one before. Raises as the constructor."""
        self._leave(0)
        self._model = self._taken(self._limiter.of_model(model))

    def enter(self, upstream: str) -> None:
        """Take the places at an upstream, in place of those at the one before. Raises as the constructor."""
        before, self._upstream = self._upstream, self._taken(self._limiter.of_upstream(upstream))
        if before is not None:
            end(before, 0)
        self._has_entered = True

    def end(self, tokens: int | None) -> None:
        """Give the places back. `tokens` were used; None: nobody knows. Idempotent."""
        self._leave(tokens)
        if self._caller is not None:
            end(self._caller, tokens)

    def _leave(self, tokens: int | None) -> None:
        """Give the places at the model and the upstream back; what no upstream was sent was no request of the model."""
        if self._model is not None and not self._has_entered:
            withdraw(self._model)
        for hold in (self._model, self._upstream):
            if hold is not None:
                end(hold, tokens)
        self._model = self._upstream = None
        self._has_entered = False

    def _taken(self, rules: Sequence[Rule], *, requests: int = 1) -> Hold | None:
        return self._limiter.admit(rules, tokens=self._tokens(), requests=requests) if rules else None

    def _tokens(self) -> int:
        if self._least is None:
            self._least = len(orjson.dumps(self._body.get("messages"))) // BYTES_A_TOKEN
        return self._least
