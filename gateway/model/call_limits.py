"""The places of one call of a model in the limits of its caller, and of the model and the upstream that are asked."""

import orjson

from gateway.contracts.exchange import Exchange
from gateway.limits.limiter import BYTES_A_TOKEN, Hold, Limiter


class CallLimits:
    """The places of one call. For its caller a call only takes tokens: the run that makes it is the request."""

    def __init__(self, limiter: Limiter, exchange: Exchange) -> None:
        """Take the tokens of the caller. Raises GatewayError (rate_limit_exceeded, insufficient_quota)."""
        self._limiter = limiter
        self._body = exchange.body
        self._least: int | None = None
        self._holds: list[Hold] = []
        if rules := limiter.of_caller(exchange.caller):
            self._holds.append(limiter.admit(rules, tokens=self._tokens(), enters=False))
        self._asked: Hold | None = None

    def ask(self, upstream: str, model: str) -> None:
        """Take the places at a model and its upstream, in place of those asked before. Raises as the constructor."""
        if self._asked is not None:
            self._asked.end(0)
            self._asked = None
        if rules := self._limiter.of_target(upstream, model):
            self._asked = self._limiter.admit(rules, tokens=self._tokens())

    def end(self, tokens: int | None) -> None:
        """Give the places back. `tokens` were used; None: nobody knows. Idempotent."""
        for hold in (*self._holds, *(() if self._asked is None else (self._asked,))):
            hold.end(tokens)

    def _tokens(self) -> int:
        if self._least is None:
            self._least = len(orjson.dumps(self._body.get("messages"))) // BYTES_A_TOKEN
        return self._least
