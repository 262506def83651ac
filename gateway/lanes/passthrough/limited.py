"""Passthrough transactions with limits: a request without room is answered here, and nothing of it goes upstream.

A request takes its places before anything else happens, and gives them back when its account is closed: that happens
exactly once, however the transaction ends. A tunnel keeps them to its own end. What is relayed is never changed. The
tokens that were reserved are corrected when the answer is read, which may be a little later: `unread.py` then has the
places, and gives them back.

Where there is a choice of upstreams, the places at an upstream are taken when the request is about to go there, and
given back when it goes on to a fallback.
"""

from dataclasses import dataclass
from typing import Final

from gateway.errors import GatewayError
from gateway.http.response_head import ResponseHead
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.by_model import ByModel
from gateway.lanes.passthrough.splice import Splice, extended
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.lanes.plan import Ways
from gateway.lanes.transaction import Clients
from gateway.limits.limiter import BYTES_A_TOKEN, Hold, Limiter
from gateway.limits.rule import Rule

#: The outcome of a request without room.
LIMITED: Final = "limited"
_REFUSALS: Final = ("rate_limit_exceeded", "insufficient_quota")


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules of a plan's requests, and the way to those of the upstream and the model that a request goes to.

    `takes_tokens`: a model answers the requests.
    """

    limiter: Limiter
    rules: tuple[Rule, ...]
    takes_tokens: bool

    def admit(self, rules: tuple[Rule, ...], length: int) -> Hold:
        """Take the places of a request whose body has `length` bytes in these rules. Raises GatewayError (429)."""
        return self.limiter.admit(rules, length // BYTES_A_TOKEN if self.takes_tokens else None)

    def admit_for(self, model: str | None, length: int) -> Hold:
        """Take the places at the model that the body names. Raises GatewayError (429)."""
        return self.admit(self.limiter.of_model(model or ""), length)

    def admit_to(self, upstream: str, length: int) -> Hold | None:
        """Take the places at an upstream, if it has limits. Raises GatewayError (429)."""
        rules = self.limiter.of_upstream(upstream)
        return self.admit(rules, length) if rules else None


class LimitedAccounting(Accounting):
    """The account of one transaction, with its places."""

    holds: tuple[Hold, ...] = ()
    at: Hold | None = None  # the places at the upstream, where that is chosen

    def take_holds(self) -> tuple[Hold, ...]:
        holds = self.holds if self.at is None else (*self.holds, self.at)
        self.holds, self.at = (), None
        return holds

    def close(
        self, outcome: str, listener: Clients, error: GatewayError | None = None, request_id: str | None = None
    ) -> None:
        super().close(outcome, listener, error, request_id)
        tokens = self.tokens if error is None and self.sent_at else 0
        for hold in self.holds if self.at is None else self.take_holds():
            if outcome == LIMITED:
                hold.withdraw()
            else:
                hold.end(tokens)


class LimitedTunnel(Tunnel):
    """A tunnel that keeps the places of the request that opened it."""

    __slots__ = ("holds",)

    holds: tuple[Hold, ...]

    def client_gone(self) -> None:
        super().client_gone()
        self._leave()

    def upstream_lost(self, error: Exception | None) -> None:
        super().upstream_lost(error)
        self._leave()

    def _leave(self) -> None:
        for hold in self.holds:
            hold.end()


class Limiting(Splice):
    """A splice with limits."""

    _account: LimitedAccounting
    _tunnels = LimitedTunnel
    _admission: Admission
    _length = 0

    def _begin(self, digits: bytes, body: bytes) -> None:
        plan = self._plan
        assert plan.admission is not None
        self._admission = admission = plan.admission
        self._length = length = int(digits) if digits else plan.length
        try:
            self._account.holds = (admission.admit(admission.rules, length),)
        except GatewayError as error:
            self._refuse_soon(error)
        else:
            super()._begin(digits, body)

    def _refuse_soon(self, error: GatewayError) -> None:
        """Answer in the next turn of the loop: requests that are held behind would be refused inside each other."""
        self._client.listener.loop.call_soon(self._refuse_limited, error)

    def _refuse_limited(self, error: GatewayError) -> None:
        if self._under_way:
            self._fail(error, outcome=LIMITED)

    def _switch(self, head: ResponseHead, data: bytes, came: float) -> None:
        holds = self._account.take_holds()
        super()._switch(head, data, came)
        tunnel = self._client.transaction
        assert isinstance(tunnel, LimitedTunnel)
        tunnel.holds = holds


class LimitingBalanced(Limiting, Balanced):
    """A splice with limits and a choice of upstreams, each of which may have limits."""

    def _enter(self, upstream: str) -> None:
        account = self._account
        before, account.at = account.at, self._admission.admit_to(upstream, self._length)
        if before is not None:
            before.end(0)

    def _refuse(self, error: GatewayError, *, outcome: str = "unavailable") -> None:
        super()._refuse(error, outcome=LIMITED if error.code in _REFUSALS else outcome)


class LimitingByModel(LimitingBalanced, ByModel):
    """A splice with limits, some of which the model in the body decides."""

    def _go_ways(self, ways: Ways, pieces: list[bytes], *, model: str | None = None) -> None:
        try:
            self._account.holds += (self._admission.admit_for(model, self._length),)
        except GatewayError as error:
            self._pending = [b"", *pieces]
            self._refuse_soon(error)
        else:
            super()._go_ways(ways, pieces, model=model)


_LIMITING: Final = ((ByModel, LimitingByModel), (Balanced, LimitingBalanced), (Splice, Limiting))


def limited(kind: type[Splice]) -> type[Splice]:
    """Return the class of transactions of this kind that have limits."""
    return extended(kind, "Limited", LimitedAccounting, _LIMITING)
