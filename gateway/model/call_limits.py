"""The places of one call of a model in the limits of its caller, and of the model and the upstream that get it."""

from collections.abc import Sequence

import orjson

from gateway.contracts.exchange import Exchange
from gateway.limits.limit_rule import LimitRule
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import BYTES_A_TOKEN, LIMITED, Reservation


class CallLimits:
    """The places of one call. For its caller a call only takes tokens: the run that makes it is the request."""

    def __init__(self, limiter: Limiter, exchange: Exchange) -> None:
        """Take the tokens of the caller. Raises GatewayError (rate_limit_exceeded, insufficient_quota)."""
        self._limiter = limiter
        self._body = exchange.body
        self._least: int | None = None
        self._model: Reservation | None = None
        self._upstream: Reservation | None = None
        self._has_entered = False  # an upstream had room, since the model was asked for
        # The tokens of all tries, of those at the model, and of those at the upstream.
        self._used = self._used_of_model = self._used_there = 0
        self._caller = self._reserve(limiter.of_caller(exchange.caller), requests=0)

    def ask(self, model: str) -> None:
        """Take the places at a model, in place of the places at the one before. Raises as the constructor."""
        self._leave()
        self._model = self._reserve(self._limiter.of_model(model))

    def enter(self, upstream: str) -> None:
        """Take the places at an upstream, in place of the places at the one before. Raises as the constructor."""
        before, self._upstream = self._upstream, self._reserve(self._limiter.of_upstream(upstream))
        if before is not None:
            before.close(tokens=self._used_there)
        self._used_there = 0
        self._has_entered = True

    def use(self, tokens: int) -> None:
        """Count the tokens of a try."""
        self._used += tokens
        self._used_of_model += tokens
        self._used_there += tokens

    def end(self) -> None:
        """Give the places back, with the tokens that were used. Idempotent."""
        self._leave()
        if self._caller is not None:
            self._caller.close(tokens=self._used)

    def _leave(self) -> None:
        """Give the places at the model and the upstream back; a call that was never sent does not count."""
        if self._model is not None and not self._has_entered:
            self._model.close(LIMITED)
        for reservation, tokens in ((self._model, self._used_of_model), (self._upstream, self._used_there)):
            if reservation is not None:
                reservation.close(tokens=tokens)
        self._model = self._upstream = None
        self._used_of_model = self._used_there = 0
        self._has_entered = False

    def _reserve(self, rules: Sequence[LimitRule], *, requests: int = 1) -> Reservation | None:
        if not rules:
            return None
        return self._limiter.reserve(rules, tokens=self._tokens(), requests=requests, guess=self._guess())

    def _tokens(self) -> int:
        if self._least is None:
            asked = (self._body.get("messages"), self._body.get("tools"))
            self._least = len(orjson.dumps(asked)) // BYTES_A_TOKEN
        return self._least

    def _guess(self) -> int | None:
        """Return the tokens that the call may use, if it bounds its answer."""
        for name in ("max_completion_tokens", "max_tokens"):
            if isinstance(most := self._body.get(name), int) and most > 0:
                return self._tokens() + most
        return None
