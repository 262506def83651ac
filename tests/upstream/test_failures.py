"""Lines about upstreams that fail: one for the first of each cause, one a minute for the further ones."""

import logging

import pytest

from gateway.testing.clock import ManualClock
from gateway.upstream.failures import EVERY_S, MOST_CAUSES, Failures

from .turns import endpoint

REFUSED = (
    "Upstream 'up' could not be reached: Connection refused, as nothing listens there: start it, or check its base_url."
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def failures(clock: ManualClock) -> Failures:
    return Failures(endpoint(9), clock=clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[object, object, object]]:
    """(cause, request id, how many more) of what was logged since the last look."""
    facts = [vars(record)["facts"] for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return [(fact["cause"], fact["request_id"], fact["more"]) for fact in facts]


def test_first_failure_of_each_cause_is_logged_at_once(failures: Failures, caplog: pytest.LogCaptureFixture) -> None:
    """With the upstream's name and address; each cause by itself."""
    failures.record_failure(REFUSED, request_id="req_1")
    (record,) = caplog.records
    assert record.getMessage() == "upstream failed"
    facts = vars(record)["facts"]
    assert (facts["upstream"], facts["address"]) == ("up", "127.0.0.1:9")
    failures.record_failure("Upstream 'up' answered 500.")
    assert lines(caplog) == [(REFUSED, "req_1", None), ("Upstream 'up' answered 500.", None, None)]


def test_repeated_failures_share_one_log_line_per_minute(
    failures: Failures, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An upstream that stays down writes one line a minute, with the number and the last id; then it is forgotten."""
    failures.record_failure(REFUSED, request_id="req_0")
    lines(caplog)
    for _ in range(3):
        for i in range(1000):
            failures.record_failure(REFUSED, request_id=f"req_{i}")
        failures.log_suppressed()
        assert lines(caplog) == []
        clock.advance(EVERY_S)
        failures.log_suppressed()
        assert lines(caplog) == [(REFUSED, "req_999", 1000)]
    clock.advance(EVERY_S)
    failures.log_suppressed()
    assert lines(caplog) == []
    failures.record_failure(REFUSED, request_id="req_x")
    assert lines(caplog) == [(REFUSED, "req_x", None)]


def test_failure_before_the_sweep_keeps_the_earlier_count(
    failures: Failures, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The line about the last minute comes before the line of the new one."""
    failures.record_failure(REFUSED, request_id="req_1")
    failures.record_failure(REFUSED, request_id="req_2")
    clock.advance(EVERY_S)
    failures.record_failure(REFUSED, request_id="req_3")
    assert lines(caplog) == [(REFUSED, "req_1", None), (REFUSED, "req_2", 1), (REFUSED, "req_3", None)]


def test_distinct_failure_causes_cannot_fill_the_log(
    failures: Failures, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An upstream's own words are a part of some causes: beyond a number of them they share a line."""
    for i in range(10_000):
        failures.record_failure(f"Upstream 'up' answered 500: try again, request {i}.")
    assert len(lines(caplog)) == MOST_CAUSES + 1
    clock.advance(EVERY_S)
    failures.log_suppressed()
    assert lines(caplog) == [("several other causes", None, 10_000 - MOST_CAUSES - 1)]


def test_unlogged_failure_counts_are_logged_on_flush(failures: Failures, caplog: pytest.LogCaptureFixture) -> None:
    """A reload, or the end of the process, loses no count."""
    failures.record_failure(REFUSED)
    failures.record_failure(REFUSED, request_id="req_2")
    lines(caplog)
    failures.flush()
    failures.flush()
    assert lines(caplog) == [(REFUSED, "req_2", 1)]
