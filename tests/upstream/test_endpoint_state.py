"""What keeps a request from an endpoint."""

from upstream.groups import member

from gateway.testing.clock import ManualClock
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.endpoint_state import LONGEST_PAUSE_S

CLOCK = ManualClock()


def test_endpoint_reports_its_longest_lasting_obstacle() -> None:
    """The one that lasts longest first."""
    one = member("a", CLOCK, most=1, breaker=BreakerRules(failures=1))
    assert one.find_obstacle(0.0) is None
    one.inflight = 1
    assert one.find_obstacle(0.0) == "busy"
    one.pause(5.0, 0.0, limited=False)
    assert (one.find_obstacle(4.9), one.find_obstacle(5.0), one.get_wait_s(1.0)) == ("pausing", "busy", 4.0)
    one.breaker.record_failure(0.0, one.breaker.begin(0.0))
    assert one.find_obstacle(5.0) == "open"
    one.healthy = False
    assert one.find_obstacle(100.0) == "unhealthy"


def test_no_pause_is_longer_than_a_minute() -> None:
    """Whatever the endpoint asks for; and a shorter one does not end a longer one."""
    one = member("a", CLOCK)
    one.pause(86400.0, 0.0, limited=True)
    one.pause(1.0, 0.0, limited=False)
    assert one.get_wait_s(0.0) == LONGEST_PAUSE_S


def test_an_endpoint_serves_the_models_that_its_patterns_name() -> None:
    """Without patterns, and for a request whose model nobody knows, all of them."""
    one = member("a", CLOCK, models=("gpt-*", "o1"))
    assert [one.serves(model) for model in ("gpt-5", "o1", "llama", None)] == [True, True, False, True]
    assert member("b", CLOCK).serves("llama")
