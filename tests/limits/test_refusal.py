"""The answer to a request over a limit, as OpenAI's clients read it."""

import pytest

from gateway.contracts.allowance import Allowance
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitRule, Over
from gateway.limits.refusal import build_limit_error, build_ratelimit_fields, format_duration
from gateway.limits.shared_memory import SharedCounters
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, in_dollars


def rules(*allowances: Allowance) -> list[LimitRule]:
    meters, budgets = Meters(SharedCounters(places=1), place=0, clock=ManualClock(BEGAN_S)), in_dollars()
    return [
        LimitRule("key", f"k{i}", one, meters.get_meter("key", f"k{i}"), budgets, f"k{i}")
        for i, one in enumerate(allowances)
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.12, "120ms"), (0.9999, "1s"), (1.0, "1s"), (7.66, "7.66s"), (60.0, "1m0s"), (360.0, "6m0s")],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_ratelimit_headers_report_the_rule_with_least_room() -> None:
    wide, narrow = rules(Allowance(requests_per_minute=100), Allowance(requests_per_minute=5, tokens_per_minute=50))
    narrow.meter.count_requests(1, 20, BEGAN_S)
    assert build_ratelimit_fields([wide, narrow], BEGAN_S + 10.0) == {
        "x-ratelimit-limit-requests": "5",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": "50.25s",
        "x-ratelimit-limit-tokens": "50",
        "x-ratelimit-remaining-tokens": "30",
        "x-ratelimit-reset-tokens": "50.25s",
    }
    assert build_ratelimit_fields([], BEGAN_S) == {}


def test_exhausted_budget_error_has_no_retry_after() -> None:
    (one,) = rules(Allowance(cost_per_month=12.5))
    error = build_limit_error(Over(one, "cost_per_month", None), [one], BEGAN_S)
    assert (error.code, error.facts.status, error.facts.type) == ("insufficient_quota", 429, "rate_limit_error")
    assert error.message.startswith("The key 'k0' has used up its budget of a cost of 12.5 per month: ")
    assert error.settled and error.retry_after_s is None


def test_retry_after_never_exceeds_the_maximum_that_sdks_obey() -> None:
    (one,) = rules(Allowance(requests_per_minute=1))
    assert build_limit_error(Over(one, "requests_per_minute", 60.2), [one], BEGAN_S).retry_after_s == 60.0
