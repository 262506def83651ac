"""A body has time while it keeps coming at a least rate, and no longer."""

import pytest

from gateway.lanes.passthrough.body_timeout import LEAST_RATE, BodyPace

IDLE_S = 3.0


def late_after(came_bytes: float, every_s: float, *, look_s: float = 0.5, within_s: float = 600.0) -> float | None:
    """When a body is late that sends so many bytes in steps; None: not within that time."""
    pace = BodyPace(0.0, idle_s=IDLE_S, received_bytes=0)
    for look in range(1, int(within_s / look_s)):
        now_s = look * look_s
        if pace.is_late(now_s, idle_s=IDLE_S, received_bytes=int(now_s / every_s) * int(came_bytes)):
            return now_s
    return None


def test_a_body_that_stands_still_is_late_after_its_idle_time() -> None:
    """Not before, and at the next look after it."""
    assert late_after(0, 1.0) == IDLE_S + 0.5


@pytest.mark.parametrize(("came_bytes", "every_s"), [(1, 2.0), (1, 0.5), (10, 1.0), (LEAST_RATE - 10, 1.0)])
def test_dripping_request_body_is_late(came_bytes: int, every_s: float) -> None:
    """Although it never stands still for long."""
    late_s = late_after(came_bytes, every_s)
    assert late_s is not None and late_s <= IDLE_S / (1 - came_bytes / every_s / LEAST_RATE) + every_s + 0.5


@pytest.mark.parametrize(("came_bytes", "every_s"), [(2 * LEAST_RATE, 1.0), (3 * LEAST_RATE, 2.5), (65536, 2.9)])
def test_a_body_that_comes_at_the_least_rate_is_never_late(came_bytes: int, every_s: float) -> None:
    """However long it takes; pauses shorter than the idle time are made up for."""
    assert late_after(came_bytes, every_s) is None


def test_fast_start_does_not_extend_the_body_idle_time() -> None:
    """A megabyte at once, and nothing more: late after the idle time."""
    pace = BodyPace(0.0, idle_s=IDLE_S, received_bytes=0)
    assert not pace.is_late(1.0, idle_s=IDLE_S, received_bytes=1 << 20)
    assert not pace.is_late(3.9, idle_s=IDLE_S, received_bytes=1 << 20)
    assert pace.is_late(4.1, idle_s=IDLE_S, received_bytes=1 << 20)


def test_paused_time_does_not_count_towards_the_body_timeout() -> None:
    """While it is paused, or waits to be invited."""
    pace = BodyPace(0.0, idle_s=IDLE_S, received_bytes=0)
    pace.excuse_elapsed_time(100.0)
    assert not pace.is_late(102.9, idle_s=IDLE_S, received_bytes=0)
    assert pace.is_late(103.1, idle_s=IDLE_S, received_bytes=0)
