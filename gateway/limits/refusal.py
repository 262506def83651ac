"""The answer to a request over a limit: its error, and the header fields in OpenAI's form."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

from gateway.contracts.allowance import BUDGETS, Limit
from gateway.contracts.errors import GatewayError
from gateway.limits.counter import KINDS, Kind
from gateway.limits.limit_rule import LimitRule, Over

#: Longest wait that SDKs take from `Retry-After`.
RETRY_AFTER_S: Final = 60.0
_LIMIT_OF: Final[Mapping[Kind, Limit]] = {"requests": "requests_per_minute", "tokens": "tokens_per_minute"}
_MINUTE_MS: Final = 60_000


def build_limit_error(over: Over, rules: Sequence[LimitRule], now_s: float) -> GatewayError:
    """Return the error of a request that a limit refuses. `rules` are all that the request has."""
    whose, wait_s = f"The {over.rule.scope} {over.rule.name!r}", over.wait_s
    most = getattr(over.rule.allowance, over.limit)
    if wait_s is None:
        what, _, period = over.limit.partition("_per_")
        error = GatewayError(
            "insufficient_quota",
            f"{whose} has used up its budget of {_format_amount(what, most)} per {period}: wait for the next "
            f"{period} (UTC), "
            "or ask the operator of this gateway for a larger one.",
        )
        error.settled = True  # SDKs would repeat a 429 at once
    elif over.limit in BUDGETS:
        what, _, period = over.limit.partition("_per_")
        error = GatewayError(
            "rate_limit_exceeded",
            f"{whose} has requests under way, or just ended, that may use up its budget of "
            f"{_format_amount(what, most)} per "
            f"{period}: try again once they have ended.",
            retry_after_s=wait_s,
        )
    elif over.limit == "concurrent":
        error = GatewayError(
            "rate_limit_exceeded",
            f"{whose} has {most} requests under way, which is its limit: try again once one of them has ended.",
            retry_after_s=wait_s,
        )
    else:
        wait_s = min(wait_s, RETRY_AFTER_S)
        error = GatewayError(
            "rate_limit_exceeded",
            f"{whose} has reached its limit of {most} {over.limit.replace('_', ' ')}: try again in "
            f"{format_duration(wait_s)}.",
            retry_after_s=wait_s,
        )
    error.fields = build_ratelimit_fields(rules, now_s)
    return error


def _format_amount(what: str, most: float) -> str:
    return f"{most} tokens" if what == "tokens" else f"a cost of {most:g}"


def build_ratelimit_fields(rules: Sequence[LimitRule], now_s: float) -> Mapping[str, str]:
    """Return `x-ratelimit-*` of the rules with the least room, for requests and for tokens."""
    fields: dict[str, str] = {}
    for kind in KINDS:
        tightest: tuple[int, int, LimitRule] | None = None
        for rule in rules:
            most: int | None = getattr(rule.allowance, f"{kind}_per_minute")
            if most is None:
                continue
            elsewhere = rule.get_used_elsewhere(_LIMIT_OF[kind])
            remaining = max(most - rule.meter.get_used(kind, now_s) - elsewhere, 0)
            if tightest is None or remaining < tightest[0]:
                tightest = remaining, most, rule
        if tightest is not None:
            remaining, most, rule = tightest
            fields[f"x-ratelimit-limit-{kind}"] = str(most)
            fields[f"x-ratelimit-remaining-{kind}"] = str(remaining)
            fields[f"x-ratelimit-reset-{kind}"] = format_duration(rule.meter.measure_time_until_empty_s(kind, now_s))
    return fields


def format_duration(seconds: float) -> str:
    """Return a duration as OpenAI writes it: `120ms`, `7.5s`, `1m0s`."""
    milliseconds = ceil(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, _MINUTE_MS)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
