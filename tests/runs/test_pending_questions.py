"""Requests that were answered with a question."""

import pytest

from gateway.runs import pending_questions
from gateway.runs.pending_questions import PendingQuestions


def test_pending_request_is_found_until_forgotten() -> None:
    """By the latest run that asked."""
    asks = PendingQuestions()
    asks.note_question("a", "run_1")
    asks.note_question("a", "run_2")
    assert (asks.find("a"), asks.find("b")) == ("run_2", None)
    asks.remove_request("a")
    asks.remove_request("a")
    assert asks.find("a") is None


def test_oldest_pending_requests_are_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asked again is no old one."""
    monkeypatch.setattr(pending_questions, "KEPT", 2)
    asks = PendingQuestions()
    for name in ("a", "b", "a", "c"):
        asks.note_question(name, f"run_{name}")
    assert [asks.find(name) for name in "abc"] == ["run_a", None, "run_c"]
