"""Counts that outlive the process that counted them."""

import os
import signal

import pytest

from gateway.telemetry.shared_counts import SharedCounts

KEY = ("requests", ("/v1/", "200"))


def test_shared_counts_of_one_process_are_readable_by_others() -> None:
    """Also names that come later, and after it was killed."""
    counts = SharedCounts()
    if (child := os.fork()) == 0:
        counts.write([(KEY, (3,)), (("h", ()), (1, 2, 0.5))])
        counts.write([(KEY, (4,)), (("late", ('"\n\u1234',)), (1,))])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert counts.read() == {KEY: (4,), ("h", ()): (1, 2, 0.5), ("late", ('"\n\u1234',)): (1,)}


def test_successor_process_adds_to_existing_counts() -> None:
    """Again and again; what it does not count itself stays."""
    counts = SharedCounts()
    for generation in range(1, 4):
        successor = SharedCounts()
        successor._memory = counts._memory
        successor.adopt_place()
        successor.write([(KEY, (2,)), ((f"only {generation}", ()), (1,))])
        found = counts.read()
        assert found[KEY] == (2 * generation,) and len(found) == 1 + generation
    assert set(counts.read().values()) == {(6,), (1,)}


def test_shared_count_without_room_is_omitted_and_marked_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """And said so; the others go on."""
    counts = SharedCounts()
    counts.write([(KEY, (1,))])
    monkeypatch.setattr("gateway.telemetry.shared_counts.NAMES_BYTES", 64)
    counts.write([(KEY, (2,)), (("x" * 64, ()), (1,))])
    assert counts.read() == {KEY: (2,)} and counts.full
