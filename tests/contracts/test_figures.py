"""Figures that rooms hand on."""

import dataclasses

import pytest

from gateway.contracts.figures import Counted, Counts, Point
from gateway.telemetry.shared_counts import SharedCounts


def test_counts_of_all_processes_have_the_keys_of_their_sources() -> None:
    counted: list[Counted] = [(("requests", ("200",)), [3]), (("seconds", ()), iter((1, 2, 0.5)))]
    shared = SharedCounts()
    shared.write(counted)
    counts: Counts = shared.read()
    assert counts == {("requests", ("200",)): (3.0,), ("seconds", ()): (1.0, 2.0, 0.5)}


def test_point_of_the_history_does_not_change() -> None:
    point = Point(at_s=9.0, span_s=6.0, requests=4, errors=1, overhead_ms=0.5, approval_wait_s=None, pending=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.errors = 2  # type: ignore[misc]
