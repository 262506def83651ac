"""How old a lease is: by a clock that nobody sets."""

from gateway.runs.lease import LEASE_S, Age
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock


def test_lease_age_expires_and_restarts() -> None:
    """To the moment at which another owner may take the run."""
    clock = ManualClock()
    age = Age(Clock(clock))
    clock.advance(LEASE_S - 0.001)
    assert not age.has_expired()
    clock.advance(0.001)
    assert age.has_expired()
    age.begin()
    assert not age.has_expired()
