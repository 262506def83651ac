"""Requests sent again are a part of those that clients sent."""

import random

from gateway.testing.clock import ManualClock
from gateway.upstream.budget import ALWAYS, HALVED_EVERY_S, RetryBudget


def test_retry_budget_caps_retries_at_a_fifth_when_every_request_fails() -> None:
    """3,000 requests within 30 s, each of which wants to be sent again twice."""
    clock = ManualClock()
    budget, again = RetryBudget(0.2, clock=clock), 0
    for _ in range(3000):
        budget.record_request()
        again += budget.take_retry() + budget.take_retry()
        clock.advance(0.01)
    assert 590 <= again <= 600


def test_retry_budget_stays_within_its_ratio_of_requests() -> None:
    """Whatever the rate of requests does, while a part of it is more than the few that are always allowed."""
    rng, clock = random.Random(3), ManualClock()
    budget, again = RetryBudget(0.2, clock=clock), 0
    for requests in range(1, 5001):
        budget.record_request()
        clock.advance(rng.expovariate(50.0 if rng.random() < 0.5 else 10.0))
        if rng.random() < 0.4:
            again += budget.take_retry()
            assert again <= max(0.2 * requests, ALWAYS) + ALWAYS


def test_retry_budget_always_allows_a_few_retries() -> None:
    """A part of one request would be none. They come back with the time."""
    clock = ManualClock()
    budget = RetryBudget(0.2, clock=clock)
    budget.record_request()
    assert [budget.take_retry() for _ in range(ALWAYS + 1)] == [True] * ALWAYS + [False]
    clock.advance(3 * HALVED_EVERY_S)
    assert budget.take_retry()


def test_zero_retry_budget_allows_no_retries() -> None:
    """Also for the first few."""
    budget = RetryBudget(0.0, clock=ManualClock())
    budget.record_request()
    assert not budget.take_retry() and not budget.take_retry(apart=True)


def test_hedged_requests_leave_half_of_the_retry_budget() -> None:
    """They save time; a retry saves the request."""
    budget = RetryBudget(0.2, clock=ManualClock())
    assert [budget.take_hedge() for _ in range(ALWAYS)] == [True] * (ALWAYS // 2) + [False] * (ALWAYS // 2)
    assert [budget.take_retry() for _ in range(ALWAYS // 2 + 1)] == [True] * (ALWAYS // 2) + [False]
    assert not budget.take_hedge()


def test_retries_of_client_caused_failures_have_a_separate_budget() -> None:
    """Within the same bound, and they come back with the time, too."""
    clock = ManualClock()
    budget = RetryBudget(0.2, clock=clock)
    for apart in (True, False):
        assert [budget.take_retry(apart=apart) for _ in range(ALWAYS + 1)] == [True] * ALWAYS + [False]
    clock.advance(3 * HALVED_EVERY_S)
    assert budget.take_retry(apart=True) and budget.take_retry()
