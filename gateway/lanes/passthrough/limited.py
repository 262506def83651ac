"""Passthrough transactions with limits: a request without room is answered here, and nothing of it goes upstream.

A request takes its places before anything else happens, and gives them back when its account is closed: that happens
exactly once, however the transaction ends. A tunnel keeps them to its own end. What is relayed is never changed. The
tokens that were reserved are corrected when the answer is read, which may be a little later (`unread.py`).

Where there is a choice of upstreams, the places at an upstream are taken when the request is about to go there, and
given back when it goes on to a fallback.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import GatewayError
from gateway.http.response_head import ResponseHead
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.by_model import ByModel
from gateway.lanes.passthrough.metered import Metering
from gateway.lanes.passthrough.splice import Splice, extended
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.lanes.plan import Ways
from gateway.lanes.transaction import Clients
from gateway.limits.holds import LIMITED, Hold, end, give_back
from gateway.limits.limiter import BYTES_A_TOKEN, Limiter
from gateway.limits.rule import Rule

#: How long an answer may be, at whatever depth: nothing in a text looks like that, because its quotes are escaped.
_MOST: Final = re.compile(rb'[{,]\s*"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})(?=[\s,}])')
_REFUSALS: Final = ("rate_limit_exceeded", "insufficient_quota")


@dataclass(slots=True)
class Admission:
    """The rules of a plan's requests, and the way to those of the upstream and the model that a request goes to.

    `takes_tokens`: a model answers the requests. `is_new`: perhaps no request has told yet how many tokens it used.
    """

    limiter: Limiter
    rules: tuple[Rule, ...]
    takes_tokens: bool
    is_new: bool = True

    def guess(self, body: bytes, length: int) -> int | None:
        """Return the tokens that a request may use, if that is not known yet, and the request says it."""
        self.is_new = self.takes_tokens and _is_one_new(self.rules)
        return _guess(body, length) if self.is_new else None


def _is_one_new(rules: Iterable[Rule]) -> bool:
    """Return whether no request has told one of the rules yet how many tokens it used."""
    return any(rule.most_tokens and not rule.meter.mean for rule in rules)


def _guess(body: bytes, length: int) -> int | None:
    """Return the tokens that a request says it may use; None: it does not."""
    found = _MOST.findall(body)
    return length // BYTES_A_TOKEN + max(map(int, found)) if found else None


class LimitedAccounting(Accounting):
    """The account of one transaction with places, whose usage nobody reads."""

    def close(
        self, outcome: str, listener: Clients, error: GatewayError | None = None, request_id: str | None = None
    ) -> None:
        Accounting.close(self, outcome, listener, error, request_id)  # the next one: `super` would find it each time
        if self.hold is not None:
            give_back(self.hold, outcome)


class LimitedTunnel(Tunnel):
    """A tunnel that keeps the places of the request that opened it."""

    __slots__ = ("hold",)

    hold: Hold

    def client_gone(self) -> None:
        super().client_gone()
        end(self.hold)

    def upstream_lost(self, error: Exception | None) -> None:
        super().upstream_lost(error)
        end(self.hold)


class Limiting(Splice):
    """A splice with limits."""

    _tunnels = LimitedTunnel
    _admission: Admission

    def _begin(self, digits: bytes, body: bytes) -> None:
        admission = self._plan.admission
        assert admission is not None
        self._admission = admission
        tokens = self._length // BYTES_A_TOKEN if admission.takes_tokens else None
        try:
            if admission.is_new:
                guess = admission.guess(body, self._length)
                hold = admission.limiter.admit(admission.rules, tokens, guess=guess)
            else:  # a call without names of arguments takes half as long
                hold = admission.limiter.admit(admission.rules, tokens)
        except GatewayError as error:
            self._refuse_soon(error)
        else:
            self._account.hold = hold
            self._begin_admitted(digits, body)

    def _begin_admitted(self, digits: bytes, body: bytes) -> None:
        """Begin as a transaction of its kind without limits does: `limited` sets it, since `super` is slow."""
        raise NotImplementedError

    def _feed_request(self, data: bytes) -> bytes | None:
        fed = super()._feed_request(data)
        if fed and self._plan.chunked and self._account.hold is not None and self._admission.takes_tokens:
            self._length += len(fed)
            try:
                self._admission.limiter.reserve(self._account.hold, self._rules, self._length // BYTES_A_TOKEN)
            except GatewayError as error:
                if self._answer is None:  # else its model is at work, and the tokens are counted
                    self._fail(error, outcome=LIMITED)
                    return None
        return fed

    @property
    def _rules(self) -> Sequence[Rule]:
        """Return the rules that the request has places in, in their order."""
        return self._admission.rules

    def _refuse_soon(self, error: GatewayError) -> None:
        """Answer in the next turn of the loop: requests that are held behind would be refused inside each other."""
        self._client.listener.loop.call_soon(self._refuse_limited, error)

    def _refuse_limited(self, error: GatewayError) -> None:
        if self._under_way:
            self._fail(error, outcome=LIMITED)

    def _switch(self, head: ResponseHead, data: bytes, came: float) -> None:
        hold, self._account.hold = self._account.hold, None
        super()._switch(head, data, came)
        tunnel = self._client.transaction
        assert isinstance(tunnel, LimitedTunnel)
        assert hold is not None
        tunnel.hold = hold


class LimitingBalanced(Limiting, Balanced):
    """A splice with limits and a choice of upstreams, each of which may have limits."""

    _of_upstream: Sequence[Rule] = ()  # those of its last places
    _known_body: Sequence[bytes] = ()  # what is here of the body, until the request goes somewhere

    def _begin(self, digits: bytes, body: bytes) -> None:
        self._known_body = (body,)
        super()._begin(digits, body)

    def _enter(self, upstream: str) -> None:
        rules, hold = self._admission.limiter.of_upstream(upstream), self._account.hold
        assert hold is not None
        taken: Hold = self._admitted(rules) if rules else []
        if self._of_upstream:
            before = len(hold) - len(self._of_upstream)
            left, hold[before:] = hold[before:], []
            end(left, 0)
        self._of_upstream = rules
        self._known_body = ()
        hold += taken

    @property
    def _rules(self) -> Sequence[Rule]:
        return (*super()._rules, *self._of_upstream)

    def _admitted(self, rules: Sequence[Rule]) -> Hold:
        """Return the places of the request in further rules. Raises as `Limiter.admit`."""
        limiter = self._admission.limiter
        if not self._admission.takes_tokens:
            return limiter.admit(rules)
        guess = _guess(b"".join(self._known_body), self._length) if _is_one_new(rules) else None
        return limiter.admit(rules, self._length // BYTES_A_TOKEN, guess=guess)

    def _refuse(self, error: GatewayError, *, outcome: str = "unavailable") -> None:
        super()._refuse(error, outcome=LIMITED if error.code in _REFUSALS else outcome)


class LimitingByModel(LimitingBalanced, ByModel):
    """A splice with limits, some of which the model in the body decides."""

    _of_model: Sequence[Rule] = ()

    def _go_ways(self, ways: Ways, pieces: list[bytes], *, model: str | None = None) -> None:
        hold = self._account.hold
        assert hold is not None
        rules = self._admission.limiter.of_model(model or "")
        self._known_body = tuple(pieces)
        try:
            hold += self._admitted(rules)
        except GatewayError as error:
            self._pending = [b"", *pieces]
            self._refuse_soon(error)
        else:
            self._of_model = rules
            super()._go_ways(ways, pieces, model=model)

    @property
    def _rules(self) -> Sequence[Rule]:
        return (*self._admission.rules, *self._of_model, *self._of_upstream)


_LIMITING: Final = ((ByModel, LimitingByModel), (Balanced, LimitingBalanced), (Splice, Limiting))


def limited(kind: type[Splice]) -> type[Splice]:
    """Return the class of transactions of this kind that have limits."""
    accounts = None if issubclass(kind, Metering) else LimitedAccounting
    return extended(kind, "Limited", accounts, _LIMITING, _begin_admitted=kind._begin)
