"""The shares as a worker sees them: figures, the lease, and requests that wait for an answer."""

import asyncio

import pytest

from gateway.contracts.allowance import BUDGETS, Allowance
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.storage.quota import QUOTA_LEASE_S
from gateway.limits.share_client import SHARED, ShareClient, is_used_up, read_figures, write_figures
from gateway.limits.share_memory import ALIVE, ANSWERS, BUDGET, FAILING, FULL, LEASE, REQUESTS, ShareMemory
from gateway.model.hooks import wait_for_room
from gateway.testing.clock import ManualClock

REFUSAL = GatewayError("rate_limit_exceeded", "There is no room.", retry_after_s=1.0)


def clients(count: int = 1) -> tuple[ManualClock, list[ShareClient]]:
    clock, memory = ManualClock(100.0), ShareMemory(places=count, size=8)
    return clock, [ShareClient(memory, place=place, clock=clock) for place in range(count)]


def test_figures_are_read_as_they_were_written() -> None:
    """None is no limit, 0 is one; costs are in billionths."""
    get_words = ShareMemory(places=1, size=1).get_words(0)
    limits = (*SHARED, *BUDGETS)
    assert read_figures(get_words) == (None,) * len(limits)
    written = {"requests_per_minute": 0, "tokens_per_day": 7, "cost_per_month": 250_000_000}
    write_figures(get_words, Allowance(requests_per_minute=0, tokens_per_day=7, cost_per_month=0.25))
    assert read_figures(get_words) == tuple(written.get(limit) for limit in limits)
    write_figures(get_words, Allowance(concurrent=3))
    assert read_figures(get_words) == (3, *[None] * (len(limits) - 1))


def test_lease_ends_by_the_clock_of_the_workers() -> None:
    """Until the first worker was there, nobody is known to fail."""
    clock, (client,) = clients()
    header = client.memory.header
    assert not client.has_lease(clock()) and not client.is_failing
    header[LEASE], header[ALIVE] = 105_000_000, 100_000_000
    assert client.has_lease(104.9) and not client.has_lease(105.0)
    clock.advance(QUOTA_LEASE_S)
    assert not client.is_failing
    clock.advance(0.001)
    assert client.is_failing
    header[ALIVE] = 200_000_000
    assert not client.is_failing
    header[FAILING] = 1
    assert client.is_failing


def test_limit_is_used_up_for_a_time() -> None:
    """Each for itself, and all budgets together."""
    words = ShareMemory(places=1, size=1).get_words(0)
    words[FULL + REQUESTS] = words[FULL + BUDGET] = 5_000_000
    used_up = {limit: is_used_up(words, limit, 4.9) for limit in ("concurrent", "requests_per_minute", "cost_per_day")}
    assert used_up == {"concurrent": False, "requests_per_minute": True, "cost_per_day": True}
    assert not is_used_up(words, "requests_per_minute", 5.0)


async def test_request_waits_for_the_answer_about_its_counter() -> None:
    """Others go on waiting. It may ask anew after that."""
    _, (client,) = clients()
    before = client.memory.copy_asks()
    first, other = [client.wait_for_more(number, REFUSAL, requests=1, tokens=5) for number in (1, 2)]
    assert client.has_asks.is_set()
    assert client.memory.list_asks(before, client.memory.copy_asks()) == {1: (1, 5), 2: (1, 5)}
    client.wake_answered()
    assert not first.answered.done()
    client.memory.get_words(1)[ANSWERS] += 1
    client.wake_answered()
    assert first.answered.done() and not other.answered.done()
    assert (first.code, first.message, first.copy()) != (REFUSAL.code, REFUSAL.message, REFUSAL)
    again = client.wait_for_more(1, REFUSAL, requests=1, tokens=5)
    client.wake_answered()
    assert not again.answered.done()


async def test_workers_ask_the_first_one_and_hear_its_answer() -> None:
    """By their bells."""
    _, (first, other) = clients(2)
    first.open()
    other.open()
    waiting = other.wait_for_more(3, REFUSAL, requests=1, tokens=0)
    await asyncio.wait_for(first.has_asks.wait(), 60)
    first.memory.get_words(3)[ANSWERS] += 1
    first.wake_answered()
    await asyncio.wait_for(waiting.answered, 60)
    first.close()
    other.close()


async def test_reservation_is_tried_again_once_it_is_known_whether_there_is_room() -> None:
    """Until it succeeds, or raises another error."""
    outcomes: list[object] = [UndecidedError(REFUSAL, done()), UndecidedError(REFUSAL, done()), 7, REFUSAL]

    def reserve() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await wait_for_room(reserve) == 7
    with pytest.raises(GatewayError) as refused:
        await wait_for_room(reserve)
    assert refused.value is REFUSAL


def done() -> "asyncio.Future[None]":
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
