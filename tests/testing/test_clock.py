"""The clock moves when told to, and forward only."""

import pytest

from gateway.testing.clock import ManualClock


def test_clock_moves_only_by_advance() -> None:
    """Two readings without an advance are equal."""
    clock = ManualClock(10.0)
    assert clock() == clock() == 10.0
    clock.advance(2.5)
    assert clock() == 12.5 and repr(clock) == "<ManualClock 12.5 s>"


def test_manual_clock_refuses_to_go_back() -> None:
    """As a monotonic clock does not."""
    with pytest.raises(ValueError, match="cannot go back by 1 s"):
        ManualClock().advance(-1)
