"""The wait before a new start."""

from gateway.mcp.backoff import Backoff


def test_backoff_doubles_up_to_the_maximum() -> None:
    """A server that cannot start is tried again ever more rarely, and never given up."""
    backoff = Backoff(chance=lambda: 0.5)
    assert [backoff.choose_wait_s(up_s=0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_backoff_resets_after_a_minute_of_uptime() -> None:
    """A minute is enough."""
    backoff = Backoff(chance=lambda: 0.5)
    assert [backoff.choose_wait_s(up_s=up_s) for up_s in (0, 59, 60, 0)] == [0.5, 1, 0.5, 1]


def test_backoff_adds_jitter() -> None:
    """A quarter more or less, by chance."""
    assert (Backoff(chance=lambda: 0.0).choose_wait_s(up_s=0), Backoff(chance=lambda: 1.0).choose_wait_s(up_s=0)) == (
        0.375,
        0.625,
    )
    assert 0.375 <= Backoff().choose_wait_s(up_s=0) <= 0.625
