"""How old a lease is: by a clock that nobody sets."""

from gateway.runs.lease import LEASE_S, Age
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock


def test_a_lease_is_over_when_its_time_is_and_begins_anew() -> None:
    """To the moment at which another owner may take the run."""
    clock = ManualClock()
    age = Age(Clock(clock))
    clock.advance(LEASE_S - 0.001)
    assert not age.has_expired()
    clock.advance(0.001)
    assert age.has_expired()
    age.begin()
    assert not age.has_expired()
