"""The meters of a worker: one for each rule, and clear behaviour when there is no room for more."""

import pytest

from gateway.errors import GatewayError
from gateway.limits import shared
from gateway.limits.meters import Meters
from gateway.limits.shared import SharedCounters


def test_a_rule_has_one_meter() -> None:
    meters = Meters(SharedCounters(places=1), place=0)
    assert meters.of("key", "a") is meters.of("key", "a")
    assert meters.of("tenant", "a") is not meters.of("key", "a")


def test_requests_of_rules_beyond_the_room_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that have a place go on. The log says it once."""
    monkeypatch.setattr(shared, "COUNTERS", 2)
    meters = Meters(SharedCounters(places=1), place=0)
    known = meters.of("key", "a")
    for name in "bc":
        with pytest.raises(GatewayError, match="no room to count"):
            meters.of("key", name)
    assert meters.of("key", "a") is known
    assert len(caplog.messages) == 1
