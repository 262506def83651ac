"""The use of the limits of a rule, for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.limits.rule import Limit, Rule, Scope


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
    facts: list[tuple[Limit, float | None, float, float | None]] = [
        (
            "requests_per_minute",
            allowance.requests_per_minute,
            meter.requests.used(now_s),
            meter.requests.empty_s(now_s),
        ),
        ("tokens_per_minute", allowance.tokens_per_minute, meter.tokens.used(now_s), meter.tokens.empty_s(now_s)),
        ("concurrent", allowance.concurrent, meter.requests.present(), None),
    ]
    if rule.has_budget:
        facts += rule.budget.used(rule.scope, rule.id, allowance)
    for limit, most, used, resets_s in facts:
        if most is not None:
            yield Used(rule.scope, rule.name, limit, most, used, resets_s, allowance.soft)
