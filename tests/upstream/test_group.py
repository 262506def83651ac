"""A group gives each request a place at one endpoint, and says why none is there."""

import pytest
from upstream.groups import group, group_of, member

from gateway.contracts.errors import GatewayError
from gateway.testing.clock import ManualClock
from gateway.upstream.attempts import Tries
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.queue import QueueRules

CLOCK = ManualClock()


def test_error_for_all_endpoints_out_reports_reasons_and_shortest_wait() -> None:
    """The shortest wait of all."""
    clock = ManualClock()
    of = group("ab", clock, breaker=BreakerRules(failures=1, open_s=10.0))
    of.apply_health_check(of.members[1], failing="it answered 500")
    Tries(of, twice=False).begin()
    of.give_back(of.members[0], failed=True, probe=None)
    clock.advance(4.0)
    with pytest.raises(GatewayError) as error:
        Tries(of, twice=False).begin()
    assert (error.value.code, error.value.retry_after_s) == ("circuit_open", 1.0)
    assert "a failed too often (its breaker is open); b fails its health checks" in error.value.message
    assert of.tally.ejections == {("a", "breaker"): 1, ("b", "health"): 1}


def test_passing_health_check_restores_an_endpoint_with_an_open_breaker() -> None:
    """A check that works is as good as a probe."""
    of = group("a", CLOCK, breaker=BreakerRules(failures=1))
    of.apply_health_check(of.members[0], failing="it answered 500")
    of.members[0].breaker.record_failure(0.0, of.members[0].breaker.begin(0.0))
    of.apply_health_check(of.members[0], failing=None)
    assert of.members[0].find_obstacle(0.0) is None


def test_upstream_without_rules_is_plain() -> None:
    """Any rule makes it more."""
    assert group("a", CLOCK).plain
    assert not group("ab", CLOCK).plain
    assert not group("a", CLOCK, hedge_s=1.0).plain
    one_place = group_of(member("a", CLOCK, most=1), clock=CLOCK, queue=QueueRules(size=2, wait_s=60.0))
    assert not one_place.plain
