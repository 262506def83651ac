"""A plan names what its requests need, and nothing that a configuration does not ask for."""

import pytest
from lanes.assembled import endpoint, read, router

from gateway.lanes.passthrough.dispatch.failover import Failover, FailoverFactory
from gateway.lanes.passthrough.dispatch.hedge import Hedge
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.router import Router
from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group, GroupRules
from gateway.upstream.pool import Pool

RAW = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nContent-Length: 2"


def planned(way_in: Router) -> Plan:
    found = way_in.route(read(RAW + b"\r\n\r\n"), RAW)
    assert found is not None
    return found[0]


def several(rules: GroupRules) -> Group:
    members = [Member(Pool(endpoint(), clock=ManualClock()), name=name) for name in "ab"]
    return Group("up", members, tally=UpstreamTally(), clock=ManualClock(), rules=rules)


def test_a_plan_without_features_has_no_dispatcher_and_no_observers() -> None:
    """So they cost one look each."""
    plan = planned(router(endpoint()))
    assert (plan.dispatcher, plan.observers) == (None, None)


@pytest.mark.parametrize(("hedge_s", "kind"), [(None, Failover), (0.5, Hedge)])
def test_the_rules_of_the_upstream_choose_the_dispatcher(hedge_s: float | None, kind: type) -> None:
    plan = planned(router(endpoint(), groups=[several(GroupRules(hedge_s=hedge_s))]))
    assert isinstance(plan.dispatcher, FailoverFactory) and plan.dispatcher.most_targets == 2
    assert type(plan.dispatcher.build_dispatcher()) is kind


def test_plan_creates_one_observer_per_enabled_feature() -> None:
    plan = planned(router(endpoint(), recorded=lambda *_: None))
    assert plan.observers is not None and len(plan.observers.makers) == 1
