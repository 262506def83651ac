"""The clock of the system."""

import time

from gateway.clock import SystemClock


def test_it_tells_both_times() -> None:
    """Unix time, and one that never goes back."""
    clock = SystemClock()
    before = (time.monotonic(), time.time())
    assert before[0] <= clock.monotonic() <= time.monotonic()
    assert before[1] <= clock.time() <= time.time()
