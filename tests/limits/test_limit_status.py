"""The status of a rule on the pages: each limit that it has, and no other one."""

from gateway.contracts.allowance import Allowance, LimitUsage
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitRule
from gateway.limits.limit_status import list_rule_usage
from gateway.limits.shared_memory import SharedCounters
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, in_dollars, spend


def test_usage_list_reports_each_configured_limit_with_its_usage() -> None:
    budgets = in_dollars()
    budgets.replace_sums({("tenant", "t"): spend(tokens_per_day=7)}, names=[("tenant", "t")], currency="USD")
    meter = Meters(SharedCounters(places=1), place=0, clock=ManualClock(BEGAN_S)).get_meter("tenant", "t")
    allowance = Allowance(requests_per_minute=5, concurrent=2, tokens_per_day=100, soft=True)
    rule = LimitRule("tenant", "t", allowance, meter, budgets, "t")
    rule.meter.count_requests(1, 0, BEGAN_S)
    assert list(list_rule_usage(rule, BEGAN_S + 1.0)) == [
        LimitUsage("tenant", "t", None, "requests_per_minute", 5, 1, 59.25, soft=True, over=0),
        LimitUsage("tenant", "t", None, "concurrent", 2, 1, None, soft=True, over=0),
        LimitUsage("tenant", "t", None, "tokens_per_day", 100, 7, None, soft=True, over=0),
    ]
