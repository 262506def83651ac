"""The limits of the context lane: a run is one request of its caller, and its calls of models take the tokens.

A call also takes places at the model and the upstream that get it.
"""

from collections.abc import Mapping, Sequence

import orjson

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.limits.limit_rule import LimitRule
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import BYTES_A_TOKEN, LIMITED, Reservation
from gateway.model.hooks import CallObserver, ContextHook, RunAdmission


class LimitHook(ContextHook):
    """The limits of one configuration."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def admit_run(self, exchange: Exchange, *, calls_model: bool) -> RunAdmission | None:
        """Take the places of one request. Raises GatewayError (429) if the caller's limits have no room."""
        if not (rules := self._limiter.list_caller_rules(exchange.caller)):
            return None
        exceeded: list[str] = []
        reservation = self._limiter.reserve_places(
            rules, tokens=1 if calls_model else None, reserves=False, exceeded=exceeded
        )
        return RunAdmission(reservation.close, exceeded[0] if exceeded else None)

    def build_answer_fields(self, caller: Caller) -> Mapping[str, str]:
        rules = self._limiter.list_caller_rules(caller)
        return self._limiter.build_header_fields(rules) if rules else {}

    def observe_call(self, exchange: Exchange) -> CallObserver | None:
        if self._limiter.has_targets or self._limiter.list_caller_rules(exchange.caller):
            return CallLimits(self._limiter, exchange)
        return None


class CallLimits(CallObserver):
    """The places of one call. For its caller a call only takes tokens: the run that makes it is the request."""

    def __init__(self, limiter: Limiter, exchange: Exchange) -> None:
        """Take the tokens of the caller. Raises GatewayError (rate_limit_exceeded, insufficient_quota).

        See `wait_for_room`, as for `on_model` and `on_upstream`.
        """
        self._limiter = limiter
        self._body = exchange.body
        self._least: int | None = None
        self._model: Reservation | None = None
        self._upstream: Reservation | None = None
        self._has_entered = False  # an upstream had room, since the model was asked for
        # The tokens of all tries, of those at the model, and of those at the upstream.
        self._used = self._used_of_model = self._used_there = 0
        self._caller = self._reserve(limiter.list_caller_rules(exchange.caller), requests=0)

    def on_model(self, model: str) -> None:
        """Take the places at a model, in place of the places at the one before. Raises as the constructor."""
        self._release_places()
        self._model = self._reserve(self._limiter.list_model_rules(model))

    def on_upstream(self, upstream: str) -> None:
        """Take the places at an upstream, in place of the places at the one before. Raises as the constructor."""
        before, self._upstream = self._upstream, self._reserve(self._limiter.list_upstream_rules(upstream))
        if before is not None:
            before.close(tokens=self._used_there)
        self._used_there = 0
        self._has_entered = True

    def on_try_ended(self, tokens: int) -> None:
        """Count the tokens of a try."""
        self._used += tokens
        self._used_of_model += tokens
        self._used_there += tokens

    def on_closed(self) -> None:
        """Give the places back, with the tokens that were used. Idempotent."""
        self._release_places()
        if self._caller is not None:
            self._caller.close(tokens=self._used)

    def _release_places(self) -> None:
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
        return self._limiter.reserve_places(
            rules, tokens=self._estimate_sent_tokens(), requests=requests, guess=self._estimate_tokens()
        )

    def _estimate_sent_tokens(self) -> int:
        if self._least is None:
            asked = (self._body.get("messages"), self._body.get("tools"))
            self._least = len(orjson.dumps(asked)) // BYTES_A_TOKEN
        return self._least

    def _estimate_tokens(self) -> int | None:
        """Return the tokens that the call may use, if it bounds its answer."""
        for name in ("max_completion_tokens", "max_tokens"):
            if isinstance(most := self._body.get(name), int) and most > 0:
                return self._estimate_sent_tokens() + most
        return None
