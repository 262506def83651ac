"""Requests take a place in all of their rules, or in none; beside a plain model of the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.limits.counter_registry import UNUSED_S
from gateway.limits.limit_rule import BUSY_S, USUAL
from gateway.limits.reservation import Reservation
from gateway.limits.shared_memory import TICK_S, TICKS

from .limiting import BEGAN_S, Workers, caller


def refused(workers: Workers, place: int = 0, *, key: dict[str, object], tokens: int | None = None) -> GatewayError:
    limiter = workers.limiters[place]
    with pytest.raises(GatewayError) as raised:
        limiter.reserve_places(limiter.list_caller_rules(caller(**key)), tokens=tokens)
    return raised.value


def admitted(workers: Workers, place: int = 0, *, key: dict[str, object], tokens: int | None = None) -> Reservation:
    limiter = workers.limiters[place]
    return limiter.reserve_places(limiter.list_caller_rules(caller(**key)), tokens=tokens)


def test_a_caller_without_limits_has_no_rules() -> None:
    limiter = Workers().limiters[0]
    assert (
        limiter.list_caller_rules(caller())
        == limiter.list_model_rules("gpt")
        == limiter.list_upstream_rules("up")
        == ()
    )
    assert not limiter.has_upstream("up")


def test_requests_of_a_minute_are_counted_over_all_workers() -> None:
    workers, key = Workers(2), {"requests_per_minute": 3}
    for place in (0, 1, 0):
        admitted(workers, place, key=key).close()
    error = refused(workers, 1, key=key)

    assert error.code == "rate_limit_exceeded"
    assert error.message.startswith("The key 'ci' has reached its limit of 3 requests per minute: try again in ")
    workers.clock.advance(60.25)
    admitted(workers, 1, key=key)


def test_a_refused_request_uses_nothing() -> None:
    """However often a client tries, its own tries do not keep it out."""
    workers, key = Workers(), {"requests_per_minute": 1, "concurrent": 2, "tokens_per_minute": 100}
    hold = admitted(workers, key=key, tokens=10)
    for _ in range(50):
        refused(workers, key=key, tokens=10)
    hold.close(tokens=10)
    limiter = workers.limiters[0]
    used = {one.limit: one.used for one in limiter.list_usage(limiter.list_caller_rules(caller(**key)))}
    assert used == {"requests_per_minute": 1, "tokens_per_minute": 10, "concurrent": 0}


def test_concurrency_place_is_released_once() -> None:
    workers, key = Workers(2), {"concurrent": 1}
    hold = admitted(workers, key=key)
    error = refused(workers, 1, key=key)
    assert "has 1 requests under way" in error.message
    assert error.retry_after_s == 1.0
    hold.close()
    hold.close()
    admitted(workers, 1, key=key)
    refused(workers, 0, key=key)


def test_concurrency_places_of_a_dead_worker_are_released() -> None:
    workers, key = Workers(2), {"concurrent": 1, "requests_per_minute": 5}
    admitted(workers, 1, key=key)
    refused(workers, 0, key=key)
    workers.limiters[1] = workers.limiter(1)  # its successor starts

    admitted(workers, 0, key=key)
    limiter = workers.limiters[0]
    used = {one.limit: one.used for one in limiter.list_usage(limiter.list_caller_rules(caller(**key)))}
    assert used["requests_per_minute"] == 2  # what was used of the minute stays used


def test_tokens_are_reserved_by_the_mean_and_corrected() -> None:
    workers, key = Workers(), {"tokens_per_minute": 1000}
    admitted(workers, key=key, tokens=10).close(tokens=240)
    for _ in range(3):
        admitted(workers, key=key, tokens=10)  # 240, as the one before
    error = refused(workers, key=key, tokens=10)
    assert error.fields["x-ratelimit-remaining-tokens"] == "40"
    assert error.fields["x-ratelimit-limit-tokens"] == "1000"


def test_first_burst_does_not_bypass_a_token_limit() -> None:
    """While none has told what it used, each counts as a usual one. It may soon be known, so a client waits shortly."""
    workers, key = Workers(), {"tokens_per_minute": 8 * USUAL}
    holds = [admitted(workers, key=key, tokens=10) for _ in range(8)]
    assert refused(workers, key=key, tokens=10).retry_after_s == BUSY_S
    holds.pop().close(tokens=50)  # now it is known
    for _ in range(19):
        admitted(workers, key=key, tokens=10)  # of what is left, 50 each
    refused(workers, key=key, tokens=10)


def test_small_token_limit_admits_a_first_burst_of_few_requests() -> None:
    workers, key = Workers(), {"tokens_per_minute": USUAL}
    for _ in range(4):
        admitted(workers, key=key, tokens=10)
    refused(workers, key=key, tokens=10)


def test_token_mean_survives_release_of_its_counters() -> None:
    """A client that pauses for two minutes is no stranger."""
    workers, who = Workers(), caller(tokens_per_minute=100_000)
    limiter, meters = workers.limiters[0], workers.meters[0]
    limiter.reserve_places(limiter.list_caller_rules(who), 10).close(tokens=20_000)
    workers.clock.advance(UNUSED_S + 1.0)
    meters.release_unused()
    for _ in range(5):
        limiter.reserve_places(limiter.list_caller_rules(who), 10)
    with pytest.raises(GatewayError):
        limiter.reserve_places(limiter.list_caller_rules(who), 10)


def test_a_request_larger_than_the_limit_waits_for_an_empty_window() -> None:
    workers, key = Workers(), {"tokens_per_minute": 100}
    admitted(workers, key=key, tokens=5000).close(tokens=5000)
    refused(workers, key=key, tokens=1)
    workers.clock.advance(60.25)
    admitted(workers, key=key, tokens=5000)


def test_refusing_rule_leaves_other_rules_unchanged() -> None:
    """The tenant has no room, so the key's request and tokens are free again."""
    workers = Workers(tenants={"team": Allowance(requests_per_minute=1)})
    key = {"requests_per_minute": 10, "tokens_per_minute": 100, "concurrent": 5}
    admitted(workers, key=key, tokens=40)
    error = refused(workers, key=key, tokens=40)
    assert error.message.startswith("The tenant 'team'")
    limiter = workers.limiters[0]
    used = {(one.scope, one.limit): one.used for one in limiter.list_usage(limiter.list_caller_rules(caller(**key)))}
    assert used == {
        ("key", "requests_per_minute"): 1,
        ("key", "tokens_per_minute"): 40,
        ("key", "concurrent"): 1,
        ("tenant", "requests_per_minute"): 1,
    }


def test_all_model_patterns_that_match_apply() -> None:
    models = {"gpt-*": Allowance(requests_per_minute=9), "*": Allowance(requests_per_minute=9)}
    limiter = Workers(models=models, upstreams={"up": Allowance(concurrent=1)}).limiters[0]
    assert [(rule.scope, rule.name) for rule in limiter.list_model_rules("gpt-4.1")] == [
        ("model", "gpt-*"),
        ("model", "*"),
    ]
    assert [rule.name for rule in limiter.list_model_rules("llama")] == ["*"]
    assert [(rule.scope, rule.name) for rule in limiter.list_upstream_rules("up")] == [("upstream", "up")]
    assert limiter.has_upstream("up") and not limiter.has_upstream("other")
    assert limiter.list_upstream_rules("other") == ()


def test_soft_limit_counts_excess_and_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    workers, key = Workers(), {"requests_per_minute": 1, "concurrent": 1, "soft": True}
    limiter, exceeded = workers.limiters[0], [list[str]() for _ in range(4)]
    holds = [limiter.reserve_places(limiter.list_caller_rules(caller(**key)), exceeded=one) for one in exceeded]
    assert exceeded == [[], *[["concurrent; scope=key"]] * 3]
    assert workers.counters.counts == {("limit_exceeded", "key", "concurrent"): 3}
    assert len(caplog.messages) == 1
    for hold in holds:
        hold.close()
    limiter = workers.limiters[0]
    assert [(one.used, one.over) for one in limiter.list_usage(limiter.list_caller_rules(caller(**key)))] == [
        (4, 0),
        (0, 3),
    ]


def test_refusals_are_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    workers, key = Workers(), {"requests_per_minute": 1}
    admitted(workers, key=key)
    for _ in range(5):
        refused(workers, key=key)
    assert workers.counters.counts == {("limit_refused", "key", "requests_per_minute"): 5}
    assert caplog.messages == ["the limit requests_per_minute: 1 of the key 'ci' is reached, and refuses requests"]


def test_all_workers_report_refusals_per_key_and_limit() -> None:
    """Also those of a worker that is gone. Keys of the same name in two tenants are two."""
    workers, key = Workers(2), {"requests_per_minute": 1, "tokens_per_minute": 100}
    admitted(workers, key=key, tokens=100)
    refused(workers, key=key)
    workers.limiters[0] = workers.limiter(0)
    limiter = workers.limiters[1]
    rules = limiter.list_all_rules([caller(**key), caller(tenant="other", **key)])
    assert [(one.tenant, one.limit, one.over) for one in limiter.list_usage(rules)] == [
        ("team", "requests_per_minute", 1),
        ("team", "tokens_per_minute", 0),
        ("other", "requests_per_minute", 0),
        ("other", "tokens_per_minute", 0),
    ]


def test_changed_limits_keep_existing_counts() -> None:
    """As a reload does it."""
    workers = Workers()
    admitted(workers, key={"requests_per_minute": 1}).close()
    admitted(workers, key={"requests_per_minute": 2}).close()
    refused(workers, key={"requests_per_minute": 2})


def test_run_counts_as_one_request_and_its_calls_take_tokens() -> None:
    workers, who = Workers(), caller(requests_per_minute=1, tokens_per_minute=100)
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(who)
    run = limiter.reserve_places(rules, tokens=1, reserves=False)
    limiter.reserve_places(rules, tokens=60, requests=0).close(tokens=60)
    with pytest.raises(GatewayError, match="100 tokens per minute"):
        limiter.reserve_places(rules, tokens=60, requests=0)
    run.close()
    assert {one.limit: one.used for one in limiter.list_usage(rules)} == {
        "requests_per_minute": 1,
        "tokens_per_minute": 60,
    }


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from((0.0, 0.1, 0.3, 1.0, 20.0, 59.9, 60.3))),
    max_size=80,
)


@given(steps)
def test_limiter_admits_exactly_as_many_as_its_limits_allow(done: list[tuple[int, int, float]]) -> None:
    """`concurrent` 2 and 4 a minute, by three workers: refused exactly if a plain list says that there is no room."""
    workers, key = Workers(3), {"requests_per_minute": 4, "concurrent": 2}
    made: list[int] = []
    open_: list[Reservation] = []
    for place, ends, later_s in done:
        workers.clock.advance(later_s)
        for hold in open_[:ends]:
            hold.close()
        del open_[:ends]
        tick = int(workers.clock() / TICK_S)
        recent = [one for one in made if one > tick - TICKS]
        if len(recent) < 4 and len(open_) < 2:
            open_.append(admitted(workers, place, key=key))
            made.append(tick)
        else:
            refused(workers, place, key=key)
    assert workers.clock() >= BEGAN_S
