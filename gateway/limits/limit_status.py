"""The use of the limits of a rule, for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.contracts.allowance import Allowance, Limit
from gateway.limits.budgets import Scope
from gateway.limits.limit_rule import LimitRule


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """A limit and what is used of it.

    `tenant` is that of a key; others have none. `resets_s`: when nothing of that counts any more, in seconds; None:
    with its period, or its requests. `over`: requests that exceeded it since the gateway started. They were refused,
    unless it is `soft`. `obstacle`: why it cannot be counted now, and what to do; None: it can. Requests are refused
    until it can, unless it is `soft`.
    """

    scope: Scope
    name: str
    tenant: str | None
    limit: Limit
    most: float
    used: float
    resets_s: float | None
    soft: bool
    over: int
    obstacle: str | None = None


def list_rule_usage(rule: LimitRule, now_s: float) -> Iterator[LimitUsage]:
    """Yield each limit of a rule, with what is used of it in all workers."""
    allowance, meter = rule.allowance, rule.meter

    def build_usage(
        limit: Limit, most: float, used: float, resets_s: float | None = None, obstacle: str | None = None
    ) -> LimitUsage:
        over, used = meter.get_exceeded_count(limit), used + rule.get_used_elsewhere(limit)
        return LimitUsage(
            rule.scope, rule.name, rule.tenant, limit, most, used, resets_s, allowance.soft, over, obstacle
        )

    if (most := allowance.requests_per_minute) is not None:
        yield build_usage(
            "requests_per_minute",
            most,
            meter.get_used("requests", now_s),
            meter.measure_time_until_empty_s("requests", now_s),
        )
    if (most := allowance.tokens_per_minute) is not None:
        yield build_usage(
            "tokens_per_minute",
            most,
            meter.get_used("tokens", now_s),
            meter.measure_time_until_empty_s("tokens", now_s),
        )
    if (most := allowance.concurrent) is not None:
        yield build_usage("concurrent", most, meter.count_under_way())
    if allowance.has_budget:
        for limit, figure, used in rule.budgets.get_usage(rule.scope, rule.id, allowance):
            if figure is not None:
                alone = Allowance(cost_per_day=figure if limit.startswith("cost") else None)  # only money needs prices
                yield build_usage(limit, figure, used, obstacle=rule.budgets.find_obstacle(rule.scope, rule.id, alone))
