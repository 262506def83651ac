"""The use of the limits of a rule, for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.contracts.allowance import Limit
from gateway.limits.budgets import Scope
from gateway.limits.rule import Rule


@dataclass(frozen=True, slots=True)
class Used:
    """A limit and what is used of it.

    `resets_s`: when nothing of that counts any more, in seconds; None: with its period, or its requests.
    """

    scope: Scope
    name: str
    limit: Limit
    most: float
    used: float
    resets_s: float | None
    soft: bool


def used_of(rule: Rule, now_s: float) -> Iterator[Used]:
    """Yield each limit of a rule, with what is used of it in all workers."""
    allowance, meter = rule.allowance, rule.meter

    def told(limit: Limit, most: float, used: float, resets_s: float | None = None) -> Used:
        return Used(rule.scope, rule.name, limit, most, used, resets_s, allowance.soft)

    if (most := allowance.requests_per_minute) is not None:
        yield told("requests_per_minute", most, meter.requests.used(now_s), meter.requests.empty_s(now_s))
    if (most := allowance.tokens_per_minute) is not None:
        yield told("tokens_per_minute", most, meter.tokens.used(now_s), meter.tokens.empty_s(now_s))
    if (most := allowance.concurrent) is not None:
        yield told("concurrent", most, meter.requests.present())
    if rule.has_budget:
        for limit, figure, used in rule.budgets.used(rule.scope, rule.id, allowance):
            if figure is not None:
                yield told(limit, figure, used)
