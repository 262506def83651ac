"""Places that a worker takes ahead where there is a lot of room: nobody sees a difference, and a crash loses none."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.limits.counter import AHEAD, BUSY
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import LATER, LIMITED, Reservation
from gateway.limits.shared_memory import TICK_S
from gateway.testing.clock import ManualClock

from .limiting import Workers, caller

KEY = {"requests_per_minute": 4000, "tokens_per_minute": 60_000, "concurrent": 300}
#: Another rule of the same requests, with figures of its own.
TEAM = Allowance(requests_per_minute=5000, tokens_per_minute=50_000, concurrent=400)


class Worker:
    """The only worker in use, of so many."""

    def __init__(self, places: int) -> None:
        self.workers = Workers(places, tenants={"team": TEAM})
        self.limiter = self.workers.limiters[0]
        self.rules = self.limiter.list_caller_rules(caller(**KEY))
        self.open: list[Reservation] = []
        self.left: list[Reservation] = []

    def admits(self, requests: int, tokens: int | None) -> list[str]:
        """Admit so many requests. Return "admitted", or why not, of each."""
        became = []
        for _ in range(requests):
            try:
                self.open.append(self.limiter.reserve_places(self.rules, tokens))
            except GatewayError as error:
                became.append(error.message)
            else:
                became.append("admitted")
        return became

    def end(self, how: str, requests: int, used: int) -> None:
        """End the oldest requests, or settle those that have left already."""
        if how == "settle":
            for hold in self.left:
                hold.close(tokens=used)
            self.left.clear()
            return
        for hold in self.open[:requests]:
            if how == "leave":
                hold.close(tokens=LATER)
                self.left.append(hold)
            elif how == "withdraw":
                hold.close(LIMITED)
            else:
                hold.close(tokens=used)
        del self.open[:requests]

    def seen(self) -> Sequence[tuple[str, float]]:
        return [(one.limit, one.used) for one in self.limiter.list_usage(self.rules)]


admits = st.tuples(st.just("admit"), st.integers(1, 200), st.sampled_from((None, 1, 20, 300)))
ends = st.tuples(
    st.sampled_from(("end", "leave", "settle", "withdraw")), st.integers(1, 200), st.sampled_from((0, 5, 15, 900))
)
moves = st.tuples(st.sampled_from(("wait", "look")), st.sampled_from((1, 3, 40, 597, 603)), st.just(0))


@settings(max_examples=60)
@given(st.lists(st.one_of(admits, ends, moves), max_size=40))
def test_single_worker_admits_the_same_as_one_of_several(done: list[tuple[str, int, int | None]]) -> None:
    """With others it looks each time. Other numbers of requests and tokens, two rules, and figures that change."""
    alone, beside = Worker(1), Worker(2)
    for what, number, tokens in done:
        if what == "admit":
            assert alone.admits(number, tokens) == beside.admits(number, tokens)
        elif what == "look":
            assert alone.seen() == beside.seen()
        elif what == "wait":
            for one in (alone, beside):
                one.workers.clock.advance(number / 10)
        else:
            for one in (alone, beside):
                one.end(what, number, tokens or 0)
    assert alone.seen() == beside.seen()


def test_single_worker_admits_exactly_the_requests_per_minute_limit() -> None:
    limiter = Workers().limiters[0]
    rules = limiter.list_caller_rules(caller(requests_per_minute=20_000))
    admitted = 0
    for _ in range(30_000):
        try:
            limiter.reserve_places(rules)
        except GatewayError:
            break
        admitted += 1
    assert admitted == 20_000


@settings(max_examples=30)
@given(
    st.sampled_from((2, 4)),
    st.sampled_from(({"requests_per_minute": 20_000}, {"tokens_per_minute": 400_000}, {"concurrent": 20_000})),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3000)), max_size=20),
)
def test_parallel_workers_admit_nearly_the_whole_limit_and_no_more(
    count: int, limits: dict[str, int], bursts: list[tuple[int, int]]
) -> None:
    """RulePlaces ahead of a worker that stops are kept from the others: half a percent at most, of all together."""
    workers = Workers(count)
    rules = [limiter.list_caller_rules(caller(**limits)) for limiter in workers.limiters]
    admitted = 0
    for place, burst in (*bursts, *((place, 30_000) for place in range(4))):
        limiter, its_rules = workers.limiters[place % count], rules[place % count]
        for _ in range(burst):
            try:
                hold = limiter.reserve_places(its_rules, 20)
            except GatewayError:
                break
            if "tokens_per_minute" in limits:
                hold.close(tokens=20)
            admitted += 1
    assert 19_900 <= admitted <= 20_000


class StoppedClock(ManualClock):
    """A clock whose reader is stopped for a while after it has read it: then others go on."""

    meanwhile: Callable[[], None] | None = None

    def __call__(self) -> float:
        now_s = super().__call__()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return now_s


def test_worker_paused_during_a_check_counts_other_workers_reservations() -> None:
    """It looks by the tick in which it was stopped, and another has filled the limit in the next ones."""
    workers = Workers(2)
    clock = StoppedClock(workers.clock())
    who = caller(requests_per_minute=10)
    stopped, other = (
        Limiter(one, clock=clock, budgets=workers.budgets, counters=workers.counters) for one in workers.meters
    )

    def fill() -> None:
        for _ in range(10):
            clock.advance(TICK_S)
            other.reserve_places(other.list_caller_rules(who))

    clock.meanwhile = fill
    with pytest.raises(GatewayError):
        stopped.reserve_places(stopped.list_caller_rules(who))


def test_idle_worker_returns_its_batched_reservations() -> None:
    """Within a few seconds, so that others can have it."""
    workers = Workers(2)
    who = caller(requests_per_minute=200_000, concurrent=200_000)
    first, second = workers.limiters
    for _ in range(BUSY + 2):
        first.reserve_places(first.list_caller_rules(who))
    seen = {one.limit: one.used for one in second.list_usage(second.list_caller_rules(who))}
    assert min(seen.values()) > BUSY + 2
    workers.clock.advance(TICK_S)
    workers.meters[0].release_unused()
    workers.clock.advance(TICK_S)
    seen = {one.limit: one.used for one in second.list_usage(second.list_caller_rules(who))}
    assert seen == {"requests_per_minute": BUSY + 2, "concurrent": BUSY + 2}


def test_requests_of_a_dead_worker_stay_counted() -> None:
    """And of what it had taken ahead no more than that: half a percent of the room, and no more than `AHEAD`."""
    workers = Workers()
    who = caller(requests_per_minute=20_000)
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(who)
    for _ in range(AHEAD + 3):
        limiter.reserve_places(rules)
    successor = workers.limiter(0)
    (requests,) = (
        one.used for one in successor.list_usage(successor.list_caller_rules(who)) if one.limit == "requests_per_minute"
    )
    assert AHEAD + 3 <= requests <= 2 * AHEAD + 3


@pytest.mark.parametrize(("requests", "ticks", "at_once"), [(BUSY, 1, True), (BUSY - 1, 1, False), (BUSY, 2, False)])
def test_busy_tick_reserves_places_ahead_for_the_next_tick(requests: int, ticks: int, at_once: bool) -> None:
    """One with fewer requests does not, and one that is longer ago."""
    workers = Workers()
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(caller(requests_per_minute=20_000))
    for _ in range(requests):
        limiter.reserve_places(rules).close()
    workers.clock.advance(ticks * TICK_S)
    limiter.reserve_places(rules).close()
    assert bool(rules[0].meter.ahead) is at_once


def test_lowered_limit_applies_from_the_next_request() -> None:
    """Also where places were taken ahead by the higher ones."""
    workers = Workers()
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(caller(requests_per_minute=20_000))
    for _ in range(AHEAD + 3):
        limiter.reserve_places(rules)
    lower = limiter.list_caller_rules(caller(requests_per_minute=AHEAD + 4))
    limiter.reserve_places(lower)
    limiter.reserve_places(rules)  # for a request that began before the change, and has waited
    with pytest.raises(GatewayError) as refused:
        limiter.reserve_places(lower)
    assert refused.value.code == "rate_limit_exceeded"
