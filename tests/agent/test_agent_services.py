"""The parts that an agent loop works with."""

from dataclasses import FrozenInstanceError, fields

import pytest

from gateway.agent.agent_services import AgentParts, ApprovalSettings


def test_agent_parts_are_immutable() -> None:
    """Nobody changes them while runs use them; the log of malformed answers alone has a default."""
    settings = ApprovalSettings(inline_wait_s=1.0, on_reject="abort")
    with pytest.raises(FrozenInstanceError):
        settings.inline_wait_s = 2.0  # type: ignore[misc]
    assert [field.name for field in fields(AgentParts) if callable(field.default_factory)] == ["malformed"]
