"""The use of the limits of a rule, for people."""

from collections.abc import Iterator

from gateway.contracts.allowance import Allowance, Limit, LimitUsage
from gateway.limits.limit_rule import LimitRule


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
