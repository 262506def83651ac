"""Upstreams of the configuration become groups with their rules."""

from pathlib import Path

from gateway.config import Settings
from gateway.server.lanes.upstreams import build_groups
from gateway.telemetry.metrics import Metrics
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.endpoint import ModelAccess
from gateway.upstream.group import Group, RetryRules
from gateway.upstream.queue import QueueRules

HTTP = "http://a.example/v1"


def groups(*upstreams: dict[str, object]) -> tuple[Group, ...]:
    settings = Settings.model_validate({"upstreams": list(upstreams)}, context={"folder": Path.cwd()})
    return build_groups(settings.upstreams, metrics=Metrics(), clock=lambda: 0.0)


def test_upstream_with_one_url_has_no_breaker_or_retry() -> None:
    """And costs nothing."""
    (only,) = groups({"name": "up", "base_url": HTTP})
    assert only.plain and (only.rules.breaker, only.rules.retry) == (None, None)


def test_several_endpoints_have_breakers_and_retries_unless_they_are_switched_off() -> None:
    """And so has an upstream with a fallback."""
    endpoints = [{"url": HTTP, "weight": 3, "concurrent": 5, "models": ["m*"]}, {"url": "http://b.example:81/v1"}]
    one, two = groups(
        {"name": "up", "endpoints": endpoints, "balance": "least_loaded", "queue": {"size": 7, "wait": "2s"}},
        {"name": "down", "base_url": HTTP, "fallback": ["up"], "breaker": {"failures": 0}, "retry": {"tries": 1}},
    )
    assert (one.rules.breaker, one.rules.retry, one.rules.balance) == (BreakerRules(), RetryRules(), "least_loaded")
    assert one.rules.queue == QueueRules(size=7, wait_s=2.0)
    facts = [(m.name, m.weight, m.most, m.models, m.pool.endpoint.port) for m in one.members]
    assert facts == [("a.example", 3, 5, ("m*",), 80), ("b.example:81", 1, None, (), 81)]
    assert (two.fallbacks, two.rules.breaker, two.rules.retry) == ((one,), None, RetryRules(tries=1))


def test_an_endpoint_has_the_key_of_its_upstream_unless_it_has_its_own() -> None:
    """In the same header."""
    endpoints = [{"url": HTTP, "name": "x"}, {"url": HTTP, "name": "y", "api_key": "own"}]
    (group,) = groups({"name": "up", "api_key": "all", "auth_header": "X-Key", "endpoints": endpoints})
    facts = [(m.name, m.pool.endpoint.api_key, m.pool.endpoint.auth_header) for m in group.members]
    assert facts == [("x", b"all", b"x-key"), ("y", b"own", b"x-key")]


def test_health_checks_belong_to_the_group() -> None:
    """Which is then more than its pool."""
    (group,) = groups({"name": "up", "base_url": HTTP, "health": {"interval": "1s"}})
    assert group.checks is not None and not group.plain


def test_endpoint_asks_its_models_as_configured() -> None:
    own = {"max_tokens": 9, "thinking": "budget", "prompt_caching": False, "betas": ["context-1m-2025-08-07"]}
    plain, other = groups(
        {"name": "a", "base_url": HTTP, "quirks": ["no_stream"], "client_ids": True},
        {"name": "b", "base_url": HTTP, "api": "messages", "messages": own},
    )
    endpoints = [group.members[0].pool.endpoint for group in (plain, other)]
    assert [endpoint.provider for endpoint in endpoints] == ["openai", "anthropic"]
    found = [endpoint.models for endpoint in endpoints]
    assert found == [
        ModelAccess(quirks=frozenset({"no_stream"}), client_ids=True),
        ModelAccess(
            api="messages", max_tokens=9, thinking="budget", prompt_caching=False, betas=("context-1m-2025-08-07",)
        ),
    ]
