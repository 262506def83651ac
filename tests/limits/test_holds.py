"""The places of requests: how they come back, and how what was reserved is settled; as another worker sees it."""

from collections.abc import Sequence

from gateway.contracts.allowance import Allowance
from gateway.limits.holds import LIMITED, Hold, end, give_back, leave, owe, settle, unreserve, withdraw
from gateway.limits.rule import USUAL

from .limiting import Workers, caller

LIMITS = Allowance(requests_per_minute=100, tokens_per_minute=10_000, concurrent=10)


class Held:
    """A key with limits in a tenant with limits, and what another worker sees of both."""

    def __init__(self) -> None:
        self.workers = Workers(2, tenants={"team": LIMITS})
        self.who = caller(requests_per_minute=100, tokens_per_minute=10_000, concurrent=10)

    def taken(self, tokens: int | None = 8) -> Hold:
        limiter = self.workers.limiters[0]
        return limiter.admit(limiter.of_caller(self.who), tokens)

    def seen(self) -> Sequence[float]:
        """The requests, the tokens and what is under way, which are the same for the key and the tenant."""
        limiter = self.workers.limiters[1]
        used = [one.used for one in limiter.list_usage(limiter.of_caller(self.who))]
        assert used[:3] == used[3:]
        return used[:3]


def test_a_request_that_leaves_keeps_what_it_reserved_until_that_is_settled() -> None:
    held = Held()
    hold = held.taken()
    assert held.seen() == [1, USUAL, 1]  # no request has told yet what it used
    assert leave(hold)
    assert held.seen() == [1, USUAL, 0]
    settle(owe(hold, 50))
    assert held.seen() == [1, 50, 0]
    assert not leave(held.taken())  # the mean is known
    assert held.seen() == [2, 100, 0]


def test_requests_that_are_settled_together_count_as_if_one_by_one() -> None:
    """Also those of earlier ticks, whose tokens leave the window earlier."""
    held, other = Held(), Held()
    owed = owe([], 0)
    for used in (40, 7, 300):
        for one in (held, other):
            one.workers.clock.advance(0.3)
        hold = held.taken(20)
        leave(hold)
        owed += owe(hold, used)
        end(other.taken(20), used)
    settle(owed)
    for later_s in (0.0, 59.7, 0.3, 0.3):
        for one in (held, other):
            one.workers.clock.advance(later_s)
        assert held.seen() == other.seen()


def test_rules_that_are_settled_together_learn_what_their_own_requests_used() -> None:
    """Of two keys of a tenant, in one sum."""
    limiter = Workers(tenants={"team": LIMITS}).limiters[0]
    rules = [limiter.of_caller(caller(name, tokens_per_minute=10_000)) for name in ("large", "small")]
    owed = [one for of, used in zip(rules, (900, 2), strict=True) for one in owe(limiter.admit(of, 1), used)]
    settle(owed)
    (large, tenant), (small, _) = rules
    assert [rule.meter.expected for rule in (large, small, tenant)] == [900, 2, 451]


def test_a_place_comes_back_once() -> None:
    held = Held()
    hold = held.taken()
    for _ in range(2):
        end(hold, 30)
        assert held.seen() == [1, 30, 0]


def test_a_request_that_a_limit_refuses_has_used_nothing() -> None:
    held = Held()
    for back in (withdraw, lambda hold: give_back(hold, LIMITED, 30)):
        hold = held.taken()
        back(hold)
        back(hold)
        assert held.seen() == [0, 0, 0]
    give_back(held.taken(), "ok", 30)
    assert held.seen() == [1, 30, 0]


def test_without_reserved_tokens_a_request_settles_none() -> None:
    held = Held()
    hold = held.taken()
    unreserve(hold)
    assert held.seen() == [1, 0, 1]
    end(hold, 30)
    assert held.seen() == [1, 0, 0]
