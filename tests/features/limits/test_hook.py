"""The places of one call of a model: taken for its caller and for whom it asks, and given back once."""

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.features.limits.hook import CallLimits
from tests.limits.limiting import Workers, caller

WHO = caller(tokens_per_minute=1000, requests_per_minute=1)


def _exchange() -> Exchange:
    return Exchange(id="run_1", body={"messages": [{"role": "user", "content": "x" * 400}]}, caller=WHO, chain="c")


def _used(workers: Workers) -> dict[str, float]:
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(WHO) + limiter.list_model_rules("gpt") + limiter.list_upstream_rules("up")
    return {f"{one.scope} {one.limit}": one.used for one in limiter.list_usage(rules)}


def test_a_call_takes_tokens_of_its_caller_and_a_request_of_its_upstream() -> None:
    workers = Workers(upstreams={"up": Allowance(requests_per_minute=5, concurrent=1)})
    limits = CallLimits(workers.limiters[0], _exchange())
    limits.on_model("gpt")
    limits.on_upstream("up")
    assert _used(workers)["key tokens_per_minute"] > 100  # the messages, at four bytes a token
    limits.on_try_ended(70)
    limits.on_closed()
    limits.on_closed()
    assert _used(workers) == {
        "key requests_per_minute": 0,
        "key tokens_per_minute": 70,
        "upstream requests_per_minute": 1,
        "upstream concurrent": 0,
    }


def test_fallback_upstream_releases_the_place_of_the_previous_one() -> None:
    """A fallback, or the next model of an alias: one call is under way, not two."""
    limits_of = {"up": Allowance(concurrent=1), "other": Allowance(concurrent=1)}
    workers = Workers(upstreams=limits_of)
    limits = CallLimits(workers.limiters[0], _exchange())
    limits.on_model("gpt")
    limits.on_upstream("up")
    limits.on_upstream("other")
    assert _used(workers)["upstream concurrent"] == 0
    limits.on_model("gpt-mini")
    limits.on_upstream("up")
    other = CallLimits(workers.limiters[0], _exchange())
    with pytest.raises(GatewayError, match="The upstream 'up' has 1 requests under way"):
        other.on_upstream("up")
    other.on_upstream("other")
    for one in (limits, other):
        one.on_closed()


def test_unsent_call_does_not_count_for_its_model() -> None:
    """All upstreams were out, or had no room."""
    limits_of: dict[str, dict[str, Allowance]] = {
        "models": {"gpt": Allowance(requests_per_minute=5, concurrent=5, tokens_per_minute=5000)},
        "upstreams": {"up": Allowance(requests_per_minute=1)},
    }
    workers = Workers(**limits_of)
    first, second, third = (CallLimits(workers.limiters[0], _exchange()) for _ in range(3))
    for call in (first, second, third):
        call.on_model("gpt")
    first.on_upstream("up")
    with pytest.raises(GatewayError, match="The upstream 'up' has reached its limit of 1 requests per minute"):
        second.on_upstream("up")
    for call in (first, second, third):
        call.on_closed()
    used = _used(workers)
    assert (used["model requests_per_minute"], used["model concurrent"], used["model tokens_per_minute"]) == (1, 0, 0)


def test_call_reserves_max_tokens_until_the_mean_usage_is_known() -> None:
    """Before any has told what it used: by `max_tokens`, and the request. Later by the mean."""
    workers, who = Workers(), caller(tokens_per_minute=20_000)
    body = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 4800}
    exchange = Exchange(id="run_1", body=body, caller=who, chain="c")
    first, *_ = [CallLimits(workers.limiters[0], exchange) for _ in range(4)]
    with pytest.raises(GatewayError):
        CallLimits(workers.limiters[0], exchange)
    first.on_try_ended(200)
    first.on_closed()
    for _ in range(20):
        CallLimits(workers.limiters[0], exchange)
