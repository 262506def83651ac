"""The figures by which gateways share limits."""

import pytest

from gateway.contracts.storage.quota import QUOTA_GONE_S, QUOTA_LEASE_S, ShareRequest
from gateway.limits.shared_memory import TICK_S


def test_gateway_admits_nothing_when_its_share_comes_free() -> None:
    """Its own clock ends the lease first, also for what a worker took ahead for a tick."""
    assert QUOTA_LEASE_S + 2 * TICK_S < QUOTA_GONE_S


def test_request_names_all_its_figures() -> None:
    """A figure that is left out would be one that nobody thought of."""
    with pytest.raises(TypeError, match="needed"):
        ShareRequest(name="key", limit=5, held=0, used=0, wanted=3, lapse_s=0.0)  # type: ignore[call-arg]
