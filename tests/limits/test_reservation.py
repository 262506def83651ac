"""The places of requests: how they come back, and how what was reserved is settled; as another worker sees it."""

from collections.abc import Sequence

from gateway.contracts.allowance import Allowance
from gateway.limits.limit_rule import USUAL
from gateway.limits.reservation import LATER, LIMITED, Reservation, Settlement, SharedReservation, join_reservations

from .limiting import Workers, caller

LIMITS = Allowance(requests_per_minute=100, tokens_per_minute=10_000, concurrent=10)


class Held:
    """A key with limits in a tenant with limits, and what another worker sees of both."""

    def __init__(self) -> None:
        self.workers = Workers(2, tenants={"team": LIMITS})
        self.who = caller(requests_per_minute=100, tokens_per_minute=10_000, concurrent=10)

    def taken(self, tokens: int | None = 8) -> Reservation:
        limiter = self.workers.limiters[0]
        return limiter.reserve_places(limiter.list_caller_rules(self.who), tokens)

    def seen(self) -> Sequence[float]:
        """The requests, the tokens and what is under way, which are the same for the key and the tenant."""
        limiter = self.workers.limiters[1]
        used = [one.used for one in limiter.list_usage(limiter.list_caller_rules(self.who))]
        assert used[:3] == used[3:]
        return used[:3]


def test_closed_request_keeps_its_reservation_until_settlement() -> None:
    held = Held()
    hold = held.taken()
    assert held.seen() == [1, USUAL, 1]  # no request has told yet what it used
    assert hold.close(tokens=LATER).is_urgent
    assert held.seen() == [1, USUAL, 0]
    hold.close(tokens=50)
    assert held.seen() == [1, 50, 0]
    assert not held.taken().close(tokens=LATER).is_urgent  # the mean is known
    assert held.seen() == [2, 100, 0]


def test_settlement_of_several_requests_equals_settling_each_one() -> None:
    """Also those of earlier ticks, whose tokens leave the window earlier."""
    held, other = Held(), Held()
    together = Settlement()
    for used in (40, 7, 300):
        for one in (held, other):
            one.workers.clock.advance(0.3)
        hold = held.taken(20)
        together.close(hold.close(tokens=LATER), used)
        other.taken(20).close(tokens=used)
    together.settle()
    for later_s in (0.0, 59.7, 0.3, 0.3):
        for one in (held, other):
            one.workers.clock.advance(later_s)
        assert held.seen() == other.seen()


def test_joint_settlement_updates_each_rule_with_its_own_usage() -> None:
    """Of two keys of a tenant, in one sum."""
    limiter = Workers(tenants={"team": LIMITS}).limiters[0]
    rules = [limiter.list_caller_rules(caller(name, tokens_per_minute=10_000)) for name in ("large", "small")]
    together = Settlement()
    for of, used in zip(rules, (900, 2), strict=True):
        together.close(limiter.reserve_places(of, 1).close(tokens=LATER), used)
    together.settle()
    (large, tenant), (small, _) = rules
    assert [rule.meter.expected for rule in (large, small, tenant)] == [900, 2, 451]


def test_reservation_is_released_once() -> None:
    held = Held()
    hold = held.taken()
    for _ in range(2):
        hold.close(tokens=30)
        assert held.seen() == [1, 30, 0]


def test_request_refused_by_a_limit_counts_no_usage() -> None:
    held = Held()
    for tokens in (None, 30):
        hold = held.taken()
        hold.close(LIMITED, tokens)
        hold.close(LIMITED, tokens)
        assert held.seen() == [0, 0, 0]
    held.taken().close("ok", 30)
    assert held.seen() == [1, 30, 0]


def test_request_without_reserved_tokens_settles_no_tokens() -> None:
    held = Held()
    hold = held.taken()
    hold.drop_tokens()
    assert held.seen() == [1, 0, 1]
    hold.close(tokens=30)
    assert held.seen() == [1, 0, 0]


def test_shared_reservation_is_closed_once_per_request() -> None:
    """By itself, later, or with others whose tokens are read together."""
    held = Held()
    shared = SharedReservation([place for hold in [held.taken(20)] for place in hold.places])
    for _ in range(3):
        held.taken(20)
    assert held.seen() == [4, 4 * USUAL, 4]
    shared.close(tokens=50)
    later = shared.close(tokens=LATER)
    assert held.seen() == [4, 3 * USUAL + 50, 2]
    later.close(tokens=70)
    together = Settlement()
    together.close(shared, 60, requests=2)
    together.settle()
    assert held.seen() == [4, 180, 0]


def test_joined_reservations_are_closed_as_one() -> None:
    """One that others share makes it shared only with others that are."""
    held = Held()
    limiter = held.workers.limiters[0]
    key, tenant = limiter.list_caller_rules(held.who)
    both = join_reservations(limiter.reserve_places([key], 8), limiter.reserve_places([tenant], 8))
    assert held.seen() == [1, USUAL, 1]
    both.close(tokens=30)
    assert held.seen() == [1, 30, 0]
    alone = SharedReservation(())
    assert join_reservations(alone) is alone and join_reservations(alone, SharedReservation(())).is_shared
    assert not join_reservations(alone, Reservation([])).is_shared
