"""Passthrough transactions with limits: a request without room is answered here, and nothing of it goes upstream.

A request takes its places before anything else happens, and gives them back when its account is closed: that happens
exactly once, however the transaction ends. A tunnel keeps them to its own end. What is relayed is never changed. The
tokens that were reserved are corrected when the answer is read, which may be a little later (`unread.py`).

Where there is a choice of upstreams, the places at an upstream are taken when the request is about to go there, and
given back when it goes on to a fallback.
"""

from collections.abc import Sequence
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.http.response_head import ResponseHead
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.by_model import ByModel
from gateway.lanes.passthrough.metered import Metering
from gateway.lanes.passthrough.splice import Splice, extended
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.lanes.plan import Plan, Ways
from gateway.lanes.transaction import Clients
from gateway.limits.admission import Admission
from gateway.limits.holds import BYTES_A_TOKEN, LIMITED, Hold, end, give_back, let_go
from gateway.limits.rule import LimitRule

_REFUSALS: Final = ("rate_limit_exceeded", "insufficient_quota")


class LimitedAccounting(Accounting):
    """The account of one transaction with places, whose usage nobody reads."""

    def close(
        self,
        outcome: str,
        listener: Clients,
        error: GatewayError | None = None,
        request_id: str | None = None,
    ) -> None:
        # The next one: `super` would find it each time.
        Accounting.close(self, outcome, listener, error, request_id)
        if (hold := self.held()) is not None:
            give_back(hold, outcome)


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
    _first: Plan | None = None  # which has the rules of the caller, where others may take its place
    _grows = False  # what it reserves, with its body

    @property
    def _admission(self) -> Admission:
        admission = (self._first or self._plan).admission
        assert admission is not None
        return admission

    def _begin(self, digits: bytes, body: bytes) -> None:
        admission = self._plan.admission
        assert admission is not None
        if self._request is not None and (self._plan.chunked or self._plan.gathers is not None):
            self._grows, self._length = True, len(body)  # a length that is only said would keep others out
        self._account.share = share = admission.share(self._length)
        if share is None:
            try:
                self._account.hold = admission.admit(body, self._length)
            except GatewayError as error:
                self._refuse_soon(error)
                return
        self._begin_admitted(digits, body)

    def _begin_admitted(self, digits: bytes, body: bytes) -> None:
        """Begin as a transaction of its kind without limits does: `limited` sets it, since `super` is slow."""
        raise NotImplementedError

    def _feed_request(self, data: bytes) -> bytes | None:
        fed = super()._feed_request(data)
        hold = self._account.held() if fed and self._grows else None
        if fed and hold is not None and self._admission.takes_tokens:
            self._length += len(fed)
            try:
                self._admission.limiter.reserve(hold, self._rules, self._length // BYTES_A_TOKEN)
            except GatewayError as error:
                if self._answer is None:  # else its model is at work, and the tokens are counted
                    self._fail(error, outcome=LIMITED)
                    return None
        return fed

    @property
    def _rules(self) -> Sequence[LimitRule]:
        """Return the rules that the request has places in, in their order."""
        return self._admission.rules

    def _refuse_soon(self, error: GatewayError) -> None:
        """Answer in the next turn of the loop: requests that are held behind would be refused inside each other."""
        self._client.listener.loop.call_soon(self._refuse_limited, error)

    def _refuse_limited(self, error: GatewayError) -> None:
        if self._under_way:
            self._fail(error, outcome=LIMITED)

    def _switch(self, head: ResponseHead, data: bytes, came: float) -> None:
        hold, self._account.hold = self._account.held(), None
        super()._switch(head, data, came)
        tunnel = self._client.transaction
        assert isinstance(tunnel, LimitedTunnel)
        assert hold is not None
        let_go(hold)
        tunnel.hold = hold


class LimitingBalanced(Limiting, Balanced):
    """A splice with limits and a choice of upstreams, each of which may have limits."""

    _of_upstream: tuple[LimitRule, ...] = ()  # those of its last places
    _known_body: Sequence[bytes] = ()  # what is here of the body, until the request goes somewhere

    def _begin(self, digits: bytes, body: bytes) -> None:
        self._first = self._plan
        self._known_body = (body,)
        super()._begin(digits, body)

    def _enter(self, upstream: str) -> None:
        rules, before = self._admission.limiter.of_upstream(upstream), self._of_upstream
        if rules:
            self._take_more(rules)
        if before:
            hold = self._account.held()
            assert hold is not None
            end_at = len(hold) - len(rules)  # behind it are those at this upstream
            begin_at = end_at - len(before)
            left, hold[begin_at:end_at] = hold[begin_at:end_at], []
            end(left, 0)
        self._of_upstream = rules
        self._known_body = ()

    @property
    def _rules(self) -> Sequence[LimitRule]:
        return (*super()._rules, *self._of_upstream)

    def _take_more(self, rules: tuple[LimitRule, ...]) -> None:
        """Take a place in further rules. Raises GatewayError as `Limiter.admit`, and takes none."""
        admission, account = self._admission.with_rules(rules), self._account
        if account.share is not None and (share := admission.share(self._length)) is not None:
            account.share += share
            return
        hold = account.held()
        assert hold is not None
        hold += admission.admit(b"".join(self._known_body), self._length)

    def _refuse(self, error: GatewayError, *, outcome: str = "unavailable") -> None:
        super()._refuse(error, outcome=LIMITED if error.code in _REFUSALS else outcome)


class LimitingByModel(LimitingBalanced, ByModel):
    """A splice with limits, some of which the model in the body decides."""

    _of_model: tuple[LimitRule, ...] = ()

    def _go_ways(self, ways: Ways, pieces: list[bytes], *, model: str | None = None) -> None:
        rules = self._admission.limiter.of_model(model or "")
        self._known_body = tuple(pieces)
        try:
            self._take_more(rules)
        except GatewayError as error:
            self._pending = [b"", *pieces]
            self._refuse_soon(error)
        else:
            self._of_model = rules
            super()._go_ways(ways, pieces, model=model)

    @property
    def _rules(self) -> Sequence[LimitRule]:
        return (*self._admission.rules, *self._of_model, *self._of_upstream)


_LIMITING: Final = ((ByModel, LimitingByModel), (Balanced, LimitingBalanced), (Splice, Limiting))


def limited(kind: type[Splice]) -> type[Splice]:
    """Return the class of transactions of this kind that have limits."""
    accounts = None if issubclass(kind, Metering) else LimitedAccounting
    return extended(kind, "Limited", accounts, _LIMITING, _begin_admitted=kind._begin)
