"""Malformed answers leave log lines, and no flood of them."""

import pytest

from gateway.agent.output.malformed import EVERY_S, LINES, MalformedLog


def test_malformed_answer_is_logged_with_its_run(caplog: pytest.LogCaptureFixture) -> None:
    """Enough to find it."""
    MalformedLog().report("it is not complete.", run_id="run_1", chain="main", now_s=5.0)
    (line,) = caplog.messages
    assert line == "run run_1 (chain main): a malformed answer of the model is dropped: it is not complete."


def test_malformed_answer_log_is_rate_limited_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The next minute says how many were left out."""
    log = MalformedLog()
    for _ in range(LINES + 7):
        log.report("no", run_id="run_1", chain="main", now_s=5.0)
    assert len(caplog.messages) == LINES
    log.report("no", run_id="run_2", chain="main", now_s=5.0 + EVERY_S)
    assert caplog.messages[LINES] == "7 more answers of models were malformed" and "run_2" in caplog.messages[-1]
