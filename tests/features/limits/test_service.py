"""The limits of a configuration are those that it sets, on what the worker has counted."""

import time

from gateway.aio.clock import SystemClock
from gateway.config import Settings
from gateway.features.limits.service import build_limiter
from gateway.limits.counter_registry import Meters
from gateway.limits.limiter import Limiter
from gateway.limits.shared_memory import SharedCounters
from gateway.telemetry.counters import ContextCounters
from tests.limits.limiting import caller, in_dollars

METERS = Meters(SharedCounters(places=1), place=0, clock=time.monotonic)


def limiter_of(**settings: object) -> Limiter:
    return build_limiter(
        Settings.model_validate(settings),
        meters=METERS,
        budgets=in_dollars(),
        clock=SystemClock(),
        counters=ContextCounters(),
    )


def test_each_section_becomes_a_rule() -> None:
    few = {"requests_per_minute": 3}
    limiter = limiter_of(
        limits={"tenants": {"team": few}, "models": {"gpt-*": {"concurrent": 2}}},
        upstreams=[{"name": "up", "base_url": "http://127.0.0.1:1/v1", "limits": {"tokens_per_minute": 5}}],
    )
    rules = (
        limiter.list_caller_rules(caller()) + limiter.list_model_rules("gpt-4.1") + limiter.list_upstream_rules("up")
    )
    assert [(rule.scope, rule.name) for rule in rules] == [("tenant", "team"), ("model", "gpt-*"), ("upstream", "up")]
    assert limiter.has_targets and limiter.counts_tokens(caller())


def test_a_configuration_without_limits_has_no_rules() -> None:
    limiter = limiter_of()
    assert not (limiter.has_targets or limiter.counts_tokens(caller()))
    assert limiter.list_caller_rules(caller()) == ()


def test_limiters_of_two_configurations_share_meters() -> None:
    few = {"limits": {"tenants": {"team": {"requests_per_minute": 3}}}}
    first, second = (limiter_of(**few).list_caller_rules(caller())[0] for _ in range(2))
    assert first.meter is second.meter
